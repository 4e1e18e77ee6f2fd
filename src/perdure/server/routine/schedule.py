"""When a routine is due: cron in a time zone, an interval, or once. Pure; every time is in UTC.

Due times are instants, strictly ascending. On days on which the clock changes:

- a cron expression with fixed hours (`30 2 * * *`) is due once for each local day that there is: a
  time that the clock skips comes as soon as the clock goes on, one that it passes twice the first
  time;
- one whose hour or minute begins with `*` keeps real-time spacing, as an interval does.

Source: crontab(5) of Debian, whose rules cronsim follows, but for days that do not exist at all.
"""

from __future__ import annotations

import difflib
import itertools
import math
import re
import zoneinfo
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from functools import cache, lru_cache
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError
from msgspec import Struct

from perdure.errors import InvalidRoutineError

MOST_COUNTED = 1000
"""Passed due times are counted up to here; more are "more than that"."""

MAX_CRON_CHARS = 200

_FIELDS = (
    ("minute", "0 to 59"),
    ("hour", "0 to 23"),
    ("day-of-month", "1 to 31, L for the last day, LW for the last weekday"),
    ("month", "1 to 12, or JAN to DEC"),
    ("day-of-week", "0 to 7 (0 and 7 are Sunday), or SUN to SAT; MON#2 is the second Monday"),
)
_SPANS = (59, 23, 31, 12, 7)
"""The longest step of each field that can come about."""

_SHORT = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_STEP = re.compile(r"/([0-9]+)")
_ORDINAL = re.compile(r"\b([0-9]+)th\b")
_GRAMMAR = "each field is * or a value, with lists (1,2), ranges (1-5) and steps (*/15)"
_BROKEN = (CronSimError, ValueError, AssertionError)


class Schedule(Struct, frozen=True):
    """One of `cron` (in `zone`), `every_s` (from `starts_at`) and `at` is set."""

    cron: str | None = None
    zone: str = "UTC"
    every_s: float | None = None
    starts_at: datetime | None = None
    at: datetime | None = None

    def check(self) -> None:
        """Returns if it is one.

        Raises:
            InvalidRoutineError: it is none; says which field is wrong, and what is allowed.

        """
        given = [name for name in ("cron", "every_s", "at") if getattr(self, name) is not None]
        if len(given) != 1:
            detail = f"not {' and '.join(given)} together" if given else "there is none of them"
            raise InvalidRoutineError(
                "schedule", f'a routine has one of "cron", "every_s" and "at"; {detail}'
            )
        find_zone(self.zone)
        if self.cron is not None:
            _check_cron(self.cron)
        if self.starts_at is not None and self.every_s is None:
            raise InvalidRoutineError("starts_at", "it is the start of an interval (every_s)")
        for name in ("starts_at", "at"):
            moment: datetime | None = getattr(self, name)
            if moment is not None and moment.utcoffset() is None:
                raise InvalidRoutineError(name, "it has no offset from UTC")

    def due_after(self, moment: datetime) -> Iterator[datetime]:
        """The due times after `moment`, ascending; O(1) each, but for rare cron expressions."""
        if self.cron is not None:
            yield from _cron_after(self.cron, find_zone(self.zone), moment)
        elif self.every_s is not None:
            yield from self._interval_after(moment)
        elif self.at is not None and self.at > moment:
            yield self.at.astimezone(UTC)

    def next_after(self, moment: datetime) -> datetime | None:
        """The first due time after `moment`; None where there is none."""
        return next(self.due_after(moment), None)

    def upcoming(self, moment: datetime, count: int) -> tuple[datetime, ...]:
        """The first `count` due times after `moment`, or as many as there are."""
        return tuple(itertools.islice(self.due_after(moment), count))

    def newest(self, after: datetime, now: datetime) -> datetime | None:
        """The last due time with after < due <= now; quick, however many there are."""
        span = timedelta(minutes=2)
        while True:
            start = max(after, now - span)
            found = None
            for due in self.due_after(start):
                if due > now:
                    break
                found = due
            if found is not None or start == after:
                return found
            span *= 2

    def count(self, after: datetime, before: datetime) -> int | None:
        """How many due times lie strictly between; None where it is more than MOST_COUNTED."""
        if self.every_s is not None and self.starts_at is not None:
            passed = _steps(self.starts_at, before, self.every_s)
            is_on = self.starts_at + timedelta(seconds=passed * self.every_s) == before
            done = _steps(self.starts_at, after, self.every_s)
            count = max(0, passed - is_on - max(done, -1))
            return count if count <= MOST_COUNTED else None
        found = 0
        for due in self.due_after(after):
            if due >= before:
                return found
            found += 1
            if found > MOST_COUNTED:
                return None
        return found

    def _interval_after(self, moment: datetime) -> Iterator[datetime]:
        assert self.every_s is not None
        assert self.starts_at is not None
        start = self.starts_at.astimezone(UTC)
        step = max(0, _steps(start, moment, self.every_s) + 1)
        try:
            while True:
                yield start + timedelta(seconds=step * self.every_s)
                step += 1
        except OverflowError:
            return  # the calendar ends


def _steps(start: datetime, moment: datetime, every_s: float) -> int:
    """The last n with start + n * every_s <= moment."""
    steps = math.floor((moment - start).total_seconds() / every_s)
    while start + timedelta(seconds=(steps + 1) * every_s) <= moment:
        steps += 1
    while start + timedelta(seconds=steps * every_s) > moment:
        steps -= 1
    return steps


@lru_cache(maxsize=256)
def find_zone(name: str) -> ZoneInfo:
    """The time zone of this IANA name.

    Raises:
        InvalidRoutineError: there is none; the text has names like it.

    """
    try:
        if not name.isascii() or name.startswith((".", "/")):
            raise ValueError(name)
        return ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
        near = difflib.get_close_matches(name, _zones(), 3)
        hint = f"; did you mean {' or '.join(near)}?" if near else ", such as Europe/Berlin"
        raise InvalidRoutineError("zone", f"{name!r} is no IANA time zone{hint}") from error


@cache
def _zones() -> frozenset[str]:
    """Every IANA name; looked for once, since that reads through folders."""
    return frozenset(zoneinfo.available_timezones())


def local(moment: datetime, zone: ZoneInfo) -> datetime:
    """A wall-clock time of this zone as an instant in UTC: the first such time, or the next."""
    naive = moment.replace(tzinfo=zone, fold=0)
    while _is_skipped(naive):
        naive += timedelta(minutes=1)
    return naive.astimezone(UTC)


def say(schedule: Schedule) -> str:
    """The schedule in words."""
    if schedule.cron is not None:
        said = CronSim(schedule.cron, datetime(2000, 1, 1)).explain()
        return f"{_ORDINAL.sub(_ordinal, said)} ({schedule.zone})"
    if schedule.every_s is not None:
        return f"Every {_say_span(schedule.every_s)}"
    assert schedule.at is not None
    return f"Once, at {schedule.at.astimezone(find_zone(schedule.zone)).isoformat()}"


def _ordinal(found: re.Match[str]) -> str:
    number = int(found[1])
    ending = "th" if number in {11, 12, 13} else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _say_span(seconds: float) -> str:
    """In the largest unit of which it is a whole number."""
    sizes = (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))
    unit, size = next((each for each in sizes if seconds % each[1] == 0), sizes[-1])
    count = seconds / size
    return unit if count == 1 else f"{count:g} {unit}s"


def _check_cron(expression: str) -> None:
    fields = expression.split()
    if len(fields) != len(_FIELDS):
        names = " ".join(name for name, _ in _FIELDS)
        short = _SHORT.get(expression.strip())
        hint = "" if short is None else f"; write {short!r} for it"
        plural = "" if len(fields) == 1 else "s"
        raise InvalidRoutineError(
            "cron",
            f"{expression!r} has {len(fields)} field{plural}, a cron expression has five: "
            f"{names}{hint}",
        )
    if len(expression) > MAX_CRON_CHARS:
        raise InvalidRoutineError("cron", f"it is longer than {MAX_CRON_CHARS} characters")
    for number, (name, allowed) in enumerate(_FIELDS):
        alone = ["*"] * len(_FIELDS)
        alone[number] = fields[number]
        try:
            CronSim(" ".join(alone), datetime(2000, 1, 1))
        except _BROKEN as error:
            raise InvalidRoutineError(
                "cron",
                f"the {name} field of {expression!r} is {fields[number]!r}, which it cannot be: "
                f"it takes {allowed}; {_GRAMMAR}",
            ) from error
        for step in _STEP.findall(fields[number]):
            if int(step) > _SPANS[number]:
                raise InvalidRoutineError(
                    "cron",
                    f"the {name} field of {expression!r} has the step {step}, which is more than "
                    f"{_SPANS[number]}: the steps of a field begin anew in each hour, day, month "
                    "or year; a longer interval is every_s",
                )
    try:
        next(CronSim(expression, datetime(2000, 1, 1)))
    except (*_BROKEN, StopIteration) as error:
        raise InvalidRoutineError(
            "cron", f"{expression!r} is never due: no month of it has such a day"
        ) from error


def _cron_after(expression: str, zone: ZoneInfo, moment: datetime) -> Iterator[datetime]:
    """The due times after `moment`, found by cronsim; in wall-clock time where hours are fixed."""
    minute, hour = expression.split()[:2]
    has_fixed_hours = not minute.startswith("*") and not hour.startswith("*")
    start = moment.astimezone(zone)
    last = moment
    try:
        for found in CronSim(expression, start.replace(tzinfo=None) if has_fixed_hours else start):
            if not _has_day(found.date(), zone):
                continue
            due = local(found, zone) if has_fixed_hours else found.astimezone(UTC)
            if due > last:
                last = due
                yield due
    except OverflowError:
        return  # the calendar ends


@lru_cache(maxsize=1024)
def _has_day(day: date, zone: ZoneInfo) -> bool:
    """Whether the zone's clocks ever show this date: some have skipped one."""
    edges = (time(0, 0), time(23, 59, 59))
    return not all(_is_skipped(datetime.combine(day, edge, zone)) for edge in edges)


def _is_skipped(wall: datetime) -> bool:
    """Whether the zone's clocks never show this time."""
    return wall.astimezone(UTC).astimezone(wall.tzinfo).replace(fold=0) != wall.replace(fold=0)
