"""After an outage one run at most catches up, and what was missed is said."""

from __future__ import annotations

from typing import Any

from perdure.stores.memory import MemoryStore
from tests.server.routine_house import (
    RoutineHouse,
    at,
    living,
    move,
    timed,
)


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
