"""What can be said of a routine and of its runs: the answers of the API."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

import msgspec
from msgspec import Struct

from perdure.codec import encode
from perdure.entry import Json
from perdure.fact import AfterOutage, FiredCause, Origin, Overlap, RoutineRunEnded, RunReason
from perdure.server.routine.routine import Routine
from perdure.server.routine.schedule import say
from perdure.server.routine.state import Run
from perdure.store import Session

SHOWN = 5
"""How many due times to come are shown."""

Status = Literal["enabled", "paused", "stopped", "done", "unrecoverable"]
RunStatus = Literal[
    "claimed",
    "started",
    "succeeded",
    "stopped",
    "interrupted",
    "failed",
    "refused",
    "discarded",
    "skipped",
    "missed",
]


class RunLook(Struct, frozen=True):
    """A due time, or several that were missed, and what became of it.

    `claimed`: its message is about to be sent. `started`: its turn has not ended. `succeeded`: its
    turn completed. `why` says why it did not. Only what was `missed` has `until_at` and `count`
    (None: more than were counted).
    """

    run_id: str
    due_at: datetime
    status: RunStatus
    cause: FiredCause = "due"
    why: str | None = None
    session_id: str | None = None
    message_id: str | None = None
    turn_id: str | None = None
    attempts: int = 0
    started_at: datetime | None = None
    ended_at: datetime | None = None
    until_at: datetime | None = None
    count: int | None = 1


class RoutineLook(Struct, frozen=True):
    """A routine as it stands. `done`: it is enabled, and nothing more will be due.

    Of one that is `unrecoverable`, and was so when the server started, nothing is known but its id,
    and `why`. `next_due` are the next
    five due times, in UTC; jitter comes on top. `running` are the runs that have not ended.
    `session_id` None: each run has a session of its own.
    """

    routine_id: str
    created_at: datetime
    status: Status
    why: str | None
    says: str
    cron: str | None
    zone: str
    every_s: float | None
    starts_at: datetime | None
    at: datetime | None
    parts: tuple[Json, ...]
    session_id: str | None
    new_session: bool
    loop: str | None
    fork_of: str | None
    after_outage: AfterOutage
    overlap: Overlap
    deadline_s: float | None
    jitter_s: float
    resends: int
    origin: Origin
    owner: str | None
    next_due: tuple[datetime, ...]
    running: tuple[RunLook, ...]
    last_seq: int


class DueLook(Struct, frozen=True):
    """When a schedule would be due next: in UTC, and by the clocks of its zone."""

    says: str
    due: tuple[datetime, ...]
    local: tuple[str, ...]


def look_at(routine: Routine) -> RoutineLook:
    """The routine as it stands; O(its open runs), without asking the store."""
    state, definition = routine.state, routine.state.definition
    assert definition is not None
    due: tuple[datetime, ...] = ()
    if state.status == "enabled" and state.after is not None:
        due = definition.schedule.upcoming(state.after, SHOWN)
    status: Status = "done" if state.status == "enabled" and not due else state.status
    why = state.why
    if routine.damage is not None:
        status, why = "unrecoverable", routine.damage
    parts: list[Any] = msgspec.json.decode(encode(list(definition.parts)))
    return RoutineLook(
        routine_id=routine.routine_id,
        created_at=routine.session.created_at,
        status=status,
        why=why,
        says=say(definition.schedule),
        cron=definition.cron,
        zone=definition.zone,
        every_s=definition.every_s,
        starts_at=definition.starts_at,
        at=definition.at,
        parts=tuple(parts),
        session_id=definition.session_id,
        new_session=definition.session_id is None,
        loop=definition.loop,
        fork_of=definition.fork_of,
        after_outage=definition.after_outage,
        overlap=definition.overlap,
        deadline_s=definition.deadline_s,
        jitter_s=definition.jitter_s,
        resends=definition.resends,
        origin=definition.origin,
        owner=definition.owner,
        next_due=due,
        running=tuple(map(open_run, state.runs)),
        last_seq=state.last_seq,
    )


def lost_look(session: Session, why: str) -> RoutineLook:
    """The look at a routine whose journal cannot be read."""
    return RoutineLook(
        routine_id=session.id,
        created_at=session.created_at,
        status="unrecoverable",
        why=why,
        says="",
        cron=None,
        zone="UTC",
        every_s=None,
        starts_at=None,
        at=None,
        parts=(),
        session_id=None,
        new_session=False,
        loop=None,
        fork_of=None,
        after_outage="run_once",
        overlap="skip",
        deadline_s=None,
        jitter_s=0.0,
        resends=0,
        origin="api",
        owner=None,
        next_due=(),
        running=(),
        last_seq=0,
    )


def open_run(run: Run) -> RunLook:
    """The look at a run that has not ended."""
    return RunLook(
        run_id=run.run_id,
        due_at=run.due_at,
        status="started" if run.attempt else "claimed",
        cause=run.cause,
        session_id=run.session_id,
        message_id=run.message_id,
        turn_id=run.turn_id,
        attempts=run.attempt,
    )


def ended_status(reason: RunReason) -> RunStatus:
    """How a run that ended so is shown: it has succeeded only if its turn completed."""
    return "succeeded" if reason == "completed" else reason


def with_end(look: RunLook, end: RoutineRunEnded) -> RunLook:
    """The run with its end."""
    return msgspec.structs.replace(
        look,
        status=ended_status(end.reason),
        why=end.cause,
        turn_id=end.turn_id if end.turn_id is not None else look.turn_id,
        ended_at=end.created_at,
    )
