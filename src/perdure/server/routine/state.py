"""A routine's state: what its journal comes to, folded one entry at a time by the pure `apply`.

It has the definition, the runs that have no end yet, and `after`: the last due time that is
settled, one way or another. It is also the routine's summary, so that 10,000 of them are listed
without reading a journal.
"""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from perdure.codec import StoredEntry
from perdure.fact import (
    FiredCause,
    RoutineDefined,
    RoutineFired,
    RoutineMissed,
    RoutineRunEnded,
    RoutineRunResent,
    RoutineRunStarted,
    RoutineSkipped,
    RoutineStatus,
    RoutineSwitched,
)
from perdure.server.fold import Changes, Fold, Folded, broken
from perdure.server.routine.definition import Definition, read_definition

SCHEMA = 1
"""The number of the serialised form *and* of what `apply` makes of a journal."""

MOST_OPEN = 16
"""How many runs of a routine may be without an end; what is due then is skipped."""


class Run(Struct, frozen=True, array_like=True):
    """A run without an end. Until its message was accepted it has no session, message and turn.

    `resends` is the interrupted turn that is about to be sent again.
    """

    run_id: str
    due_at: datetime
    cause: FiredCause
    seq: int
    session_id: str | None = None
    incarnation: str | None = None
    message_id: str | None = None
    turn_id: str | None = None
    attempt: int = 0
    resends: str | None = None


class State(Folded, frozen=True):
    """What a journal up to `last_seq` comes to."""

    schema: int = SCHEMA
    definition: Definition | None = None
    status: RoutineStatus = "enabled"
    why: str | None = None
    after: datetime | None = None
    runs: tuple[Run, ...] = ()

    def run(self, run_id: str) -> Run | None:
        """The run of this id, if it has no end yet."""
        return next((run for run in self.runs if run.run_id == run_id), None)


def _decide(state: State, stored: StoredEntry) -> Changes:
    match stored.view:
        case RoutineDefined() as fact:
            definition = read_definition(fact)
            if definition is None:
                raise broken(stored, "its message has parts that this version cannot send")
            return {"definition": definition, "after": fact.after}
        case RoutineSwitched(status=status, after=after, why=why):
            return {"status": status, "why": why, "after": state.after if after is None else after}
        case RoutineFired(due_at=text, run_id=run_id, cause=cause):
            due = _moment(stored, text)
            run = Run(run_id if run_id is not None else text, due, cause, stored.seq)
            changes: Changes = {"runs": (*state.runs, run)}
            return changes if cause == "asked" else changes | _settled(state, due)
        case RoutineSkipped(due_at=due):
            return _settled(state, due)
        case RoutineMissed(last_at=due):
            return _settled(state, due)
        case RoutineRunStarted() as fact:
            started = {
                "session_id": fact.session_id,
                "incarnation": fact.incarnation,
                "message_id": fact.message_id,
                "turn_id": fact.turn_id,
                "attempt": fact.attempt,
                "resends": None,
            }
            return {"runs": _changed(state, fact.run_id, started)}
        case RoutineRunResent(run_id=run_id, turn_id=turn_id):
            return {"runs": _changed(state, run_id, {"resends": turn_id})}
        case RoutineRunEnded(run_id=run_id):
            return {"runs": tuple(run for run in state.runs if run.run_id != run_id)}
        case _:
            raise AssertionError(stored.type)


_DECISIVE = frozenset(
    {
        "routine_defined",
        "routine_switched",
        "routine_fired",
        "routine_skipped",
        "routine_missed",
        "routine_run_started",
        "routine_run_resent",
        "routine_run_ended",
    }
)


def _settled(state: State, due: datetime) -> Changes:
    return {"after": due if state.after is None else max(state.after, due)}


def _changed(state: State, run_id: str, fields: Changes) -> tuple[Run, ...]:
    return tuple(replace(run, **fields) if run.run_id == run_id else run for run in state.runs)


def _moment(stored: StoredEntry, text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise broken(stored, f"its due time {text!r} is none") from error
    if moment.tzinfo is None:
        raise broken(stored, f"its due time {text!r} has no offset from UTC")
    return moment


FOLD = Fold(State(), _DECISIVE, _decide)

apply, fold = FOLD.apply, FOLD.fold
encode_state, decode_state = FOLD.encode, FOLD.decode
