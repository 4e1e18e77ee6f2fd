"""Due times: strictly ascending, once for each local day, whatever the clocks of a zone do."""

from __future__ import annotations

import itertools
import zoneinfo
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import InvalidRoutineError
from perdure.server.routine.definition import start_of
from perdure.server.routine.schedule import MOST_COUNTED, Schedule, find_zone, local, say

RESTLESS = (
    ("Europe/Berlin", 2026),
    ("America/New_York", 2026),
    ("America/Sao_Paulo", 2017),  # midnight did not exist in October
    ("America/Sao_Paulo", 2018),
    ("Asia/Beirut", 2026),  # nor here in March
    ("Africa/Cairo", 2026),  # nor here in April
    ("Africa/Casablanca", 2026),  # around Ramadan
    ("Pacific/Apia", 2011),  # 30 December did not exist
    ("Pacific/Kwajalein", 1993),  # nor 21 August
    ("Australia/Lord_Howe", 2026),  # half an hour
    ("Asia/Kathmandu", 2026),
    ("America/Caracas", 2016),  # half an hour, for good
    ("Asia/Pyongyang", 2018),  # at half past eleven in the evening
    ("Antarctica/Troll", 2026),  # two hours
    ("America/Scoresbysund", 2024),
    ("UTC", 2024),
)
ALL_ZONES = sorted(zoneinfo.available_timezones() - {"Factory", "localtime"})


@lru_cache(maxsize=64)
def days_of(zone: ZoneInfo, year: int) -> list[date]:
    """The local days of a year that the zone's clocks have shown."""
    moment = datetime(year - 1, 12, 30, tzinfo=UTC)
    shown = set()
    while moment < datetime(year + 1, 1, 3, tzinfo=UTC):
        shown.add(moment.astimezone(zone).date())
        moment += timedelta(hours=1)
    return sorted(day for day in shown if day.year == year)


def due_in(schedule: Schedule, year: int) -> list[datetime]:
    """The due times whose local day is in the year."""
    zone = find_zone(schedule.zone)
    start = datetime(year - 1, 12, 29, tzinfo=UTC)
    found = itertools.takewhile(
        lambda due: due < datetime(year + 1, 1, 3, tzinfo=UTC), schedule.due_after(start)
    )
    return [due for due in found if due.astimezone(zone).year == year]


@pytest.mark.parametrize(("name", "year"), RESTLESS)
@pytest.mark.parametrize("time", ["00:00", "00:30", "01:30", "02:00", "02:30", "03:00", "12:15"])
def test_a_daily_routine_is_due_once_on_each_local_day(name: str, year: int, time: str) -> None:
    hour, minute = time.split(":")
    schedule = Schedule(cron=f"{int(minute)} {int(hour)} * * *", zone=name)
    zone = find_zone(name)
    due = due_in(schedule, year)
    assert Counter(each.astimezone(zone).date() for each in due) == Counter(days_of(zone, year))
    usual = [each for each in due if f"{each.astimezone(zone):%H:%M}" == time]
    assert len(due) - len(usual) <= 4


@given(st.sampled_from(ALL_ZONES), st.integers(1972, 2036), st.integers(0, 1439))
def test_so_it_is_in_every_zone_and_year(name: str, year: int, minute: int) -> None:
    schedule = Schedule(cron=f"{minute % 60} {minute // 60} * * *", zone=name)
    due = due_in(schedule, year)
    assert all(one < other for one, other in itertools.pairwise(due))
    days = len(days_of(find_zone(name), year))
    # A time that is skipped across midnight comes on the next day, and may leave or enter the year.
    assert days - 1 <= len(due) <= days + 1


@pytest.mark.parametrize(("name", "year"), RESTLESS)
@pytest.mark.parametrize("cron", ["*/15 * * * *", "0,15,30,45 * * * *"])
def test_a_quarter_hourly_one_keeps_real_time_spacing(name: str, year: int, cron: str) -> None:
    quarter = timedelta(minutes=15)
    schedule, zone = Schedule(cron=cron, zone=name), find_zone(name)
    for n in range(366):
        noon = datetime(year, 1, 1, 12, tzinfo=UTC) + timedelta(days=n)
        before, after = noon.astimezone(zone), (noon + timedelta(days=1)).astimezone(zone)
        if n and before.utcoffset() == after.utcoffset():
            continue
        due = schedule.upcoming(noon, 96)
        assert {other - one for one, other in itertools.pairwise(due)} == {quarter}
        assert due[-1] == noon + timedelta(days=1)


def test_an_interval_knows_no_clock_change() -> None:
    start = datetime(2026, 3, 28, 12, 0, tzinfo=UTC)
    schedule = Schedule(every_s=900, starts_at=start, zone="Europe/Berlin")
    due = schedule.upcoming(start, 200)
    assert due[0] == start + timedelta(minutes=15)
    spans = {other - one for one, other in itertools.pairwise(due)}
    assert spans == {timedelta(minutes=15)}


@pytest.mark.parametrize(
    ("cron", "zone", "after", "due"),
    [
        # skipped: as soon as the clocks go on
        ("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00", ["03-29T01:00", "03-30T00:30"]),
        # passed twice: the first time
        ("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00", ["10-25T00:30", "10-26T01:30"]),
        # between the two: not again
        ("30 2 * * *", "Europe/Berlin", "2026-10-25T01:10", ["10-26T01:30", "10-27T01:30"]),
        # no midnight
        ("0 0 * * *", "America/Sao_Paulo", "2017-10-14T12:00", ["10-15T03:00", "10-16T02:00"]),
        ("0 0 * * *", "Asia/Beirut", "2026-03-28T12:00", ["03-28T22:00", "03-29T21:00"]),
        # a day that was left out
        ("0 9 * * *", "Pacific/Apia", "2011-12-29T12:00", ["12-29T19:00", "12-30T19:00"]),
        ("0 9 30 12 *", "Pacific/Apia", "2011-12-01T00:00", ["12-29T19:00", "12-29T19:00"]),
        # leap days
        ("0 12 29 2 *", "UTC", "2026-01-01T00:00", ["02-29T12:00", "02-29T12:00"]),
        # Debian's: several fixed hours that one gap swallows are one instant
        ("0,30 2 * * *", "Europe/Berlin", "2026-03-28T12:00", ["03-29T01:00", "03-30T00:00"]),
        # the last day, the last weekday, the second Monday
        ("0 0 L * *", "UTC", "2028-02-01T00:00", ["02-29T00:00", "03-31T00:00"]),
        ("0 0 LW * *", "UTC", "2026-01-01T00:00", ["01-30T00:00", "02-27T00:00"]),
        ("0 0 * * MON#2", "UTC", "2026-01-01T00:00", ["01-12T00:00", "02-09T00:00"]),
    ],
)
def test_special_days(cron: str, zone: str, after: str, due: list[str]) -> None:
    moment = datetime.fromisoformat(after).replace(tzinfo=UTC)
    found = Schedule(cron=cron, zone=zone).upcoming(moment, 2)
    assert [f"{each:%m-%dT%H:%M}" for each in found] == due
    assert found[0] < found[1]


def test_a_leap_day_waits_for_its_year() -> None:
    found = Schedule(cron="0 12 29 2 *").upcoming(datetime(2026, 3, 1, tzinfo=UTC), 3)
    assert [each.year for each in found] == [2028, 2032, 2036]
    assert Schedule(cron="0 0 29 2 *").upcoming(datetime(2097, 1, 1, tzinfo=UTC), 1)[0].year == 2104


SCHEDULES = st.one_of(
    st.builds(
        lambda minute, hour, day, zone: Schedule(cron=f"{minute} {hour} {day} * *", zone=zone),
        st.sampled_from(["*", "*/7", "0", "59", "10-20/5"]),
        st.sampled_from(["*", "*/5", "0", "2", "1,2,3", "23"]),
        st.sampled_from(["*", "1", "L", "31"]),
        st.sampled_from([name for name, _ in RESTLESS]),
    ),
    st.builds(
        lambda every_s, offset: Schedule(
            every_s=every_s, starts_at=datetime(2026, 3, 1, tzinfo=UTC) + timedelta(hours=offset)
        ),
        st.one_of(st.integers(60, 10**6), st.floats(60, 10**5)),
        st.integers(-5000, 5000),
    ),
)
MOMENTS = st.datetimes(datetime(2026, 1, 1), datetime(2026, 12, 31)).map(
    lambda moment: moment.replace(tzinfo=UTC)
)


@given(SCHEDULES, MOMENTS)
def test_due_times_ascend_and_follow_from_where_one_looks(
    schedule: Schedule, moment: datetime
) -> None:
    due = schedule.upcoming(moment, 12)
    assert all(each > moment for each in due)
    assert all(one < other for one, other in itertools.pairwise(due))
    for n, each in enumerate(due[:-1]):
        assert schedule.next_after(each) == due[n + 1]
        assert schedule.next_after(each - timedelta(microseconds=1)) == each


@given(SCHEDULES, MOMENTS, st.integers(0, 40 * 86400))
def test_the_newest_and_the_count_are_those_of_the_listing(
    schedule: Schedule, moment: datetime, seconds: int
) -> None:
    now = moment + timedelta(seconds=seconds)
    passed = list(itertools.takewhile(lambda due: due <= now, schedule.due_after(moment)))
    newest = schedule.newest(moment, now)
    assert newest == (passed[-1] if passed else None)
    if newest is not None:
        older = len(passed) - 1
        assert schedule.count(moment, newest) == (older if older <= MOST_COUNTED else None)


def test_years_of_due_times_are_not_walked_through() -> None:
    now = datetime(2026, 1, 1, 0, 0, 30, tzinfo=UTC)
    long_ago = datetime(1990, 1, 1, tzinfo=UTC)
    assert Schedule(cron="* * * * *").newest(long_ago, now) == datetime(2026, 1, 1, tzinfo=UTC)
    assert Schedule(cron="* * * * *").count(long_ago, now) is None
    interval = Schedule(every_s=1, starts_at=long_ago)
    assert interval.newest(long_ago, now) == now


@given(SCHEDULES, MOMENTS, st.floats(0, 86400), st.floats(0, 0.999999))
def test_jitter_never_reaches_the_next_due_time(
    schedule: Schedule, moment: datetime, jitter_s: float, fraction: float
) -> None:
    due = schedule.upcoming(moment, 2)
    for each in due:
        start = start_of(schedule, each, jitter_s, fraction)
        assert each <= start <= each + timedelta(seconds=jitter_s + 0.001)
    if len(due) == 2:
        assert start_of(schedule, due[0], jitter_s, fraction) < due[1]


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({}, "one of"),
        ({"cron": "0 9 * * *", "every_s": 5.0}, "not cron and every_s together"),
        ({"cron": "0 9 * *"}, "has 4 fields"),
        ({"cron": "0 0 9 * * *"}, "has 6 fields"),
        ({"cron": "60 * * * *"}, "the minute field .* 0 to 59"),
        ({"cron": "* 24 * * *"}, "the hour field .* 0 to 23"),
        ({"cron": "* * 0 * *"}, "the day-of-month field"),
        ({"cron": "* * * JUNE *"}, "the month field .* 'JUNE'"),
        ({"cron": "* * * * MON#6"}, "the day-of-week field"),
        ({"cron": "*/0 * * * *"}, "the minute field"),
        ({"cron": "*/90 * * * *"}, "has the step 90, which is more than 59"),
        ({"cron": "0 9,*/30 * * *"}, "has the step 30, which is more than 23"),
        ({"cron": "@daily"}, "has 1 field, .*; write '0 0 \\* \\* \\*' for it"),
        ({"cron": "5-1 * * * *"}, "the minute field"),
        ({"cron": "¹ * * * *"}, "the minute field"),
        ({"cron": "0 0 30 2 *"}, "never due"),
        ({"cron": f"{','.join(['1'] * 200)} * * * *"}, "longer than"),
        ({"cron": "* * * * *", "zone": "Europe/Berln"}, "did you mean Europe/Berlin"),
        ({"cron": "* * * * *", "zone": "../etc/passwd"}, "no IANA time zone"),
        ({"cron": "* * * * *", "zone": "/etc/localtime"}, "no IANA time zone"),
        ({"cron": "* * * * *", "starts_at": datetime(2026, 1, 1, tzinfo=UTC)}, "every_s"),
    ],
)
def test_what_is_no_schedule_is_refused_by_field(fields: dict[str, object], says: str) -> None:
    with pytest.raises(InvalidRoutineError, match=says):
        Schedule(**fields).check()  # type: ignore[arg-type]  # as it may come


@given(st.text("0123456789*/,-LW#MON?A ", max_size=24))
def test_any_text_is_a_schedule_or_refused_by_field(text: str) -> None:
    schedule = Schedule(cron=text, zone="Europe/Berlin")
    try:
        schedule.check()
    except InvalidRoutineError:
        return
    assert say(schedule)
    due = schedule.upcoming(datetime(2026, 1, 1, tzinfo=UTC), 3)
    assert all(one < other for one, other in itertools.pairwise(due))


def test_a_local_time_is_the_first_or_the_next() -> None:
    berlin = find_zone("Europe/Berlin")
    assert local(datetime(2026, 3, 29, 2, 30), berlin) == datetime(2026, 3, 29, 1, tzinfo=UTC)
    assert local(datetime(2026, 10, 25, 2, 30), berlin) == datetime(2026, 10, 25, 0, 30, tzinfo=UTC)


def test_schedules_are_said_in_words() -> None:
    assert say(Schedule(cron="0 9 * * 1-5", zone="Asia/Tokyo")) == (
        "At 09:00 on Monday through Friday (Asia/Tokyo)"
    )
    start = datetime(2026, 1, 1, tzinfo=UTC)
    assert say(Schedule(every_s=90, starts_at=start)) == "Every 90 seconds"
    assert say(Schedule(every_s=900, starts_at=start)) == "Every 15 minutes"
    assert say(Schedule(every_s=86400, starts_at=start)) == "Every day"
    assert say(Schedule(at=start, zone="Europe/Berlin")) == "Once, at 2026-01-01T01:00:00+01:00"


def test_days_are_told_with_their_right_endings() -> None:
    found = say(Schedule(cron="0 0 1,2,11,12,13,21,22,23,31 * *"))
    for each in (
        "the 11th",
        "the 12th",
        "the 13th",
        "the 21st",
        "the 22nd",
        "the 23rd",
        "the 31st",
    ):
        assert each in found
