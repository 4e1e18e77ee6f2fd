"""A compaction appends: it removes nothing, and whatever meets it is not lost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure import Text
from perdure.errors import (
    LoopError,
    RunEndedError,
    SessionBusyError,
)
from perdure.events import LifecycleEvent
from perdure.fact import LeafMoved
from perdure.loop import MessageEnded
from tests.unit.checks import check_agrees, said
from tests.unit.looping import Probe, answer, factory
from tests.unit.opened import conversation, forever, opened


async def test_a_compaction_appends_and_branching_before_it_gives_everything_back() -> None:
    published: list[LifecycleEvent] = []
    agent, store = await opened(publisher=published.append)
    await conversation(agent, 6)
    whole, leaf_id = agent.messages(), agent.leaf_id
    receipt = await agent.compact(keep_turns=2, summary="S")
    assert receipt is not None
    assert (len(receipt.entries), receipt.entries[0].type) == (1, "compaction")
    view = agent.messages()
    assert view[0].text.endswith("S")
    assert [message.text for message in view if message.role == "user"][1:] == ["q4", "q5"]
    assert len(agent.transcript()) == 25
    await check_agrees(agent, store)
    again = await agent.compact(keep_turns=1, summary="T")
    assert again is not None
    assert agent.messages()[0].text.endswith("T")
    await check_agrees(agent, store)
    agent.branch(leaf_id)
    assert agent.messages() == whole
    assert [event.type for event in published] == [
        "session_init",
        "session_compacted",
        "session_compacted",
        "session_branched",
    ]


async def test_with_nothing_to_summarise_nothing_is_appended_or_published() -> None:
    published: list[LifecycleEvent] = []
    agent, store = await opened(Probe(), published.append)
    assert await agent.compact() is None
    await conversation(agent, 4)
    assert await agent.compact() is None
    assert await agent.compact(keep_turns=0, summary="S") is not None
    assert await agent.compact(keep_turns=0) is None
    assert len(await store.load_entries("s")) == 17
    assert [event.type for event in published] == ["session_init", "session_compacted"]


async def test_the_summary_comes_from_a_throw_away_run_of_the_loop() -> None:
    probe = Probe()
    agent, store = await opened(probe)
    await conversation(agent, 3)
    await agent.compact(keep_turns=1, prompt="Sum up!")
    assert said(probe.views[0])[0] == "q0"
    assert said(probe.views[0])[-2:] == ["a1", "Sum up!"]
    assert agent.messages()[0].text.endswith("a summary")
    assert len(agent.entries()) == 13
    assert probe.is_quiet
    await agent.compact(keep_turns=0)
    assert "a summary" in probe.views[1][0].text
    await check_agrees(agent, store)


@pytest.mark.parametrize(
    ("events", "error"),
    [
        ((), LoopError),
        ((MessageEnded((Text("  \n"),)),), LoopError),
        ((answer("x", "a"),), LoopError),
        ((ZeroDivisionError(),), ZeroDivisionError),
    ],
)
async def test_a_summary_that_fails_stores_and_publishes_nothing(
    events: tuple[Any, ...], error: type[Exception]
) -> None:
    published: list[LifecycleEvent] = []
    went_on: list[int] = []
    agent, store = await opened(factory(*events, lambda: went_on.append(1)), published.append)
    await conversation(agent, 2)
    with pytest.raises(error):
        await agent.compact(keep_turns=1)
    assert len(await store.load_entries("s")) == 8
    assert [event.type for event in published] == ["session_init"]
    assert bool(went_on) == (error is LoopError and not any("call" in repr(e) for e in events))
    await agent.append("works")
    await check_agrees(agent, store)


async def test_what_is_appended_while_a_summary_is_made_is_not_lost() -> None:
    async def meanwhile() -> None:
        await agent.append("meanwhile")

    agent, store = await opened(factory(meanwhile, answer("S")))
    await conversation(agent, 2)
    await agent.compact(keep_turns=0)
    assert said(agent.messages())[1:] == ["meanwhile"]
    await check_agrees(agent, store)


async def test_a_leaf_that_moves_while_a_summary_is_made_wins() -> None:
    async def meanwhile() -> None:
        await agent.append(LeafMoved(from_id=None, leaf_id=None))

    agent, store = await opened(factory(meanwhile, answer("S")))
    await conversation(agent, 2)
    with pytest.raises(SessionBusyError):
        await agent.compact(keep_turns=0)
    assert all(each.type != "compaction" for each in await store.load_entries("s"))


async def test_a_compaction_can_be_cancelled_at_any_step() -> None:
    for step in range(1, 200):
        probe, published = Probe(), list[LifecycleEvent]()
        agent, store = await opened(probe, published.append)
        await conversation(agent, 2)
        task = asyncio.create_task(agent.compact(keep_turns=1))
        for _ in range(step):
            await asyncio.sleep(0)
        if task.done():
            await task
            break
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert probe.is_quiet
        stored = sum(each.type == "compaction" for each in await store.load_entries("s"))
        assert stored == sum(event.type == "session_compacted" for event in published)
        await check_agrees(agent, store)
        await agent.run("next")
        await check_agrees(agent, store)
    else:
        pytest.fail("the compaction never went through")
    assert step > 5


async def test_closing_the_agent_ends_a_compaction() -> None:
    agent, store = await opened(forever())
    await conversation(agent, 2)
    task = asyncio.create_task(agent.compact(keep_turns=1))
    for _ in range(10):
        await asyncio.sleep(0)
    await agent.close()
    with pytest.raises(RunEndedError):
        await task
    assert len(await store.load_entries("s")) == 8
