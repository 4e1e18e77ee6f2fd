"""The model loop over real protocols: a provider on this machine, three ways to speak to it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Any

import pytest

from perdure.codec import seal
from perdure.entry import Message, Reasoning, Text, ToolCall, ToolResult, text
from perdure.errors import LoopError, ModelError
from perdure.loop import Allowed, LoopEvent, MessageDelta, MessageEnded, MessageStarted, ToolEnded
from perdure.loops.model import Model
from tests.loops.handmade import Context, ask, collect
from tests.provider.mock import Provider, event_stream, quiet

NAMES = {
    "openai-chat": "openai-chat:gpt-5",
    "openai-responses": "openai-responses:gpt-5",
    "anthropic": "anthropic:claude-sonnet-5-5",
}
STREAMING: tuple[str, ...] = ("truncateAfterChunks", "latency")
KEY = "key-that-nobody-may-see"

Make = Callable[..., Model]


@pytest.fixture(params=list(NAMES))
def protocol(request: pytest.FixtureRequest) -> str:
    name = request.param
    assert isinstance(name, str)
    return name


def maker(provider: Provider, protocol: str) -> Make:
    def make(**options: Any) -> Model:
        base_url = provider.base_url(protocol)
        return Model(NAMES[protocol], base_url=base_url, api_key=KEY, **options)

    return make


@pytest.fixture
def model(provider: Provider, protocol: str) -> Make:
    return maker(provider, protocol)


@pytest.fixture
def chat(provider: Provider) -> Make:
    """One protocol, where the protocol does not matter."""
    return maker(provider, "openai-chat")


def answer(user: str, response: dict[str, Any], **match: Any) -> dict[str, Any]:
    """A fixture: what is said to this message, before any tool result if not told otherwise."""
    options: dict[str, Any] = {each: match.pop(each) for each in STREAMING if each in match}
    return {"match": {"userMessage": user, **match}, "response": response, **options}


def calls(*each: tuple[str, str, str], **more: Any) -> dict[str, Any]:
    made = [{"id": call_id, "name": name, "arguments": raw} for call_id, name, raw in each]
    return {"toolCalls": made, **more}


def two_steps(user: str, first: dict[str, Any], then: str = "Done.") -> list[dict[str, Any]]:
    return [
        answer(user, first, hasToolResult=False),
        answer(user, {"content": then}, hasToolResult=True),
    ]


def results(events: Sequence[LoopEvent]) -> list[ToolResult]:
    return [event.result for event in events if isinstance(event, ToolEnded)]


def answers(events: Sequence[LoopEvent]) -> list[MessageEnded]:
    return [event for event in events if isinstance(event, MessageEnded)]


def shown(events: Sequence[LoopEvent], kind: str = "text") -> str:
    deltas = (event for event in events if isinstance(event, MessageDelta))
    return "".join(delta.text for delta in deltas if delta.kind == kind)


async def until_failure(
    model: Model, context: Context
) -> tuple[list[LoopEvent], ModelError | None]:
    """What a run gave before it failed, and how it failed."""
    events: list[LoopEvent] = []
    async with aclosing(model()(context)) as running:
        try:
            async for event in running:
                events.append(event)  # noqa: PERF401 - kept when it fails
        except ModelError as error:
            return events, error
    return events, None


def stored(messages: Sequence[Message]) -> list[Message]:
    """The messages as another process would read them."""
    read = [json.loads(seal(message).raw) for message in messages]
    assert all(entry["type"] == "message" for entry in read)
    views = [type(seal(message))(*_header(message)).view for message in messages]
    assert all(isinstance(view, Message) for view in views)
    return [view for view in views if isinstance(view, Message)]


def _header(message: Message) -> tuple[Any, ...]:
    entry = seal(message)
    return entry.id, entry.type, entry.created_at, entry.parent_id, entry.raw


async def test_a_text_turn_is_streamed(provider: Provider, model: Make) -> None:
    content = "Hello, and a text that is long enough for several pieces."
    await provider.teach(answer("hi", {"content": content}))
    events = await collect(model(system="Be brief.")(), ask("hi"))
    assert isinstance(events[0], MessageStarted)
    assert shown(events) == content
    assert sum(isinstance(event, MessageDelta) for event in events) > 1
    (ended,) = answers(events)
    assert events[-1] is ended
    assert "".join(part.text for part in ended.parts if isinstance(part, Text)) == content
    assert ended.provider["finish_reason"] == "stop"
    assert ended.provider["model_name"]
    assert "usage" in ended.provider
    assert b"Be brief." in provider.requests[0]


async def test_tools_run_side_by_side_and_each_result_comes_when_its_tool_ends(
    provider: Provider, model: Make
) -> None:
    raw = '{"city": "Rom", "days": 2}'
    first = calls(("call_slow", "slow", "{}"), ("call_fast", "fast", raw), content="I look.")
    await provider.teach(*two_steps("weather", first))
    fast_is_stored = asyncio.Event()

    async def slow() -> str:
        """Waits for the other one."""
        await fast_is_stored.wait()
        return "slow result"

    def fast(city: str, days: int = 1) -> dict[str, object]:
        """Looks at once.

        Args:
            city: Where to look.
            days: How far ahead.
        """
        return {"city": city, "days": days}

    events: list[LoopEvent] = []
    context = ask("weather")
    async with aclosing(model(tools=[slow, fast])()(context)) as running:
        async for event in running:
            context.take(event)
            events.append(event)
            if isinstance(event, ToolEnded) and event.result.call_id == "call_fast":
                fast_is_stored.set()
    assert [result.call_id for result in results(events)] == ["call_fast", "call_slow"]
    assert [result.text for result in results(events)] == ['{"city":"Rom","days":2}', "slow result"]
    first_answer, last_answer = answers(events)
    made = [part for part in first_answer.parts if isinstance(part, ToolCall)]
    assert [call.arguments for call in made] == [{}, {"city": "Rom", "days": 2}]
    assert Text("Done.") in [
        Text(part.text) for part in last_answer.parts if isinstance(part, Text)
    ]
    second = provider.requests[1].decode()
    assert second.index("slow result") < second.index("Rom\\", second.index("slow result"))
    assert b"Where to look." in provider.requests[0]


async def test_an_overloaded_provider_in_mid_turn_is_asked_again(
    provider: Provider, model: Make
) -> None:
    overloaded = {"error": {"message": "Overloaded", "type": "overloaded_error"}, "status": 529}
    await provider.teach(
        answer("go", calls(("call_1", "noop", "{}")), hasToolResult=False),
        answer("go", overloaded, hasToolResult=True, sequenceIndex=0),
        answer("go", {"content": "There."}, hasToolResult=True, sequenceIndex=1),
    )
    events = await collect(model(tools=[noop])(), ask("go"))
    assert shown(events[-4:]) or shown(events)
    assert answers(events)[-1].parts[-1].text == "There."  # type: ignore[union-attr] # a text
    assert len(provider.requests) == 3


async def test_without_retries_it_fails_clean_and_the_next_run_works(
    provider: Provider, model: Make
) -> None:
    overloaded = {"error": {"message": "Overloaded", "type": "overloaded_error"}, "status": 529}
    await provider.teach(
        answer("go", calls(("call_1", "noop", "{}")), hasToolResult=False),
        answer("go", overloaded, hasToolResult=True, sequenceIndex=0),
        answer("go", {"content": "There."}, hasToolResult=True, sequenceIndex=1),
    )
    make = model(tools=[noop], max_retries=0)
    context = ask("go")
    with pytest.raises(ModelError, match="overloaded") as failed:
        await collect(make(), context)
    assert failed.value.status == 529
    assert KEY not in str(failed.value)
    assert [type(message.parts[-1]) for message in context.added] == [ToolCall, ToolResult]
    events = await collect(make(), Context(before=stored(context.conversation)))
    assert shown(events) == "There."


async def test_a_connection_cut_in_the_middle_of_a_message_fails_and_nothing_hangs(
    provider: Provider, model: Make
) -> None:
    cut = answer("cut", {"content": "words " * 100}, truncateAfterChunks=8, latency=2)
    await provider.teach(cut, answer("again", {"content": "Whole."}))
    make = model(max_retries=0)
    async with asyncio.timeout(20):
        events, failure = await until_failure(make, ask("cut"))
    assert re.search("connection|broke off", str(failure))
    assert shown(events).startswith("words ")
    assert not answers(events)
    partial = Message("assistant", (Text(shown(events)),), end="failed")
    again = await collect(make(), ask("again", [text("cut"), partial]))
    assert shown(again) == "Whole."
    assert b"words words" in provider.requests[-1]


CUT_STREAMS = {
    "openai-chat": (
        'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":'
        '[{"index":0,"delta":{"role":"assistant","content":"half"},"finish_reason":null}]}',
        "",
    ),
    "openai-responses": (
        "event: response.output_text.delta",
        'data: {"type":"response.output_text.delta","item_id":"m","output_index":0,'
        '"content_index":0,"delta":"half","sequence_number":1}',
        "",
    ),
    "anthropic": (
        "event: message_start",
        'data: {"type":"message_start","message":{"id":"m","type":"message","role":"assistant",'
        '"model":"x","content":[],"stop_reason":null,"usage":{"input_tokens":1,"output_tokens":1}}}',
        "",
        "event: content_block_start",
        'data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}',
        "",
        "event: content_block_delta",
        'data: {"type":"content_block_delta","index":0,'
        '"delta":{"type":"text_delta","text":"half"}}',
        "",
    ),
}


async def test_a_stream_that_just_ends_is_no_answer(
    provider: Provider, model: Make, protocol: str
) -> None:
    provider.canned.append(event_stream(*CUT_STREAMS[protocol]))
    events, failure = await until_failure(model(max_retries=0), ask("x"))
    assert isinstance(failure, ModelError)
    assert shown(events) == "half"


@pytest.mark.parametrize("line", ['data: {"id": "c", "choi', "data: [1, 2]", "<html>"])
async def test_a_malformed_stream_fails_the_run(
    provider: Provider, model: Make, protocol: str, line: str
) -> None:
    event = "event: content_block_start" if protocol == "anthropic" else ""
    provider.canned.append(event_stream(event, line, "", ""))
    with pytest.raises(ModelError):
        await collect(model(max_retries=0)(), ask("x"))


SIGNATURE = "c2ln+/bmF0dXJl=="


async def test_what_the_provider_sent_goes_back_to_it_byte_for_byte(
    provider: Provider, model: Make, protocol: str
) -> None:
    first = calls(
        ("call_1", "noop", '{"b": 1.0, "a": "ü"}'),
        content="Looking.",
        reasoning="First I think.\nThen I look.",
        reasoningSignature=SIGNATURE,
        redactedThinking=["cmVkYWN0ZWQ="],
    )
    await provider.teach(*two_steps("think", first), answer("next", {"content": "Yes."}))
    context = ask("think")
    events = await collect(model(tools=[noop])(), context)
    assert shown(events, "reasoning") == "First I think.\nThen I look."
    await collect(model(tools=[noop])(), ask("next", stored(context.conversation)))
    live, later = (json.loads(body) for body in provider.requests[1:])
    items = "input" if protocol == "openai-responses" else "messages"
    shared = len(live[items])
    assert later[items][:shared] == live[items]
    sent = _assistant(live[items], protocol)
    if protocol == "anthropic":
        thinking = {"type": "thinking", "thinking": "First I think.\nThen I look."}
        assert {"type": "redacted_thinking", "data": "cmVkYWN0ZWQ="} in sent
        assert {**thinking, "signature": SIGNATURE} in sent
        assert [block["input"] for block in sent if block["type"] == "tool_use"] == [
            {"b": 1.0, "a": "ü"}
        ]
    elif protocol == "openai-responses":
        reasoning = next(part for part in answers(events)[0].parts if isinstance(part, Reasoning))
        (item,) = (item for item in sent if item.get("type") == "reasoning")
        assert item["id"] == reasoning.provider["id"]
        assert item["encrypted_content"] == reasoning.provider["signature"]
        (called,) = (item for item in sent if item.get("type") == "function_call")
        assert called["arguments"] == '{"b":1.0,"a":"ü"}'
    else:
        assert sent[0]["reasoning_content"] == "First I think.\nThen I look."
        assert sent[0]["tool_calls"][0]["function"]["arguments"] == '{"b":1.0,"a":"ü"}'


def _assistant(items: list[dict[str, Any]], protocol: str) -> list[dict[str, Any]]:
    if protocol == "openai-responses":
        return items
    made = [item for item in items if item["role"] == "assistant"]
    return made[0]["content"] if protocol == "anthropic" else made


@pytest.mark.parametrize("other", list(NAMES))
async def test_another_provider_gets_the_text_and_the_calls_and_no_reasoning(
    provider: Provider, model: Make, protocol: str, other: str
) -> None:
    first = calls(
        ("call_1", "noop", "{}"), content="Looking.", reasoning="thoughts", reasoningSignature="S1"
    )
    await provider.teach(*two_steps("think", first), answer("next", {"content": "Yes."}))
    context = ask("think")
    await collect(model(tools=[noop])(), context)
    make = maker(provider, other)
    events = await collect(make(tools=[noop])(), ask("next", stored(context.conversation)))
    assert shown(events) == "Yes."
    body = provider.requests[-1].decode()
    assert "Looking." in body
    assert "call_1" in body
    assert ("thoughts" in body) == (other == protocol)


async def test_stopped_messages_and_interrupted_calls_can_be_sent(
    provider: Provider, model: Make
) -> None:
    await provider.teach(answer("and now", {"content": "Yes."}))
    interrupted = ToolResult(
        "call_9", (Text("interrupted"),), name="noop", is_error=True, interrupted=True
    )
    before = [
        Message("system", (Text("You are kind."),)),
        text("one"),
        Message("assistant", (Reasoning("unsigned thoughts"), Text("half an ans")), end="stopped"),
        text("two"),
        Message("assistant", (ToolCall("call_9", "noop", "not {json"),)),
        Message("tool", (interrupted,)),
        Message("assistant", (), end="stopped"),
        Message("assistant", (Reasoning("only thoughts"),), end="stopped"),
    ]
    events = await collect(model(tools=[noop])(), ask("and now", before))
    assert shown(events) == "Yes."
    body = provider.requests[0].decode()
    assert "half an ans" in body
    assert "You are kind." in body
    assert "thoughts" not in body


async def test_a_summary_offers_no_tool_and_tells_calls_as_text(
    provider: Provider, model: Make
) -> None:
    await provider.teach(answer("summarise", {"content": "In short."}))
    before = [
        text("one"),
        Message("assistant", (Text("I look"), ToolCall("call_1", "noop", {"a": 1}))),
        Message("tool", (ToolResult("call_1", (Text("found"),), name="noop"),)),
    ]
    events = await collect(model(tools=[noop])(), ask("summarise", before, purpose="summary"))
    assert [type(event) for event in events if not isinstance(event, MessageDelta)] == [
        MessageStarted,
        MessageEnded,
    ]
    request = json.loads(provider.requests[0])
    assert not request.get("tools")
    body = provider.requests[0].decode()
    assert "found" in body
    assert "call_1" not in body


async def test_closing_the_loop_cancels_every_tool(provider: Provider, model: Make) -> None:
    cancelled: list[str] = []

    async def wait(name: str) -> None:
        """Waits for ever."""
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(name)
            raise

    first = calls(("call_1", "wait", '{"name":"a"}'), ("call_2", "wait", '{"name":"b"}'))
    await provider.teach(answer("go", first))
    others = asyncio.all_tasks()
    async with asyncio.timeout(20):
        task = asyncio.create_task(collect(model(tools=[wait])(), ask("go")))
        while sum("_run_one" in repr(each) for each in asyncio.all_tasks()) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert sorted(cancelled) == ["a", "b"]
    await provider.settle()
    await quiet()
    assert asyncio.all_tasks() <= others


async def test_closing_the_loop_in_mid_message_ends_the_request(
    provider: Provider, model: Make
) -> None:
    await provider.teach(answer("long", {"content": "words " * 500}, latency=20))
    async with asyncio.timeout(20):
        async with aclosing(model()()(ask("long"))) as running:
            async for event in running:
                if isinstance(event, MessageDelta):
                    break
        assert provider.is_serving
        await provider.settle()


async def test_a_model_that_calls_tools_for_ever_is_stopped(provider: Provider, chat: Make) -> None:
    await provider.teach(answer("go", calls(("call_1", "noop", "{}"))))
    context = ask("go")
    with pytest.raises(LoopError, match="max_steps"):
        await collect(chat(tools=[noop], max_steps=3)(), context)
    assert len(provider.requests) == 3
    assert [message.role for message in context.added] == ["assistant", "tool"] * 3


async def test_results_that_a_run_begins_with_are_no_answers(
    provider: Provider, chat: Make
) -> None:
    await provider.teach(answer("go", {"content": "Done."}))
    call = ToolCall("call_1", "noop", {})
    before = [text("go"), Message("assistant", (call,))]
    context = Context(before=before, answers={"call_1": Allowed({})})
    events = await collect(chat(tools=[noop], max_steps=1)(), context)
    assert shown(events) == "Done."


async def test_an_empty_answer_is_a_message_without_parts_and_does_no_harm(
    provider: Provider, model: Make, protocol: str
) -> None:
    provider.canned.append(EMPTY[protocol])
    await provider.teach(answer("next", {"content": "Yes."}))
    context = ask("x")
    events = await collect(model()(), context)
    assert [type(event) for event in events] == [MessageStarted, MessageEnded]
    again = await collect(model()(), ask("next", stored(context.conversation)))
    assert shown(again) == "Yes."


EMPTY = {
    "openai-chat": event_stream(
        'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":'
        '[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":"stop"}]}',
        "",
        "data: [DONE]",
        "",
    ),
    "openai-responses": event_stream(
        "event: response.completed",
        'data: {"type":"response.completed","sequence_number":1,"response":{"id":"r","object":'
        '"response","created_at":1,"model":"m","status":"completed","output":[],"tools":[],'
        '"tool_choice":"auto","parallel_tool_calls":true}}',
        "",
    ),
    "anthropic": event_stream(
        "event: message_start",
        'data: {"type":"message_start","message":{"id":"m","type":"message","role":"assistant",'
        '"model":"x","content":[],"stop_reason":null,"usage":{"input_tokens":1,"output_tokens":1}}}',
        "",
        "event: message_delta",
        'data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},'
        '"usage":{"output_tokens":1}}',
        "",
        "event: message_stop",
        'data: {"type":"message_stop"}',
        "",
    ),
}


@pytest.mark.parametrize(
    ("status", "kind", "advice"),
    [
        (401, "authentication_error", "key"),
        (404, "not_found_error", "name"),
        (429, "rate_limit_error", "limit"),
        (500, "api_error", "again"),
    ],
)
async def test_a_refusal_says_what_happened_and_what_to_do(
    provider: Provider, model: Make, status: int, kind: str, advice: str
) -> None:
    said = f"Sorry about {KEY}."
    await provider.teach(answer("x", {"error": {"message": said, "type": kind}, "status": status}))
    with pytest.raises(ModelError, match=advice) as failed:
        await collect(model(max_retries=0)(), ask("x"))
    assert failed.value.status == status
    assert "Sorry about" in str(failed.value)
    assert KEY not in str(failed.value)


async def test_a_server_that_is_not_there_fails_the_run() -> None:
    model = Model(NAMES["openai-chat"], base_url="http://127.0.0.1:9/v1", max_retries=0)
    with pytest.raises(ModelError, match="connection"):
        await collect(model(), ask("x"))


def noop(a: object = None, b: object = None) -> str:
    """Does nothing."""
    return "nothing"
