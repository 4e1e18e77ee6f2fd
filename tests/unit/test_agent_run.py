"""Running: one at a time, what is stored before the loop starts, and what is never stored."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

import perdure
from perdure import Message, Text, ToolCall, ToolResult
from perdure.errors import (
    ConfigurationError,
    EntryNotFoundError,
    NoLoopError,
    RunEndedError,
    SessionBusyError,
)
from perdure.events import AgentStart, LifecycleEvent
from perdure.fact import SessionStarted
from perdure.loop import LoopContext
from perdure.stores.memory import MemoryStore
from tests.unit.checks import answers, check_agrees, check_model_view, said
from tests.unit.looping import Probe, answer, factory
from tests.unit.opened import Note, forever, opened, started


async def test_the_input_is_stored_before_the_loop_starts_repairs_first() -> None:
    seen: list[list[str]] = []

    async def look() -> None:
        seen.append([type(each.view).__name__ for each in await store.load_entries("s")])

    agent, store = await opened(factory(look, answer("x")))
    await agent.append(Message("assistant", (ToolCall("a", "t"),)))
    events = [event async for event in agent.run("one", perdure.text("two", meta=True))]
    assert seen == [["Message"] * 4]
    assert isinstance(start := events[0], AgentStart)
    assert [each.seq for each in start.receipt.entries] == [2, 3, 4]
    assert start.leaf_id == start.receipt.entries[-1].id
    assert said(agent.messages()) == ["one", "two", "x"]
    check_model_view(agent.messages())


async def test_a_factory_that_raises_leaves_the_transcript_as_it_was() -> None:
    def broken() -> Any:
        raise ZeroDivisionError

    agent, store = await opened(broken)
    await agent.append(Message("assistant", (ToolCall("a", "t"),)))
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            await agent.run("hi")
        assert len(await store.load_entries("s")) == 1
    await agent.append("works")
    await check_agrees(agent, store)


async def test_without_input_a_run_goes_on_from_the_leaf() -> None:
    probe = Probe()
    agent, store = await opened(probe)
    await agent.append("hi")
    await agent.run()
    assert said(probe.views[0]) == ["hi"]
    await check_agrees(agent, store)


async def test_what_is_no_loop_factory_and_no_store_is_refused_before_anything() -> None:
    store = MemoryStore()
    loop = factory(answer("hi"))()
    with pytest.raises(ConfigurationError, match="is a loop, not a loop factory"):
        await perdure.open("s", loop, store=store)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"perdure\.open_store\('memory://'\)"):
        await perdure.open("s", store="memory://")  # type: ignore[arg-type]
    assert not await store.session_ids()


async def test_without_a_loop_everything_works_but_running() -> None:
    agent, store = await opened()
    await agent.append("a")
    with pytest.raises(NoLoopError):
        agent.run("hi")
    with pytest.raises(NoLoopError):
        await agent.compact(keep_turns=0)
    assert len(await store.load_entries("s")) == 1
    agent.branch(None)
    await agent.append("b")
    child = await agent.fork("child")
    with pytest.raises(NoLoopError):
        child.run()
    await check_agrees(child, store)


async def test_a_second_run_while_one_is_active_is_refused_and_stores_nothing() -> None:
    agent, store = await opened(forever())
    run, events = await started(agent, "first")
    stored = await store.load_entries("s")
    leaf_id = agent.leaf_id
    with pytest.raises(SessionBusyError):
        await agent.run("second")
    with pytest.raises(SessionBusyError):
        await agent.compact(keep_turns=0, summary="s")
    with pytest.raises(SessionBusyError):
        agent.branch(None)
    assert await store.load_entries("s") == stored
    assert agent.leaf_id == leaf_id
    await events.aclose()
    with pytest.raises(RunEndedError):
        await run
    await check_agrees(agent, store)


async def test_of_two_runs_that_start_at_once_one_is_refused() -> None:
    agent, store = await opened(Probe())

    async def wait(content: str) -> object:
        return await agent.run(content)

    results = await asyncio.gather(wait("a"), wait("b"), return_exceptions=True)
    assert [isinstance(each, SessionBusyError) for each in results].count(True) == 1
    await check_agrees(agent, store)


async def test_the_next_verb_waits_for_a_run_that_was_left() -> None:
    for verb in ("append", "run", "fork", "compact", "repair", "branch"):
        probe = Probe()
        agent, store = await opened(probe)
        first = await agent.append("zero")
        async for event in agent.run("hi"):
            if event.type == "tool_start":
                break
        assert not probe.is_quiet
        match verb:
            case "append":
                await agent.append("x")
            case "run":
                await agent.run("x")
            case "fork":
                await agent.fork("child")
            case "compact":
                await agent.compact(summary="S", keep_turns=0)
            case "repair":
                await agent.repair()
            case "branch":
                await agent.branch(first.entries[0].id)
                assert agent.leaf_id == first.entries[0].id
        assert probe.is_quiet
        if verb == "branch":
            check_model_view(agent.messages())
        else:
            await check_agrees(agent, store)


async def test_a_branch_after_a_run_was_left_happens_even_if_nobody_awaits_it() -> None:
    published: list[LifecycleEvent] = []
    agent, store = await opened(forever(), published.append)
    first = await agent.append("zero")
    _, events = await started(agent, "hi")
    del events
    agent.branch(first.entries[0].id)
    with pytest.raises(EntryNotFoundError):
        agent.branch("nowhere")
    await agent.append("other")
    assert said(agent.messages()) == ["zero", "other"]
    assert [event.type for event in published] == ["session_init", "session_branched"]
    await check_agrees(agent, store)


async def test_an_ephemeral_message_is_seen_once_and_stored_never() -> None:
    probe = Probe()
    agent, store = await opened(probe)
    await agent.append("before")
    run = agent.run(
        "one", perdure.ephemeral("whisper"), Note("n"), SessionStarted(source="s"), "two"
    )
    events = [event async for event in run]
    assert said(probe.views[0]) == ["before", "one", "whisper", "two"]
    await agent.run("next")
    assert "whisper" not in said(probe.views[1])
    assert all(b"whisper" not in each.raw for each in await store.load_entries("s"))
    for event in events:
        receipt = getattr(event, "receipt", None)
        assert receipt is None or all(b"whisper" not in each.raw for each in receipt.entries)
    await check_agrees(agent, store)


async def test_an_ephemeral_message_alone_is_an_input() -> None:
    probe = Probe()
    agent, _ = await opened(probe)
    events = [event async for event in agent.run(perdure.ephemeral(perdure.text("whisper")))]
    assert said(probe.views[0]) == ["whisper"]
    assert isinstance(events[0], AgentStart)
    assert (events[0].receipt.entries, events[0].leaf_id) == ((), None)


async def test_an_ephemeral_message_never_breaks_the_pairs() -> None:
    contexts: list[Sequence[Message]] = []

    async def loop(context: LoopContext) -> Any:
        contexts.append(await context.messages())
        yield answer("x")

    agent, _ = await opened(lambda: loop)
    await agent.append(Message("assistant", (ToolCall("a", "t"),)))
    real = Message("tool", (ToolResult("a", (Text("r"),)),))
    strange = Message("assistant", (ToolCall("z", "t"),))
    await agent.run(real, perdure.ephemeral("whisper"), perdure.ephemeral(strange))
    check_model_view(contexts[0])
    assert answers(contexts[0])[0] == ("a", "r")
