"""A closed agent refuses every verb, and leaves nothing running."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import perdure
from perdure.errors import (
    RunEndedError,
    SessionClosedError,
)
from perdure.loop import MessageDelta
from tests.unit.checks import answers, check_agrees, check_at_rest, said
from tests.unit.looping import Probe, answer, factory
from tests.unit.opened import forever, opened, started


async def test_a_closed_agent_refuses_every_verb_and_the_store_stays_open() -> None:
    agent, store = await opened(Probe())
    await agent.append("a")
    async with agent:
        await agent.run("hi")
    await agent.close()
    verbs: list[Callable[[], Any]] = [
        lambda: agent.append("x"),
        agent.repair,
        lambda: agent.fork("child"),
        lambda: agent.compact(summary="S"),
        agent.__aenter__,
    ]
    for verb in verbs:
        with pytest.raises(SessionClosedError):
            await verb()
    looks: list[Callable[[], Any]] = [
        lambda: agent.run("x"),
        lambda: agent.branch(None),
        agent.entries,
        agent.transcript,
        agent.messages,
    ]
    for look in looks:
        with pytest.raises(SessionClosedError):
            look()
    assert len(await store.load_entries("s")) == 8


async def test_a_run_that_was_not_started_before_the_close_is_refused() -> None:
    agent, store = await opened(Probe())
    run = agent.run("hi")
    await agent.close()
    with pytest.raises(SessionClosedError):
        await run
    assert await store.load_entries("s") == ()


async def test_leaving_the_block_ends_a_run_in_progress() -> None:
    agent, store = await opened(forever())
    async with agent:
        run, events = await started(agent, "hi")
    with pytest.raises(RunEndedError):
        await run
    with pytest.raises(RunEndedError):
        await anext(events)
    view = (await perdure.open("s", store=store)).messages()
    assert (view[-1].text, view[-1].end) == ("half", "stopped")


async def test_a_tool_may_close_the_agent_that_runs_it() -> None:
    async def tool() -> None:
        await agent.close()
        await asyncio.Event().wait()

    agent, store = await opened(factory(answer("x", "a"), tool))
    with pytest.raises(RunEndedError):
        await agent.run("hi")
    again = await perdure.open("s", store=store)
    assert [call_id for call_id, _ in answers(again.messages())] == ["a"]
    check_at_rest(again)


async def test_a_tool_that_is_cut_off_may_still_append() -> None:
    async def tool() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await agent.append("last words")

    agent, store = await opened(factory(MessageDelta("half"), tool))
    _, events = await started(agent, "hi")
    await asyncio.sleep(0)
    await events.aclose()
    assert said(agent.messages()) == ["hi", "last words", "half"]
    await check_agrees(agent, store)
