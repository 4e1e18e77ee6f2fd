"""A routine sends its message at its due times, once each, and its history says what came of it."""

from __future__ import annotations

import asyncio

import pytest

from perdure.entry import Text
from perdure.errors import (
    RoutineBusyError,
)
from perdure.fact import TurnStarted
from perdure.server.routine.definition import Wanted
from perdure.stores.memory import MemoryStore
from tests.server.house import Gate, Loops
from tests.server.routine_house import (
    FAIL,
    HANG,
    SAY,
    at,
    living,
    move,
    timed,
)


async def test_a_due_time_starts_one_turn_and_succeeds_when_it_completes() -> None:
    async with timed() as clock, living(MemoryStore()) as house:
        look = await house.make()
        assert look.status == "enabled"
        assert [f"{due:%H:%M}" for due in look.next_due] == [f"{n:02}:00" for n in range(9, 14)]
        await move(house, clock, 3.5 * 3600)
        assert await house.said() == [
            ("01-05T09:00", "succeeded"),
            ("01-05T10:00", "succeeded"),
            ("01-05T11:00", "succeeded"),
        ]
        assert await house.messages() == [SAY] * 3
        (run, *_) = await house.runs()
        assert (run.session_id, run.attempts, run.cause) == ("r", 1, "due")
        assert run.due_at == at("2026-01-05T09:00")
        entries = await house.store.load_entries("r")
        turns = [view for each in entries if isinstance(view := each.view, TurnStarted)]
        assert {turn.source for turn in turns} == {"routine"}
        assert turns[0].turn_id == run.turn_id
        assert turns[0].message_id == run.message_id


async def test_a_turn_that_fails_is_no_success_and_the_routine_goes_on() -> None:
    async with timed() as clock, living(MemoryStore()) as house:
        await house.make(FAIL)
        await move(house, clock, 2.5 * 3600)
        assert await house.said() == [("01-05T09:00", "failed"), ("01-05T10:00", "failed")]
        (run, _) = await house.runs()
        assert "broken" in str(run.why)
        assert house.routines.look("r").status == "enabled"


async def test_a_run_that_goes_on_is_shown_as_started() -> None:
    async with timed() as clock, living(MemoryStore()) as house:
        await house.make(HANG)
        await move(house, clock, 1.5 * 3600)
        assert await house.said() == [("01-05T09:00", "started")]
        (open_run,) = house.routines.look("r").running
        (run,) = await house.runs()
        assert open_run.turn_id == run.turn_id
        await house.house.registry.stop("r")
        await house.rest()
        assert await house.said() == [("01-05T09:00", "stopped")]
        assert house.routines.look("r").running == ()


async def test_each_run_can_have_a_session_of_its_own() -> None:
    async with timed() as clock, living(MemoryStore(), Loops(mine=Gate())) as house:
        await house.make(new_session=True, loop="mine", overlap="interrupt")
        await move(house, clock, 2.5 * 3600)
        ids = [run.session_id for run in await house.runs()]
        assert len(set(ids)) == 2
        assert str(ids[0]).startswith("r-20260105T090000Z-")
        assert (await house.house.registry.look(str(ids[0]))).loop == "mine"


async def test_or_a_fork_of_a_session() -> None:
    async with timed() as clock, living(MemoryStore()) as house:
        await house.house.registry.create("base")
        await house.house.registry.send("base", [Text(SAY)])
        await house.rest()
        await house.make(new_session=True, fork_of="base")
        await move(house, clock, 1.5 * 3600)
        (run,) = await house.runs()
        assert run.status == "succeeded"
        assert await house.messages(str(run.session_id)) == [SAY, SAY]
        assert await house.messages("base") == [SAY]


async def test_a_firing_wakes_an_idle_session_by_replay() -> None:
    store = MemoryStore()
    async with timed() as clock:
        async with living(store) as house:
            await house.make()
        async with living(store) as house:
            assert house.house.registry.live_actors == 0
            await move(house, clock, 0.9 * 3600)
            assert house.house.registry.live_actors == 0
            await move(house, clock, 0.2 * 3600)
            assert await house.said() == [("01-05T09:00", "succeeded")]
            assert house.house.registry.live_actors == 1


async def test_a_run_can_be_asked_for_and_its_key_makes_it_once() -> None:
    async with timed(), living(MemoryStore()) as house:
        await house.make(status="paused")
        run = await house.routines.run("r", idempotency_key="k")
        assert (run.status, run.cause, run.session_id) == ("started", "asked", "r")
        await house.rest()
        again = await house.routines.run("r", idempotency_key="k")
        assert (again.run_id, again.status) == (run.run_id, "succeeded")
        other = await house.routines.run("r")
        assert other.run_id != run.run_id
        await house.rest()
        assert await house.starts() == 2


async def test_two_who_ask_at_once_with_one_key_get_one_run() -> None:
    async with timed(), living(MemoryStore()) as house:
        await house.make()
        asked = (house.routines.run("r", idempotency_key="k") for _ in range(5))
        assert len({run.run_id for run in await asyncio.gather(*asked)}) == 1
        await house.rest()
        assert await house.starts() == 1


async def test_one_that_was_asked_for_overlaps_no_more_than_others() -> None:
    async with timed(), living(MemoryStore()) as house:
        await house.make(HANG)
        run = await house.routines.run("r")
        with pytest.raises(RoutineBusyError) as caught:
            await house.routines.run("r")
        assert caught.value.run_id == run.run_id
        await house.routines.change("r", Wanted(overlap="interrupt"))
        other = await house.routines.run("r")
        assert [run.status for run in await house.runs()] == ["stopped", "started"]
        assert other.status == "started"
