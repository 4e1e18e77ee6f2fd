"""The model loop over real protocols: a provider on this machine, three ways to speak to it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

import pytest

from perdure.entry import Message, Reasoning, Text, ToolCall, ToolResult, text
from perdure.errors import LoopError
from perdure.loop import Allowed, LoopEvent, MessageDelta, MessageEnded, MessageStarted, ToolEnded
from tests.loops.handmade import Context, ask, collect
from tests.loops.modelling import NAMES, Make, answer, answers, calls, maker, noop, shown, stored
from tests.provider.mock import Provider, event_stream, quiet


@pytest.fixture
def chat(provider: Provider) -> Make:
    """One protocol, where the protocol does not matter."""
    return maker(provider, "openai-chat")


def two_steps(user: str, first: dict[str, Any], then: str = "Done.") -> list[dict[str, Any]]:
    return [
        answer(user, first, hasToolResult=False),
        answer(user, {"content": then}, hasToolResult=True),
    ]


def results(events: Sequence[LoopEvent]) -> list[ToolResult]:
    return [event.result for event in events if isinstance(event, ToolEnded)]


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
