"""A routine is paused, changed, ended and deleted; what cannot be is refused by its field."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from perdure.entry import Text
from perdure.errors import (
    ConfigurationError,
    InvalidRoutineError,
    RoutineExistsError,
    RoutineNotFoundError,
    SessionNotFoundError,
)
from perdure.server.routine.definition import MAX_MESSAGE_BYTES, Wanted
from perdure.stores.memory import MemoryStore
from tests.server.house import Gate, Loops
from tests.server.routine_house import (
    FAIL,
    HANG,
    SAY,
    START,
    at,
    living,
    move,
    timed,
)


async def test_what_is_due_while_it_rests_is_neither_run_nor_missed() -> None:
    async with timed() as clock, living(MemoryStore()) as house:
        await house.make()
        await move(house, clock, 1.5 * 3600)
        paused = await house.routines.change("r", Wanted(), status="paused")
        assert (paused.status, paused.next_due) == ("paused", ())
        await move(house, clock, 3 * 3600)
        resumed = await house.routines.change("r", Wanted(), status="enabled")
        assert resumed.next_due[0] == at("2026-01-05T13:00")
        await move(house, clock, 3600)
        assert await house.said() == [("01-05T09:00", "succeeded"), ("01-05T13:00", "succeeded")]


async def test_what_waits_when_it_is_paused_is_skipped() -> None:
    gate = Gate()
    async with timed() as clock, living(MemoryStore(), Loops(gate)) as house:
        await house.make(overlap="queue")
        await move(house, clock, 2.5 * 3600)
        await house.routines.change("r", Wanted(), status="paused")
        gate.open()
        await house.rest()
        assert await house.said() == [("01-05T09:00", "succeeded"), ("01-05T10:00", "skipped")]


async def test_one_that_is_due_once_is_done_afterwards() -> None:
    async with timed() as clock, living(MemoryStore()) as house:
        look = await house.make(at=at("2026-01-06T12:00"))
        assert look.next_due == (at("2026-01-06T12:00"),)
        await move(house, clock, 40 * 3600)
        assert await house.said() == [("01-06T12:00", "succeeded")]
        assert house.routines.look("r").status == "done"


async def test_an_interval_is_counted_from_its_start() -> None:
    async with timed() as clock, living(MemoryStore()) as house:
        await house.make(every_s=5400, starts_at=at("2026-01-05T09:15"))
        await move(house, clock, 5 * 3600)
        assert [due for due, _ in await house.said()] == [
            "01-05T09:15",
            "01-05T10:45",
            "01-05T12:15",
        ]


async def test_another_schedule_counts_from_now_on() -> None:
    async with timed() as clock, living(MemoryStore()) as house:
        await house.make()
        await move(house, clock, 1.5 * 3600)
        look = await house.routines.change("r", Wanted(cron="45 * * * *", zone="Asia/Kathmandu"))
        assert look.next_due[0] == at("2026-01-05T10:00")
        look = await house.routines.change("r", Wanted(zone="UTC"))
        assert look.next_due[0] == at("2026-01-05T09:45")
        look = await house.routines.change("r", Wanted(text=FAIL, deadline_s=60))
        assert (look.cron, look.deadline_s) == ("45 * * * *", 60)
        await move(house, clock, 1800)
        assert await house.said() == [("01-05T09:00", "succeeded"), ("01-05T09:45", "failed")]


async def test_deleting_one_deletes_its_history_and_lets_its_turns_go_on() -> None:
    async with timed() as clock, living(MemoryStore()) as house:
        await house.make(HANG)
        await move(house, clock, 1.5 * 3600)
        await house.routines.delete("r")
        with pytest.raises(RoutineNotFoundError):
            house.routines.look("r")
        with pytest.raises(RoutineNotFoundError):
            await house.routines.delete("r")
        assert (await house.house.registry.look("r")).status == "running"
        await move(house, clock, 3 * 3600)
        assert await house.starts() == 1
        await house.make(session_id="other")
        assert await house.runs() == []


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        ({"text": ""}, "the message is empty"),
        ({"text": "x" * MAX_MESSAGE_BYTES}, "more than"),
        ({"parts": (Text("a"),), "text": "b"}, 'either "text" or "parts"'),
        ({"session_id": "s", "new_session": True}, "session of its own"),
        ({"fork_of": "s"}, "new_session"),
        ({"fork_of": "s", "new_session": True, "loop": "scripted"}, "loop"),
        ({"session_id": ".."}, "session_id"),
        ({"cron": "0 0 30 2 *"}, "never due"),
        ({"cron": None, "at": START}, "in the past"),
        ({"at": START + timedelta(days=1)}, "not cron and at together"),
        ({"cron": None, "every_s": 60.0, "starts_at": at("1969-01-01T00:00")}, "1970"),
    ],
)
async def test_what_cannot_be_is_refused_by_field(wanted: dict[str, Any], says: str) -> None:
    async with timed(), living(MemoryStore()) as house:
        given = {"cron": "0 9 * * *", "text": "hello", **wanted}
        if "parts" in wanted and "text" not in wanted:
            del given["text"]
        with pytest.raises(InvalidRoutineError, match=says):
            await house.routines.create("r", Wanted(**given))
        assert house.routines.list() == ([], None)
        assert (await house.store.list_sessions()).sessions == ()


@pytest.mark.parametrize("routine_id", ["", "..", "a\nb", "x" * 201, "\ud800"])
async def test_an_id_follows_the_rules_of_session_ids(routine_id: str) -> None:
    async with timed(), living(MemoryStore()) as house:
        with pytest.raises(InvalidRoutineError, match="routine_id"):
            await house.routines.create(routine_id, Wanted(cron="0 9 * * *", text="hello"))


async def test_a_loop_and_a_session_to_fork_that_are_not_there_are_refused() -> None:
    async with timed(), living(MemoryStore()) as house:
        wanted = Wanted(cron="0 9 * * *", text="hello", loop="none", new_session=True)
        with pytest.raises(ConfigurationError):
            await house.routines.create("r", wanted)
        with pytest.raises(ConfigurationError):
            await house.routines.create("r", Wanted(cron="0 9 * * *", text="hello", loop="none"))
        wanted = Wanted(cron="0 9 * * *", text="hello", fork_of="none", new_session=True)
        with pytest.raises(SessionNotFoundError):
            await house.routines.create("r", wanted)
        assert house.routines.list() == ([], None)


async def test_the_same_again_is_the_same_and_something_else_is_refused() -> None:
    async with timed() as clock, living(MemoryStore()) as house:
        made = await house.make(every_s=600)
        await clock.advance(100)
        again, is_new = await house.routines.create("r", Wanted(text=SAY, every_s=600))
        assert (again, is_new) == (made, False)
        with pytest.raises(RoutineExistsError):
            await house.routines.create("r", Wanted(text=SAY, every_s=601))
