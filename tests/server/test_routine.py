"""A routine sends its message at its due times, once each, and its history says what came of it."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from perdure import clock
from perdure.entry import Text
from perdure.errors import (
    ConfigurationError,
    InvalidRoutineError,
    RoutineBusyError,
    RoutineExistsError,
    RoutineNotFoundError,
    SessionNotFoundError,
)
from perdure.fact import TurnStarted
from perdure.server.journal import JournalStore
from perdure.server.routine.definition import MAX_MESSAGE_BYTES, Wanted
from perdure.server.routine.state import State, decode_state, encode_state, fold
from perdure.stores.memory import MemoryStore
from tests.server.house import Gate, Loops
from tests.server.routine_house import (
    FAIL,
    HANG,
    SAY,
    START,
    RoutineHouse,
    at,
    living,
    move,
    move_to,
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


# Overlap


async def test_what_is_due_while_a_run_goes_on_is_skipped_and_says_why() -> None:
    async with timed() as clock, living(MemoryStore()) as house:
        await house.make(HANG)
        await move(house, clock, 3.5 * 3600)
        assert await house.said() == [
            ("01-05T09:00", "started"),
            ("01-05T10:00", "skipped"),
            ("01-05T11:00", "skipped"),
        ]
        skipped = (await house.runs())[1]
        assert skipped.why == "run 2026-01-05T09:00:00Z has not ended"
        assert await house.starts() == 1


async def test_what_overlaps_can_wait_for_its_turn() -> None:
    gate = Gate()
    async with timed() as clock, living(MemoryStore(), Loops(gate)) as house:
        await house.make(overlap="queue")
        await move(house, clock, 3.5 * 3600)
        assert await house.said() == [
            ("01-05T09:00", "started"),
            ("01-05T10:00", "claimed"),
            ("01-05T11:00", "claimed"),
        ]
        assert await house.starts() == 1
        gate.open()
        await house.rest()
        assert [status for _, status in await house.said()] == ["succeeded"] * 3
        assert await house.starts() == 3


async def test_so_many_wait_and_no_more() -> None:
    async with timed() as clock, living(MemoryStore()) as house:
        await house.make(HANG, overlap="queue")
        await move(house, clock, 20.5 * 3600)
        statuses = [status for _, status in await house.said()]
        assert statuses == ["started"] + ["claimed"] * 15 + ["skipped"] * 4


@pytest.mark.parametrize("new_session", [False, True])
async def test_what_overlaps_can_take_the_place_of_the_run_before(new_session: bool) -> None:
    async with timed() as clock, living(MemoryStore()) as house:
        await house.make(HANG, overlap="interrupt", new_session=new_session)
        await move(house, clock, 3.5 * 3600)
        assert await house.said() == [
            ("01-05T09:00", "stopped"),
            ("01-05T10:00", "stopped"),
            ("01-05T11:00", "started"),
        ]
        assert (await house.runs())[0].why == "run 2026-01-05T10:00:00Z took its place"


async def test_somebody_else_s_turn_is_no_overlap_the_message_waits_for_its_end() -> None:
    gate = Gate()
    async with timed() as clock, living(MemoryStore(), Loops(gate)) as house:
        await house.make()
        await house.house.registry.send("r", [Text(SAY)])
        await move(house, clock, 2.5 * 3600)
        assert await house.said() == [("01-05T09:00", "started"), ("01-05T10:00", "skipped")]
        assert await house.starts() == 1
        gate.open()
        await house.rest()
        assert await house.said() == [("01-05T09:00", "succeeded"), ("01-05T10:00", "skipped")]
        assert await house.starts() == 2


async def test_a_message_that_is_discarded_while_it_waits_ends_its_run() -> None:
    async with timed() as clock, living(MemoryStore()) as house:
        await house.make()
        await house.house.registry.send("r", [Text(HANG)])
        await move(house, clock, 1.5 * 3600)
        (run,) = await house.runs()
        assert run.message_id is not None
        await house.house.registry.discard_queued("r", run.message_id)
        await house.rest()
        assert await house.said() == [("01-05T09:00", "discarded")]


async def test_a_message_that_is_held_is_no_overlap_and_runs_with_the_next() -> None:
    async with timed() as clock, living(MemoryStore()) as house:
        await house.make()
        await house.house.registry.send("r", [Text(HANG)])
        await move(house, clock, 1.5 * 3600)
        await house.house.registry.stop("r")
        assert (await house.house.registry.look("r")).held
        await move(house, clock, 3600)
        assert await house.said() == [("01-05T09:00", "succeeded"), ("01-05T10:00", "succeeded")]


# Outages


async def outage(hours: float, **wanted: Any) -> tuple[list[tuple[str, str]], int, RoutineHouse]:
    """The history, and how many turns there were, after an outage from half past nine on."""
    store = MemoryStore()
    async with timed() as clock:
        async with living(store) as house:
            await house.make(**wanted)
            await move(house, clock, 1.5 * 3600)
        await clock.advance(hours * 3600)
        async with living(store) as house:
            return await house.said(), await house.starts(), house


async def test_after_an_outage_the_last_due_time_runs_once_and_those_before_were_missed() -> None:
    said, starts, house = await outage(5)
    assert said == [
        ("01-05T09:00", "succeeded"),
        ("01-05T10:00", "missed"),
        ("01-05T14:00", "succeeded"),
    ]
    assert starts == 2
    _, missed, caught_up = await house.runs()
    assert (missed.count, missed.until_at) == (4, at("2026-01-05T13:00"))
    assert (caught_up.cause, missed.cause) == ("catch_up", "due")


async def test_or_none_of_them_runs() -> None:
    said, starts, house = await outage(5, after_outage="skip")
    assert said == [("01-05T09:00", "succeeded"), ("01-05T10:00", "missed")]
    assert starts == 1
    assert (await house.runs())[1].count == 5
    said, starts, _ = await outage(1, after_outage="skip")
    assert said[1:] == [("01-05T10:00", "missed")]


async def test_a_run_that_would_be_later_than_its_deadline_is_skipped() -> None:
    said, starts, house = await outage(5, deadline_s=1200)
    assert said[1:] == [("01-05T10:00", "missed"), ("01-05T14:00", "skipped")]
    assert "1800 s late, and its deadline is 1200 s" in str((await house.runs())[-1].why)
    assert starts == 1
    said, starts, _ = await outage(5, deadline_s=1800)
    assert said[-1] == ("01-05T14:00", "succeeded")


async def test_what_is_late_by_less_than_a_minute_is_on_time() -> None:
    said, _, house = await outage(4.51, after_outage="skip")
    assert said[1:] == [("01-05T10:00", "missed"), ("01-05T14:00", "succeeded")]
    assert (await house.runs())[-1].cause == "due"


async def test_more_missed_due_times_than_can_be_counted_are_more() -> None:
    _, _, house = await outage(24 * 40, cron="*/2 * * * *")
    missed = [run for run in await house.runs() if run.status == "missed"]
    assert [run.count for run in missed] == [None]


async def test_an_outage_without_a_due_time_leaves_no_trace() -> None:
    said, _, _ = await outage(0.4)
    assert said == [("01-05T09:00", "succeeded")]


# Jitter


async def test_jitter_is_a_due_time_s_own_and_stays_before_the_next() -> None:
    async def starts() -> list[float]:
        async with timed() as clock, living(MemoryStore()) as house:
            await house.make(jitter_s=3 * 3600)
            await move(house, clock, 12.9 * 3600)
            runs = await house.runs()
            assert [run.due_at.hour for run in runs] == list(range(9, 9 + len(runs)))
            return [(run.started_at - run.due_at).total_seconds() for run in runs if run.started_at]

    delays = await starts()
    assert len(delays) >= 11
    assert all(0 <= delay <= 0.9 * 3600 + 1 for delay in delays)
    assert len(set(delays)) > 5
    assert max(delays) > 600


# Pausing, ending


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


# Sessions


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


# What cannot be


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


# Running now


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


# The journal


async def test_every_prefix_folds_and_a_summary_is_what_its_entries_come_to(
    store: JournalStore,
) -> None:
    async with timed() as clock, living(store) as house:
        await house.make(HANG, overlap="interrupt", resends=1, zone="Europe/Berlin")
        for _ in range(3):
            await move(house, clock, 3600)
        await house.routines.change("r", Wanted(text=SAY), status="paused")
        await house.rest()
        journals = store.of_kind("routine")
        entries = await journals.load_entries("r")
        state = fold(State(), entries)
        assert decode_state((await journals.look("r")).summary) == state
        for n in range(len(entries)):
            part = fold(State(), entries[:n])
            assert decode_state(encode_state(part)) == part
            assert fold(part, entries[n:]) == state


async def test_the_history_is_paged() -> None:
    async with timed() as clock, living(MemoryStore()) as house:
        await house.make(cron="*/5 * * * *")
        await move(house, clock, 3600 * 2 + 1)
        whole = await house.runs()
        assert len(whole) == 24
        for limit in (1, 5, 23, 24):
            assert await house.runs(limit=limit) == whole
        page = await house.routines.runs("r", limit=3)
        assert [run.due_at.minute for run in page.runs] == [0, 55, 50]


async def test_looking_writes_nothing() -> None:
    async with timed() as manual, living(MemoryStore()) as house:
        await house.make()
        await move(house, manual, 1.5 * 3600)
        journals = house.store.of_kind("routine")
        before = (await journals.look("r")).last_seq, (await house.store.look("r")).last_seq
        house.routines.look("r")
        house.routines.list()
        await house.routines.runs("r")
        house.routines.preview(Wanted(every_s=60))
        assert clock.now() == manual.now()
        after = (await journals.look("r")).last_seq, (await house.store.look("r")).last_seq
        assert after == before


async def test_a_listing_is_paged_by_id() -> None:
    async with timed(), living(MemoryStore()) as house:
        for name in ("c", "a", "b"):
            await house.routines.create(name, Wanted(cron="0 9 * * *", text="hello"))
        looks, following = house.routines.list(limit=2)
        assert ([look.routine_id for look in looks], following) == (["a", "b"], "b")
        looks, following = house.routines.list(limit=2, after=following)
        assert ([look.routine_id for look in looks], following) == (["c"], None)


async def test_a_routine_of_a_broken_journal_is_shown_and_harms_no_other() -> None:
    store = MemoryStore()
    async with timed() as clock:
        async with living(store) as house:
            await house.make()
            wanted = Wanted(cron="0 9 * * *", text=SAY)
            await house.routines.create("other", wanted)
        log = store.of_kind("routine")._logs["r"]
        log.summary = None
        log.entries[0] = log.entries[0].__class__(2, log.entries[0].entry)
        async with living(store) as house:
            looks, _ = house.routines.list()
            assert [(look.routine_id, look.status) for look in looks] == [
                ("other", "enabled"),
                ("r", "unrecoverable"),
            ]
            assert "seq 2 follows 0" in str(looks[1].why)
            await move_to(house, clock, at("2026-01-05T09:01"))
            assert await house.said("other") == [("01-05T09:00", "succeeded")]
