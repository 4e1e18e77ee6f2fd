"""Days on which the clock changes, and clocks that somebody sets."""

from __future__ import annotations

import itertools
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from perdure.stores.memory import MemoryStore
from tests.server.routine_house import at, living, move, move_to, timed

HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    ("zone", "start", "days", "cron"),
    [
        ("Europe/Berlin", "2026-03-27T00:00", 5, "30 2 * * *"),
        ("Europe/Berlin", "2026-10-23T00:00", 5, "30 2 * * *"),
        ("America/Sao_Paulo", "2017-10-13T12:00", 5, "0 0 * * *"),
        ("America/Sao_Paulo", "2018-02-15T12:00", 5, "30 23 * * *"),
        ("Asia/Beirut", "2026-03-26T12:00", 5, "0 0 * * *"),
        ("Africa/Cairo", "2026-04-21T12:00", 5, "15 0 * * *"),
    ],
)
async def test_a_daily_routine_runs_once_a_day_when_the_clocks_change(
    zone: str, start: str, days: int, cron: str
) -> None:
    async with timed(at(start)) as clock, living(MemoryStore()) as house:
        await house.make(cron=cron, zone=zone)
        await move(house, clock, days * 86400)
        ran = [run.due_at.astimezone(ZoneInfo(zone)).date() for run in await house.runs()]
        steps = [other - one for one, other in itertools.pairwise(ran)]
        assert steps == [timedelta(1)] * (days - 1)
        assert await house.starts() == days


async def test_a_day_that_was_left_out_has_no_run() -> None:
    async with timed(at("2011-12-27T12:00")) as clock, living(MemoryStore()) as house:
        await house.make(cron="0 9 * * *", zone="Pacific/Apia")
        await move(house, clock, 5 * 86400)
        assert [due for due, _ in await house.said()] == [
            "12-27T19:00",  # 27 December there
            "12-28T19:00",
            "12-29T19:00",  # 29 December
            "12-30T19:00",  # 31 December
            "12-31T19:00",
        ]


async def test_a_quarter_hourly_one_keeps_its_spacing() -> None:
    async with timed(at("2026-10-24T23:50")) as clock, living(MemoryStore()) as house:
        await house.make(cron="*/15 * * * *", zone="Europe/Berlin")
        await move(house, clock, 3 * 3600)
        runs = await house.runs()
        assert len(runs) == 12
        assert await house.starts() == 12
        spans = {other.due_at - one.due_at for one, other in itertools.pairwise(runs)}
        assert spans == {timedelta(minutes=15)}


async def test_a_clock_that_is_set_forward_is_an_outage() -> None:
    async with timed() as clock, living(MemoryStore()) as house:
        await house.make()
        await move(house, clock, 1.25 * 3600)
        clock.step(5 * HOUR)
        await move(house, clock, 61)
        assert await house.said() == [
            ("01-05T09:00", "succeeded"),
            ("01-05T10:00", "missed"),
            ("01-05T14:00", "succeeded"),
        ]
        await move(house, clock, 3600)
        assert (await house.said())[-1] == ("01-05T15:00", "succeeded")
        assert await house.starts() == 3


@pytest.mark.parametrize("hours", [1, 5, 24])
async def test_a_clock_that_is_set_back_starts_nothing_twice(hours: int) -> None:
    async with timed() as clock, living(MemoryStore()) as house:
        await house.make()
        await move(house, clock, 3.25 * 3600)
        clock.step(-hours * HOUR)
        await move(house, clock, (hours - 0.1) * 3600)
        assert await house.starts() == 3
        await move(house, clock, 3600)
        assert [due for due, _ in await house.said()] == [
            "01-05T09:00",
            "01-05T10:00",
            "01-05T11:00",
            "01-05T12:00",
        ]
        assert await house.starts() == 4


async def test_a_clock_that_was_years_ahead_does_not_silence_a_routine() -> None:
    async with timed() as clock, living(MemoryStore()) as house:
        await house.make()
        await move(house, clock, 1.25 * 3600)
        clock.step(timedelta(days=1500))
        await move(house, clock, 61)
        assert await house.starts() == 2
        clock.step(timedelta(days=-1500))
        await move(house, clock, 1.5 * 3600)
        assert await house.starts() == 3
        assert "set back" in str(house.routines.look("r").why)
        assert [due for due, _ in await house.said()][-1] == "01-05T10:00"


async def test_and_what_had_its_start_before_does_not_get_another() -> None:
    async with timed() as clock, living(MemoryStore()) as house:
        await house.make()
        await move(house, clock, 50.5 * 3600)
        before = await house.starts()
        clock.step(timedelta(hours=-30))
        await move(house, clock, 29.9 * 3600)
        assert await house.starts() == before
        statuses = [(run.status, run.why) for run in await house.runs()][before:]
        why = "it had its start already, before the clock was set back"
        assert set(statuses) == {("skipped", why)}
        await move(house, clock, 3600)
        assert await house.starts() == before + 1


async def test_a_clock_that_is_set_back_in_a_server_that_is_down() -> None:
    store = MemoryStore()
    async with timed() as clock:
        async with living(store) as house:
            await house.make()
            await move(house, clock, 2.5 * 3600)
        clock.step(-2 * HOUR)
        async with living(store) as house:
            await move(house, clock, 1.75 * 3600)
            assert await house.starts() == 2
            await move_to(house, clock, at("2026-01-05T11:01"))
            assert await house.starts() == 3


async def test_a_leap_day() -> None:
    async with timed(at("2028-02-27T12:00")) as clock, living(MemoryStore()) as house:
        look = await house.make(cron="0 9 29 2 *")
        assert [due.year for due in look.next_due] == [2028, 2032, 2036, 2040, 2044]
        await move(house, clock, 5 * 86400)
        assert await house.said() == [("02-29T09:00", "succeeded")]
        next_due: datetime = house.routines.look("r").next_due[0]
        assert next_due == at("2032-02-29T09:00")
