"""A routine's state: what its journal comes to, folded one entry at a time by the pure `apply`.

It has the definition, the runs that have no end yet, and `after`: the last due time that is
settled, one way or another. It is also the routine's summary, so that 10,000 of them are listed
without reading a journal.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from perdure.codec import StoredEntry, encode
from perdure.entry import Opaque
from perdure.errors import StateUnreplayableError
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
from perdure.server.routine.definition import Definition, read_definition
from perdure.snapshot import read_sealed, seal

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


class State(Struct, frozen=True):
    """What a journal up to `last_seq` comes to."""

    schema: int = SCHEMA
    last_seq: int = 0
    definition: Definition | None = None
    status: RoutineStatus = "enabled"
    why: str | None = None
    after: datetime | None = None
    runs: tuple[Run, ...] = ()

    def run(self, run_id: str) -> Run | None:
        """The run of this id, if it has no end yet."""
        return next((run for run in self.runs if run.run_id == run_id), None)


def encode_state(state: State) -> bytes:
    """The state as the bytes of a summary, sealed."""
    return seal(encode(state))


def decode_state(summary: bytes | None) -> State | None:
    """The state of a summary's bytes; None where there is none that this version can read."""
    return None if summary is None else read_sealed(summary, State, schema=SCHEMA, upcasts={})


def fold(state: State, entries: Iterable[StoredEntry]) -> State:
    """Applies entries in order."""
    for stored in entries:
        state = apply(state, stored)
    return state


def apply(state: State, stored: StoredEntry) -> State:
    """The state after the journal's next entry. Entries of unknown types only move `last_seq`.

    Raises:
        StateUnreplayableError: a `seq` is missing, or a fact that decides cannot be read.

    """
    if stored.seq != state.last_seq + 1:
        raise StateUnreplayableError(
            f"seq {stored.seq} follows {state.last_seq}: an entry is missing or doubled"
        )
    changes = _decide(state, stored) if stored.type.startswith("routine_") else {}
    return replace(state, last_seq=stored.seq, **changes)


def _decide(state: State, stored: StoredEntry) -> dict[str, Any]:
    match stored.view:
        case RoutineDefined() as fact:
            definition = read_definition(fact)
            if definition is None:
                raise _broken(stored, "its message has parts that this version cannot send")
            return {"definition": definition, "after": fact.after}
        case RoutineSwitched(status=status, after=after, why=why):
            return {"status": status, "why": why, "after": state.after if after is None else after}
        case RoutineFired(due_at=text, run_id=run_id, cause=cause):
            due = _moment(stored, text)
            run = Run(run_id if run_id is not None else text, due, cause, stored.seq)
            changes: dict[str, Any] = {"runs": (*state.runs, run)}
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
        case Opaque() if stored.type in _DECISIVE:
            raise _broken(stored, f"this version cannot read its {stored.type!r}")
        case _:
            return {}


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


def _settled(state: State, due: datetime) -> dict[str, Any]:
    return {"after": due if state.after is None else max(state.after, due)}


def _changed(state: State, run_id: str, fields: dict[str, Any]) -> tuple[Run, ...]:
    return tuple(replace(run, **fields) if run.run_id == run_id else run for run in state.runs)


def _moment(stored: StoredEntry, text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise _broken(stored, f"its due time {text!r} is none") from error
    if moment.tzinfo is None:
        raise _broken(stored, f"its due time {text!r} has no offset from UTC")
    return moment


def _broken(stored: StoredEntry, detail: str) -> StateUnreplayableError:
    return StateUnreplayableError(f"the entry {stored.id!r} at seq {stored.seq}: {detail}")
