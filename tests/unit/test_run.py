"""The driver of loops: what is stored when, and what is kept of a run that does not end well."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest

import perdure
from perdure import DurableAgent, LoopError, Message, RunEndedError, Text, ToolCall, ToolResult
from perdure.codec import seal
from perdure.entry import Reasoning
from perdure.errors import AppendRejectedError
from perdure.events import (
    AgentStart,
    MessageEnd,
    MessageUpdate,
    RunEvent,
    RunNotice,
    ToolEnd,
    ToolStart,
)
from perdure.fact import ToolDispatched
from perdure.loop import (
    LoopContext,
    MessageDelta,
    MessageEnded,
    MessageStarted,
    Notice,
    ToolDelta,
    ToolEnded,
    ToolStarted,
)
from perdure.stores.memory import MemoryStore
from tests.unit.checks import answers, check_agrees, check_at_rest, said
from tests.unit.looping import Probe, answer, factory, result


async def opened(*events: Any) -> tuple[DurableAgent, MemoryStore]:
    store = MemoryStore()
    return await perdure.open("s", factory(*events), store=store), store


def untyped(value: Any) -> Any:
    """What somebody else's loop may put where its type says something else."""
    return value


async def test_every_event_is_a_receipt_of_what_the_store_has() -> None:
    store = MemoryStore()
    agent = await perdure.open("s", Probe(), store=store)
    events: list[RunEvent] = []
    async for event in agent.run("hi"):
        events.append(event)
        receipt = getattr(event, "receipt", None)
        if receipt is not None:
            stored = await store.load_entries("s")
            for each in receipt.entries:
                assert stored[each.seq - 1] == each
            assert getattr(event, "leaf_id", None) in {each.id for each in stored}
    assert [event.type for event in events] == [
        "agent_start",
        "message_start",
        "message_update",
        "message_update",
        "message_end",
        "tool_start",
        "message_update",
        "tool_start",
        "tool_end",
        "tool_end",
        "message_start",
        "message_update",
        "message_update",
        "message_end",
        "agent_end",
    ]
    await check_agrees(agent, store)


async def test_updates_name_the_entry_to_come_and_their_offset() -> None:
    agent, _ = await opened(
        MessageDelta("é😀", kind="reasoning"),
        MessageDelta("one ", part=1),
        MessageDelta("two", part=1),
        MessageEnded((Reasoning("é😀"), Text("one two"))),
    )
    events = [event async for event in agent.run("hi")]
    updates = [event for event in events if isinstance(event, MessageUpdate)]
    (end,) = (event for event in events if isinstance(event, MessageEnd))
    assert [(each.part, each.offset, each.text) for each in updates] == [
        (0, 0, "é😀"),
        (1, 0, "one "),
        (1, 4, "two"),
    ]
    assert {each.message_id for each in updates} == {end.message.id} == {end.leaf_id}


async def test_a_notice_is_told_at_any_moment_and_stored_nowhere() -> None:
    agent, store = await opened(
        Notice("first"),
        MessageDelta("a"),
        Notice("in the middle\ud800"),
        answer("a", "c"),
        ToolStarted("c"),
        Notice("with a call open"),
        result("c"),
    )
    events = [event async for event in agent.run("hi")]
    told = [event for event in events if isinstance(event, RunNotice)]
    assert [each.text for each in told] == ["first", "in the middle\ufffd", "with a call open"]
    assert isinstance(start := events[0], AgentStart)
    assert {each.turn_id for each in told} == {start.turn_id}
    assert b"middle" not in b"".join(e.raw for e in await store.load_entries("s"))


async def test_updates_of_a_tools_output_name_its_call() -> None:
    tools = (ToolStarted("a"), ToolDelta("a", "more"), result("a"))
    agent, _ = await opened(MessageDelta("x"), answer("x", "a"), *tools)
    updates = [event async for event in agent.run("go") if isinstance(event, MessageUpdate)]
    assert [(update.kind, update.call_id) for update in updates] == [
        ("text", None),
        ("output", "a"),
    ]


async def test_calls_and_their_dispatch_are_durable_before_a_tool_starts() -> None:
    store = MemoryStore()
    seen: list[list[str]] = []
    keys: list[str] = []

    async def loop(context: LoopContext) -> Any:
        yield answer("calling", "a")
        seen.append([entry.type for entry in await store.load_entries("s")])
        keys.append(context.idempotency_key("a"))
        with pytest.raises(LoopError):
            context.idempotency_key("b")
        yield result("a")

    agent = await perdure.open("s", lambda: loop, store=store)
    events = [event async for event in agent.run("hi")]
    assert seen == [["message", "message", "tool_dispatched"]]
    fact = next(each.view for each in agent.entries() if each.type == "tool_dispatched")
    assert isinstance(fact, ToolDispatched)
    assert (fact.call_id, fact.arguments, [fact.idempotency_key]) == ("a", {"of": "a"}, keys)
    (start,) = (event for event in events if isinstance(event, ToolStart))
    (end,) = (event for event in events if isinstance(event, ToolEnd))
    assert start.message_id == end.leaf_id
    assert fact.turn_id == events[0].turn_id  # type: ignore[union-attr]


async def test_parallel_results_are_stored_each_when_its_tool_ends() -> None:
    store = MemoryStore()
    counts: list[int] = []

    async def count() -> None:
        counts.append(len(await store.load_entries("s")))

    calls = MessageEnded((ToolCall("a", "t"), ToolCall("b", "t")))
    events = (calls, count, result("b"), count, result("a"), count)
    agent = await perdure.open("s", factory(*events), store=store)
    await agent.run("hi")
    assert counts == [4, 5, 6]
    assert [call_id for call_id, _ in answers(agent.messages())] == ["a", "b"]


async def test_what_a_consumer_sees_of_a_result_is_what_is_stored() -> None:
    agent, _ = await opened(answer("x", "a"), result("a", "half a \ud83d character"))
    events = [event async for event in agent.run("hi")]
    (end,) = (event for event in events if isinstance(event, ToolEnd))
    assert end.result.text == "half a \ufffd character"


async def test_a_providers_own_data_comes_back_byte_for_byte() -> None:
    data = {"signature": "AbC==", "n": [1.5, None, {"é": "\u2028"}]}
    agent, store = await opened(MessageEnded((Reasoning("r", provider=data),), provider=data))
    await agent.run("hi")
    view = (await perdure.open("s", store=store)).messages()[-1]
    assert view.provider == data
    assert isinstance(part := view.parts[0], Reasoning)
    assert part.provider == data


FAILURES = {
    "before a message": ((), [], []),
    "in mid-message": (
        (MessageDelta("half a"), MessageDelta(" sentence")),
        ["half a sentence"],
        [],
    ),
    "after a message": ((answer("whole"),), ["whole"], []),
    "with calls open": (
        (MessageEnded((ToolCall("a", "t"), ToolCall("b", "t"))), result("b")),
        [],
        [("a", "failed: "), ("b", "result")],
    ),
    "in mid-tool": (
        (answer("x", "a"), ToolStarted("a"), ToolDelta("a", "partial output")),
        ["x"],
        [("a", "partial output\n[failed: ")],
    ),
}


@pytest.mark.parametrize("case", FAILURES)
async def test_a_loop_that_raises_fails_the_run_and_what_was_shown_is_kept(case: str) -> None:
    events, texts, results = FAILURES[case]
    failure = ZeroDivisionError("the loop's own")
    agent, store = await opened(*events, failure)
    run = agent.run("hi")
    with pytest.raises(ZeroDivisionError) as iterated:
        async for _ in run:
            pass
    with pytest.raises(ZeroDivisionError) as awaited:
        await run
    assert iterated.value is awaited.value is failure
    stored = [each.view for each in agent.entries()]
    messages = [view for view in stored if isinstance(view, Message)]
    assistants = [message for message in messages if message.role == "assistant"]
    assert said(assistants) == texts
    if case == "in mid-message":
        assert assistants[-1].end == "failed"
    found = answers(agent.messages())
    assert [call_id for call_id, _ in found] == [call_id for call_id, _ in results]
    for (_, text), (_, start) in zip(found, results, strict=True):
        assert text.startswith(start)
    check_at_rest(agent)
    await check_agrees(agent, store)


@pytest.mark.parametrize(
    "events",
    [
        (MessageStarted(), MessageStarted()),
        (MessageStarted(),),
        (MessageDelta("half"),),
        (ToolStarted("nobody"),),
        (ToolDelta("nobody", "x"),),
        (result("nobody"),),
        (answer("x", "a"),),
        (answer("x", "a"), MessageStarted()),
        (answer("x", "a"), MessageDelta("x")),
        (answer("x", "a"), ToolStarted("a"), ToolStarted("a")),
        (answer("x", "a"), result("a"), result("a")),
        (MessageEnded((ToolCall("a", "t"), ToolCall("a", "t"))),),
        ("not an event",),
        (None,),
        (MessageDelta(untyped(None)),),
        (MessageDelta("x", kind=untyped("sung")),),
        (MessageEnded(untyped(None)),),
        (MessageEnded((ToolCall(untyped([]), "t"),)),),
        (answer("x", "a"), ToolDelta("a", untyped(b"x"))),
        (answer("x", "a"), ToolEnded(untyped("done"))),
    ],
)
async def test_a_loop_that_breaks_its_contract_is_a_loop_error(events: tuple[Any, ...]) -> None:
    agent, store = await opened(*events)
    with pytest.raises(LoopError):
        await agent.run("hi")
    check_at_rest(agent)
    await check_agrees(agent, store)


async def test_what_was_shown_is_kept_whatever_a_loop_yields_next() -> None:
    broken = MessageDelta("x", part=untyped("second"))
    agent, store = await opened(MessageStarted(), MessageDelta("shown"), broken)
    with pytest.raises(LoopError):
        await agent.run("hi")
    assert said(agent.messages()) == ["hi", "shown"]
    await check_agrees(agent, store)


@pytest.mark.parametrize("broken", [lambda context: None, lambda context: asyncio.sleep(0)])
async def test_a_loop_that_is_no_async_generator_is_a_loop_error(
    broken: Callable[[LoopContext], Any],
) -> None:
    agent = await perdure.open("s", lambda: broken)
    with pytest.raises(LoopError, match="async generator"):
        await agent.run("hi")


async def test_what_the_store_refuses_fails_the_run_and_the_rest_is_kept() -> None:
    agent, store = await opened(MessageDelta("shown"), MessageEnded((Text("x"), object())))  # type: ignore[arg-type]
    with pytest.raises(AppendRejectedError):
        await agent.run("hi")
    assert said(agent.messages()) == ["hi", "shown"]
    await check_agrees(agent, store)


async def test_a_loop_that_swallows_its_cancellation_is_ended_at_its_next_event() -> None:
    stubborn = asyncio.Event()

    async def loop(context: LoopContext) -> Any:
        yield answer("x", "a")
        yield ToolStarted("a")
        with contextlib.suppress(asyncio.CancelledError):
            await stubborn.wait()
        yield result("a", "after all")
        yield answer("never")

    store = MemoryStore()
    agent = await perdure.open("s", lambda: loop, store=store)
    run = agent.run("hi")
    async for event in run:
        if event.type == "tool_start":
            break
    with pytest.raises(RunEndedError):
        await run
    assert answers(agent.messages()) == [("a", "after all")]
    assert "never" not in said(agent.messages())
    await check_agrees(agent, store)


async def test_a_stopped_run_keeps_the_text_and_interrupts_its_calls() -> None:
    agent, store = await opened(MessageDelta("half"), asyncio.Event().wait)
    run = agent.run("hi")
    async for event in run:
        if isinstance(event, MessageUpdate):
            break
    with pytest.raises(RunEndedError):
        await run
    view = agent.messages()[-1]
    assert (view.text, view.end) == ("half", "stopped")
    assert view.id == event.message_id  # type: ignore[union-attr]
    await check_agrees(agent, store)

    agent, store = await opened(answer("x", "a"), ToolDelta("a", "out"), asyncio.Event().wait)
    async for event in agent.run("hi"):
        if isinstance(event, MessageUpdate):
            break
    await agent.append("next")
    ((call_id, text),) = answers(agent.messages())
    assert call_id == "a"
    assert text.startswith("out\n[stopped: ")
    assert said(agent.messages())[-1] == "next"
    await check_agrees(agent, store)


async def test_a_result_that_cannot_be_stored_fails_its_call_and_no_more() -> None:
    endless: list[object] = []
    for _ in range(300):
        endless = [endless]
    refused = ToolEnded(ToolResult("a", (Text("fine"),), name="tool", provider=endless))
    agent, store = await opened(answer("x", "a"), ToolStarted("a"), refused, answer("and on"))
    messages = await agent.run("go")
    (told,) = messages[1].tool_results
    assert told.is_error
    assert "cannot be stored" in told.text
    assert messages[2].text == "and on"
    await check_agrees(agent, store)


async def test_a_loop_gets_the_view_and_the_input_of_its_run() -> None:
    contexts: list[LoopContext] = []

    async def loop(context: LoopContext) -> Any:
        contexts.append(context)
        await agent.append("meanwhile")
        assert said(await context.messages())[-1] == "now"
        yield answer("x")

    agent = await perdure.open("s", lambda: loop)
    await agent.append("before")
    await agent.run(perdure.text("hidden", meta=True), "now")
    (context,) = contexts
    assert context.session_id == "s"
    assert context.purpose == "turn"
    assert said(context.input) == ["hidden", "now"]
    assert said(await context.messages()) == ["before", "hidden", "now"]
    assert [seal(message) for message in context.input] == [
        each.entry for each in agent.entries()[1:3]
    ]
