"""What becomes of the due times that have passed: decided on the state alone, and pure.

The newest due time that has passed is the one that can start. Those before it were missed, whatever
kept the server: it was down, it stood still, or its clock was set forward.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from perdure.fact import (
    Fact,
    FiredCause,
    RoutineFired,
    RoutineMissed,
    RoutineSkipped,
)
from perdure.server.routine.definition import Definition, start_of
from perdure.server.routine.identity import fired_id_of, jitter_of, run_id_of
from perdure.server.routine.state import MOST_OPEN, State

ON_TIME = timedelta(seconds=60)
"""A run that starts no later than this is on time; later, an outage kept it."""

FAR_AHEAD = timedelta(hours=25)
"""A clock that is set back by more than this was wrong before: due times are counted anew."""


class Plan(NamedTuple):
    """The facts that settle what has passed, and the run id of what they claim, if anything."""

    facts: Sequence[Fact] = ()
    claims: str | None = None


def due_start(definition: Definition, incarnation: str, due: datetime) -> datetime:
    """When the run of this due time starts."""
    fraction = jitter_of(incarnation, due)
    return start_of(definition.schedule, due, definition.jitter_s, fraction)


def next_start(state: State, incarnation: str) -> datetime | None:
    """When the next run may start; None where none is to come."""
    definition = state.definition
    if definition is None or state.status != "enabled" or state.after is None:
        return None
    due = definition.schedule.next_after(state.after)
    return None if due is None else due_start(definition, incarnation, due)


def is_far_ahead(state: State, now: datetime) -> bool:
    """Whether due times are settled that the clock will not reach for more than a day."""
    return state.after is not None and state.after > now + FAR_AHEAD


def late_reason(definition: Definition, late: timedelta) -> str | None:
    """Why a run that would start so late is skipped; None where its deadline allows it."""
    if definition.deadline_s is None or late.total_seconds() <= definition.deadline_s:
        return None
    return (
        f"it could have started {late.total_seconds():.0f} s late, and its deadline is "
        f"{definition.deadline_s:g} s"
    )


def plan(
    routine_id: str,
    incarnation: str,
    state: State,
    now: datetime,
    *,
    going: str | None = None,
    may_catch_up: bool = True,
) -> Plan:
    """What has to be stored about the due times that have passed; nothing, if none has.

    `going` is the id of a run that has not ended. Without `may_catch_up` only what is on time may
    start.
    """
    definition, after = state.definition, state.after
    if definition is None or after is None or state.status != "enabled":
        return Plan()
    due = _newest_ripe(definition, incarnation, after, now)
    if due is None:
        return Plan()
    facts: list[Fact] = []
    schedule = definition.schedule
    first = schedule.next_after(after)
    assert first is not None
    late = now - due_start(definition, incarnation, due)
    is_missed = late > ON_TIME and (definition.after_outage == "skip" or not may_catch_up)
    if first < due:
        last = due if is_missed else _before(definition, first, due)
        count = schedule.count(after, due)
        if count is not None and is_missed:
            count += 1
        facts.append(RoutineMissed(first_at=first, last_at=last, count=count))
    elif is_missed:
        facts.append(RoutineMissed(first_at=due, last_at=due, count=1))
    if is_missed:
        return Plan(facts)
    why = late_reason(definition, late) or _crowded(definition, state, going)
    if why is not None:
        return Plan((*facts, RoutineSkipped(due_at=due, why=why)))
    cause: FiredCause = "catch_up" if late > ON_TIME else "due"
    run_id = run_id_of(due)
    fired = RoutineFired(
        id=fired_id_of(incarnation, run_id), routine_id=routine_id, due_at=run_id, cause=cause
    )
    return Plan((*facts, fired), run_id)


def _newest_ripe(
    definition: Definition, incarnation: str, after: datetime, now: datetime
) -> datetime | None:
    """The last due time whose run may start now."""
    newest = definition.schedule.newest(after, now)
    if newest is None or due_start(definition, incarnation, newest) <= now:
        return newest
    # With jitter the one before it is ripe, since each starts before the next is due.
    return definition.schedule.newest(after, newest - timedelta(microseconds=1))


def _before(definition: Definition, first: datetime, due: datetime) -> datetime:
    return definition.schedule.newest(first, due - timedelta(microseconds=1)) or first


def _crowded(definition: Definition, state: State, going: str | None) -> str | None:
    if len(state.runs) >= MOST_OPEN:
        return f"{len(state.runs)} runs have not ended"
    if going is not None and definition.overlap == "skip":
        return f"run {going} has not ended"
    return None
