"""The process ends at every single step of a workflow, and it still ends as it should.

A step that ended never runs again, every attempt has one end, and every turn is in the history.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from perdure.errors import AppendUncertainError, StoreUnavailableError
from perdure.fact import StepEnded, StepStarted, TurnStarted, WorkflowEnded
from perdure.stores.memory import MemoryStore
from perdure.workflow import Check, Retry, Step
from tests.server.test_routine_crash import Mortal, When
from tests.server.workflow_house import (
    FAIL,
    SECOND_TIME,
    WorkflowHouse,
    living,
    move,
    step,
    timed,
)

MANY = Retry(attempts=20, wait_s=5, jitter=0, factor=1)
STEPS: dict[str, list[Step]] = {
    "in order": [step("a", retry=MANY), step("b", "{{ steps.a.output }}", retry=MANY)],
    "beside each other": [step("a", retry=MANY), step("b", after=[], retry=MANY)],
    "in one session": [step("a", session="s", retry=MANY), step("b", session="s", retry=MANY)],
    "with a check": [step("a", check=Check(function=SECOND_TIME), retry=MANY)],
    "with a compensation": [
        step("a", FAIL, retry=Retry(attempts=2, wait_s=5), compensate="undo"),
        step("undo", retry=MANY),
    ],
}


async def live(store: Mortal, clock: Any, steps: list[Step] | None) -> None:
    """One process, until all is done or it is dead."""
    house = WorkflowHouse(store)
    try:
        await house.keeper.load()
        async with house.keeper.keeping():
            if steps is not None:
                await house.start(*steps)
            await move(house, clock, 60)
    except (StoreUnavailableError, AppendUncertainError):
        assert store.is_dead
    finally:
        await house.close()


async def check(store: MemoryStore) -> None:
    started: Counter[tuple[str, int]] = Counter()
    ended: Counter[tuple[str, int]] = Counter()
    final: set[str] = set()
    turns: dict[str, str] = {}
    for stored in await store.of_kind("workflow").load_entries("w"):
        match stored.view:
            case StepStarted(step=name, attempt=attempt, session_id=session_id, turn_id=turn_id):
                assert name not in final, "a step that ended ran again"
                started[name, attempt] += 1
                turns[str(turn_id)] = str(session_id)
            case StepEnded(step=name, attempt=attempt, retry_at=due):
                ended[name, attempt] += 1
                if due is None:
                    final.add(name)
    assert set(started.values()) == {1}
    assert started == ended
    for session_id in set(turns.values()):
        sent: Counter[str] = Counter()
        for stored in await store.load_entries(session_id):
            if isinstance(view := stored.view, TurnStarted):
                assert turns.get(view.turn_id) == session_id, "a turn is in no history"
                sent[view.message_id] += 1
        assert set(sent.values()) <= {1}, "an attempt was sent twice"


async def play(at: int, when: When, steps: list[Step], again_at: int | None = None) -> int:
    """Dies at this write, comes back (and dies again), goes on; how many writes there were."""
    store = MemoryStore()
    async with timed() as clock:
        mortal = Mortal(store, at, when)
        await live(mortal, clock, steps)
        writes = mortal.writes
        if again_at is not None:
            second = Mortal(store, again_at, when)
            await live(second, clock, None)
            writes = second.writes
        async with living(store) as house:
            known, _ = await house.workflows.list()
            if not known:
                assert at <= 1, "it was lost"
                await house.start(*steps)
            await move(house, clock, 200)
            look = await house.look()
            expected = "failed" if any(each.compensate for each in steps) else "completed"
            assert look.status == expected, look
            if expected == "failed":
                assert (await house.of("undo")).status == "completed"
        await check(store)
        entries = await store.of_kind("workflow").load_entries("w")
        assert sum(isinstance(each.view, WorkflowEnded) for each in entries) == 1
        return writes


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("steps", STEPS.values(), ids=STEPS)
async def test_it_ends_as_it_should_whichever_write_the_process_dies_at(
    steps: list[Step], when: When
) -> None:
    at = 1
    while await play(at, when, steps) >= at:
        at += 1
    assert at > 8


@pytest.mark.parametrize("at", [3, 6, 9])
async def test_it_ends_as_it_should_where_the_next_process_dies_too(at: int) -> None:
    again_at = 1
    while await play(at, "after", STEPS["in order"], again_at) >= again_at:
        again_at += 1
    assert again_at > 3
