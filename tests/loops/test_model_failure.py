"""What the model loop does when a provider fails, or when it reaches a limit of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from perdure import clock
from perdure.clock import SystemClock
from perdure.entry import Json, Message, Text, ToolCall, ToolResult
from perdure.errors import ConfigurationError, LoopError, ModelError
from perdure.loop import LoopEvent, MessageDelta, MessageEnded, Notice, ToolEnded, Verdict
from perdure.loops.model import Model
from perdure.loops.retry import MOST_S, wait_before
from tests.loops.handmade import Context, ask, collect
from tests.loops.modelling import until_failure
from tests.provider.mock import Provider, event_stream, quiet

GPT, MINI, CLAUDE = "openai-chat:gpt-5", "openai-chat:gpt-5-mini", "anthropic:claude-sonnet-5-5"
KEY = "key-that-nobody-may-see"
REFUSED = b"HTTP/1.1 %s\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n%s"


class HurriedClock(SystemClock):
    """Nobody waits; how long they would have is kept."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    async def sleep(self, delay_s: float) -> None:
        self.waits.append(delay_s)
        await asyncio.sleep(0)


@pytest.fixture
def hurried() -> Any:
    hurried = HurriedClock()
    with clock.use(hurried):
        yield hurried


def refusal(status: str, kind: str = "error", headers: str = "") -> bytes:
    body = b'{"error":{"message":"Sorry.","type":"%s","code":"%s"}}' % (
        kind.encode(),
        kind.encode(),
    )
    return REFUSED % (status.encode(), headers.encode(), len(body), body)


def make(provider: Provider, name: str = GPT, **options: Any) -> Model:
    protocol = name.partition(":")[0]
    return Model(name, base_url=provider.base_url(protocol), api_key=KEY, **options)


async def teach(provider: Provider, content: str = "Here.") -> None:
    await provider.teach({"match": {}, "response": {"content": content}})


def notices(events: Sequence[LoopEvent]) -> list[str]:
    return [event.text for event in events if isinstance(event, Notice)]


def said(events: Sequence[LoopEvent]) -> list[str]:
    ended = (event for event in events if isinstance(event, MessageEnded))
    return ["".join(p.text for p in e.parts if isinstance(p, Text)) for e in ended]


def provider_of(events: Sequence[LoopEvent]) -> dict[str, Any]:
    (last,) = [event.provider for event in events if isinstance(event, MessageEnded)][-1:]
    assert isinstance(last, dict)
    return last


async def test_a_failure_before_the_answer_is_tried_again_and_each_wait_is_told(
    provider: Provider, hurried: HurriedClock
) -> None:
    await teach(provider)
    provider.canned += [refusal("503 Busy"), refusal("500 Broken"), refusal("429 Slow down")]
    events = await collect(make(provider)(), ask("x"))
    assert said(events) == ["Here."]
    assert len(provider.requests) == 4
    assert len(set(provider.requests)) == 1
    first, second, third = hurried.waits
    assert 0.25 <= first <= 0.5 <= second * 2 <= 2 * third <= 4
    told = notices(events)
    assert told[0] == f"{GPT} failed (503); asking again in {first:.1f} s"
    assert [line.split("; ")[0] for line in told[1:]] == [
        f"{GPT} failed (500)",
        f"{GPT} failed (429)",
    ]


@pytest.mark.parametrize("name", [GPT, "openai-responses:gpt-5", CLAUDE])
async def test_a_connection_that_is_lost_before_anything_was_shown_is_made_again(
    provider: Provider, hurried: HurriedClock, name: str
) -> None:
    await teach(provider)
    provider.canned += [b"", event_stream("")]
    events = await collect(make(provider, name)(), ask("x"))
    assert said(events) == ["Here."]
    assert len(provider.requests) == 3
    assert len(hurried.waits) == len(notices(events)) == 2


async def test_a_provider_that_says_how_long_to_wait_is_not_asked_before(
    provider: Provider, hurried: HurriedClock
) -> None:
    await teach(provider)
    provider.canned.append(refusal("429 Slow down", headers="Retry-After: 7\r\n"))
    await collect(make(provider)(), ask("x"))
    (waited,) = hurried.waits
    assert 7 < waited < 8


async def test_a_provider_that_asks_for_an_hour_is_not_waited_for(
    provider: Provider, hurried: HurriedClock
) -> None:
    provider.canned.append(refusal("429 Slow down", headers="Retry-After: 3600\r\n"))
    with pytest.raises(ModelError, match="wait 3600 s") as failed:
        await collect(make(provider)(), ask("x"))
    assert failed.value.retry_after_s == 3600
    assert hurried.waits == []


@pytest.mark.parametrize(
    ("status", "kind"), [("400 No", "bad"), ("401 Who", "auth"), ("429 Pay", "insufficient_quota")]
)
async def test_what_waiting_cannot_mend_is_not_tried_again(
    provider: Provider, hurried: HurriedClock, status: str, kind: str
) -> None:
    provider.canned.append(refusal(status, kind))
    with pytest.raises(ModelError) as failed:
        await collect(make(provider)(), ask("x"))
    assert not failed.value.is_transient
    assert len(provider.requests) == 1


async def test_it_gives_up_after_the_retries_it_was_given(
    provider: Provider, hurried: HurriedClock
) -> None:
    provider.canned += [refusal("503 Busy")] * 9
    with pytest.raises(ModelError) as failed:
        await collect(make(provider, max_retries=2)(), ask("x"))
    assert (failed.value.status, failed.value.is_transient) == (503, True)
    assert len(provider.requests) == 3


def test_waits_grow_to_a_bound_and_differ() -> None:
    error = ModelError("x", is_transient=True)
    waits = [[wait_before(n, error) or 0 for n in range(1, 12)] for _ in range(50)]
    assert all(max(each) <= MOST_S for each in waits)
    assert all(each[-1] >= MOST_S / 2 for each in waits)
    assert len({each[0] for each in waits}) > 40


async def test_an_answer_that_breaks_off_after_text_is_not_begun_anew(
    provider: Provider, hurried: HurriedClock
) -> None:
    await teach(provider)
    half = (
        'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":'
        '[{"index":0,"delta":{"role":"assistant","content":"half"},"finish_reason":null}]}'
    )
    provider.canned.append(event_stream(half, ""))
    events, failure = await until_failure(make(provider, fallbacks=[MINI]), ask("x"))
    assert "broke off" in str(failure)
    assert [e.text for e in events if isinstance(e, MessageDelta)] == ["half"]
    assert len(provider.requests) == 1
    assert hurried.waits == []


def ended_with(finish: str, delta: str = '"content":""') -> bytes:
    return event_stream(
        'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":'
        f'[{{"index":0,"delta":{{"role":"assistant",{delta}}},"finish_reason":"{finish}"}}]}}',
        "",
        "data: [DONE]",
        "",
    )


@pytest.mark.parametrize(
    ("finish", "told"), [("length", "limit of tokens"), ("content_filter", "content filter")]
)
async def test_an_answer_that_was_cut_off_before_it_said_anything_fails_the_run(
    provider: Provider, finish: str, told: str
) -> None:
    await teach(provider)
    provider.canned.append(ended_with(finish))
    context = ask("x")
    with pytest.raises(LoopError, match=told):
        await collect(make(provider)(), context)
    assert isinstance(context.conversation[-1], Message)


async def test_a_call_that_was_cut_off_is_not_made_and_the_model_is_told_why(
    provider: Provider,
) -> None:
    def noop(word: str) -> str:
        """Does nothing."""
        raise AssertionError

    await teach(provider)
    call = '{"index":0,"id":"c1","type":"function","function":{"name":"noop","arguments":"{\\"wo"}}'
    provider.canned.append(ended_with("length", f'"tool_calls":[{call}]'))
    events = await collect(make(provider, tools=[noop])(), ask("x"))
    (result,) = [event.result for event in events if isinstance(event, ToolEnded)]
    assert "limit of tokens" in result.text
    assert said(events)[-1] == "Here."


async def test_only_the_key_that_is_used_is_named_and_no_word_is_taken_for_one(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "another-key-than-that")
    provider.canned += [refusal("401 Who")] * 2
    with pytest.raises(ModelError, match="the key that it is given"):
        await collect(make(provider)(), ask("x"))
    with pytest.raises(ModelError, match="Sorry"):
        await collect(
            Model(GPT, base_url=provider.base_url("openai-chat"), api_key="r")(), ask("x")
        )


async def test_fallbacks_are_asked_in_order_and_the_message_says_which_answered(
    provider: Provider, hurried: HurriedClock
) -> None:
    await teach(provider)
    provider.canned += [refusal("503 Busy")] * 2 + [refusal("404 None")]
    claude = make(provider, CLAUDE, settings={"max_tokens": 7})
    model = make(provider, fallbacks=[MINI, claude], max_retries=1)
    events = await collect(model(), ask("x"))
    assert said(events) == ["Here."]
    assert [each.split("; ")[1] for each in notices(events)[1:]] == [
        f"asking {MINI} instead",
        f"asking {CLAUDE} instead",
    ]
    sent = [body.decode() for body in provider.requests]
    assert ["gpt-5-mini" in body for body in sent] == [False, False, True, False]
    assert "claude-sonnet-5-5" in sent[3]
    assert '"max_tokens":7' in sent[3].replace(" ", "")
    assert provider_of(events)["interface"] == "anthropic/AnthropicModel"


async def test_a_model_that_was_given_up_stays_so_for_the_run_and_not_for_the_next(
    provider: Provider, hurried: HurriedClock
) -> None:
    def noop() -> str:
        """Does nothing."""
        return "nothing"

    call = {"id": "c1", "name": "noop", "arguments": "{}"}
    await provider.teach(
        {"match": {"hasToolResult": False}, "response": {"toolCalls": [call]}},
        {"match": {"hasToolResult": True}, "response": {"content": "Done."}},
    )
    provider.canned.append(refusal("401 Who"))
    model = make(provider, fallbacks=[MINI], tools=[noop])
    assert said(await collect(model(), ask("x")))[-1] == "Done."
    assert said(await collect(model(), ask("x")))[-1] == "Done."
    asked = ["mini" if b"gpt-5-mini" in body else "gpt" for body in provider.requests]
    assert asked == ["gpt", "mini", "mini", "gpt", "gpt"]


async def test_when_all_fail_the_last_failure_is_the_runs(
    provider: Provider, hurried: HurriedClock
) -> None:
    provider.canned += [refusal("503 Busy"), refusal("401 Who")]
    with pytest.raises(ModelError, match="gpt-5-mini") as failed:
        await collect(make(provider, fallbacks=[MINI], max_retries=0)(), ask("x"))
    assert failed.value.status == 401


def test_a_fallback_that_cannot_be_used_is_found_before_anything_is_sent(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    with pytest.raises(ConfigurationError, match="ANTHROPIC_API_KEY"):
        make(provider, fallbacks=[CLAUDE])()


async def teach_to_call_for_ever(provider: Provider) -> None:
    call = {"id": "c1", "name": "noop", "arguments": "{}"}
    usage = {"prompt_tokens": 700, "completion_tokens": 50, "total_tokens": 750}
    await provider.teach({"match": {}, "response": {"toolCalls": [call], "usage": usage}})


async def test_a_run_ends_when_its_answers_have_cost_its_tokens(provider: Provider) -> None:
    def noop() -> str:
        """Does nothing."""
        return "nothing"

    await teach_to_call_for_ever(provider)
    context = ask("x")
    with pytest.raises(LoopError, match="max_run_tokens"):
        await collect(make(provider, tools=[noop], max_run_tokens=1600)(), context)
    usage = provider_of_message(context.added[0])["usage"]
    assert usage["input_tokens"] + usage["output_tokens"] == 750
    assert len(provider.requests) == 3
    assert context.added[-1].tool_results


def provider_of_message(message: Message) -> dict[str, Any]:
    assert isinstance(message.provider, dict)
    return message.provider


async def test_a_run_that_takes_too_long_ends_its_tools_and_says_so(provider: Provider) -> None:
    ended = asyncio.Event()

    async def wait() -> None:
        """Waits for ever."""
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    call = {"id": "c1", "name": "wait", "arguments": "{}"}
    await provider.teach({"match": {}, "response": {"toolCalls": [call]}})
    async with asyncio.timeout(20):
        with pytest.raises(LoopError, match="max_run_s"):
            await collect(make(provider, tools=[wait], max_run_s=0.5)(), ask("x"))
    assert ended.is_set()


async def test_a_run_that_takes_too_long_ends_its_request(provider: Provider) -> None:
    slow = {"match": {}, "response": {"content": "words " * 500}, "latency": 50}
    await provider.teach(slow)
    async with asyncio.timeout(20):
        with pytest.raises(LoopError, match="max_run_s"):
            await collect(make(provider, max_run_s=0.5)(), ask("x"))
        await provider.settle()
        await quiet()


async def test_the_wait_for_a_provider_counts_too(provider: Provider) -> None:
    provider.canned.append(refusal("429 Slow down", headers="Retry-After: 60\r\n"))
    async with asyncio.timeout(20):
        with pytest.raises(LoopError, match="max_run_s"):
            await collect(make(provider, max_run_s=0.3)(), ask("x"))


async def test_the_window_of_the_model_stands_beside_the_usage(provider: Provider) -> None:
    await teach(provider)
    known = provider_of(await collect(make(provider)(), ask("x")))
    assert known["context_window"] > 100_000
    given = provider_of(await collect(make(provider, context_window=4096)(), ask("x")))
    assert given["context_window"] == 4096
    unknown = make(provider, "openai-chat:a-model-of-ours")
    assert "context_window" not in provider_of(await collect(unknown(), ask("x")))


@dataclass
class Around(Context):
    """Surroundings whose tools are as broken as the test wants."""

    asked: list[str] | None = None
    broken: Callable[[], Exception] | None = None

    async def permit(self, call: ToolCall) -> Verdict:
        assert self.asked is not None
        self.asked.append(call.name)
        return await super().permit(call)

    async def call_tool(  # type: ignore[override] # a loop's side of it has no key
        self, call: ToolCall, arguments: Json, show: Callable[[str], object]
    ) -> ToolResult:
        assert self.broken is not None
        raise self.broken()

    async def tools(self) -> Any:
        from perdure.loop import ToolSpec

        return [ToolSpec(name, "A tool.", {"type": "object"}) for name in ("mine", "theirs")]


async def test_surroundings_that_break_fail_the_run_and_nobody_waits(provider: Provider) -> None:
    call = {"id": "c1", "name": "theirs", "arguments": "{}"}
    await provider.teach({"match": {}, "response": {"toolCalls": [call]}})
    context = Around(asked=[], broken=lambda: ZeroDivisionError("a bug"))
    context.input = ask("x").input
    async with asyncio.timeout(20):
        with pytest.raises(ZeroDivisionError):
            await collect(make(provider)(), context)


async def test_of_two_tools_of_one_name_the_loops_own_is_offered_and_run(
    provider: Provider,
) -> None:
    def mine() -> str:
        """Is mine."""
        return "mine ran"

    asked = [{"id": "c1", "name": n, "arguments": "{}"} for n in ("mine",)]
    await provider.teach(
        {"match": {"hasToolResult": False}, "response": {"toolCalls": asked}},
        {"match": {"hasToolResult": True}, "response": {"content": "Done."}},
    )
    context = Around(asked=[])
    context.input = ask("x").input
    events = await collect(make(provider, tools=[mine])(), context)
    (result,) = [event.result for event in events if isinstance(event, ToolEnded)]
    assert result.text == "mine ran"
    assert provider.requests[0].count(b'"mine"') == 1
    assert b"Is mine." in provider.requests[0]


async def test_nobody_is_asked_whether_a_tool_that_is_none_may_run(provider: Provider) -> None:
    asked = [{"id": n, "name": n, "arguments": "{}"} for n in ("none", "mine")]
    await provider.teach(
        {"match": {"hasToolResult": False}, "response": {"toolCalls": asked}},
        {"match": {"hasToolResult": True}, "response": {"content": "Done."}},
    )

    def mine() -> str:
        """Is mine."""
        return "mine ran"

    context = Around(asked=[])
    context.input = ask("x").input
    events = await collect(make(provider, tools=[mine])(), context)
    results = {e.result.call_id: e.result for e in events if isinstance(e, ToolEnded)}
    assert results["none"].is_error
    assert "mine, theirs" in results["none"].text
    assert not results["mine"].is_error
    assert context.asked == ["mine"]
