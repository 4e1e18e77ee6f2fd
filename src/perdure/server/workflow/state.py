"""A workflow's state: what its journal comes to, folded one entry at a time by the pure `apply`.

It has how each step stands, and the attempt that has no end yet; what was said and seen stays in
the journal. It is also the workflow's summary, so that listing and starting read no journal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from perdure.codec import StoredEntry, encode
from perdure.entry import Opaque
from perdure.errors import StateUnreplayableError
from perdure.fact import (
    SessionOwned,
    StepAnswered,
    StepEnded,
    StepSkipped,
    StepsReopened,
    StepStarted,
    WorkflowDefined,
    WorkflowEnded,
    WorkflowSwitched,
)
from perdure.server.workflow.definition import plan_of
from perdure.snapshot import read_sealed, seal

SCHEMA = 1
"""The number of the serialised form *and* of what `apply` makes of a journal."""

CAUSE_CHARS = 500
"""How much of a cause is in the state; the whole is in the entry."""

Status = Literal["running", "paused", "cancelling", "completed", "failed", "cancelled"]
StepStatus = Literal["pending", "running", "retrying", "completed", "failed", "skipped"]
OVER: frozenset[Status] = frozenset({"completed", "failed", "cancelled"})
DONE: frozenset[StepStatus] = frozenset({"completed", "skipped"})


class Attempt(Struct, frozen=True, array_like=True):
    """An attempt without an end; `seq` is that of its `step_started`."""

    attempt: int
    seq: int
    started_at: datetime
    session_id: str | None = None
    incarnation: str | None = None
    message_id: str | None = None
    turn_id: str | None = None


class StepState(Struct, frozen=True, omit_defaults=True):
    """How a step stands. `attempts` counts all, `used` those since it was opened (again).

    `ended_seq` is that of its newest `step_ended`.
    """

    status: StepStatus = "pending"
    attempts: int = 0
    used: int = 0
    open: Attempt | None = None
    retry_at: datetime | None = None
    ended_seq: int | None = None
    reason: str | None = None
    cause: str | None = None
    approved: bool = False


class State(Struct, frozen=True):
    """What a journal up to `last_seq` comes to."""

    schema: int = SCHEMA
    last_seq: int = 0
    name: str = ""
    status: Status = "running"
    why: str | None = None
    owner: str | None = None
    ended_at: datetime | None = None
    steps: Mapping[str, StepState] = {}

    @property
    def is_over(self) -> bool:
        """Whether nothing more happens by itself."""
        return self.status in OVER

    @property
    def open_attempts(self) -> dict[str, Attempt]:
        """The attempts without an end, by step."""
        return {name: each.open for name, each in self.steps.items() if each.open is not None}


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

    The first end of an attempt counts, and an attempt starts once: what others stored at the same
    time changes nothing.

    Raises:
        StateUnreplayableError: a `seq` is missing, or a fact that decides cannot be read.

    """
    if stored.seq != state.last_seq + 1:
        raise StateUnreplayableError(
            f"seq {stored.seq} follows {state.last_seq}: an entry is missing or doubled"
        )
    return replace(state, last_seq=stored.seq, **_decide(state, stored))


def _decide(state: State, stored: StoredEntry) -> dict[str, Any]:
    match stored.view:
        case WorkflowDefined() as fact:
            plan = plan_of(fact)
            if plan is None:
                raise _broken(stored, "this version cannot run what it defines")
            steps = {step.id: StepState() for step in plan.workflow.steps}
            return {"name": plan.workflow.name, "steps": steps}
        case SessionOwned(principal=principal):
            return {"owner": principal}
        case WorkflowSwitched(status=status, why=why):
            return {"status": status, "why": why}
        case WorkflowEnded(reason=reason, cause=cause):
            return {"status": reason, "why": _cut(cause), "ended_at": stored.created_at}
        case StepStarted() as started:
            return _changed(state, started.step, _started(state, stored, started))
        case StepEnded() as ended:
            return _changed(state, ended.step, _ended(state, stored, ended))
        case StepSkipped(step=step, why=why):
            changes = {"status": "skipped", "reason": "skipped", "cause": _cut(why)}
            return _changed(state, step, changes | {"retry_at": None}) | _again(state)
        case StepAnswered(step=step, approve=True):
            return _changed(state, step, {"approved": True})
        case StepAnswered(step=step, reason=reason):
            refused = {"status": "failed", "reason": "rejected", "cause": _cut(reason)}
            return _changed(state, step, refused)
        case StepsReopened(steps=steps):
            opened = dict(state.steps)
            for name in steps:
                if name in opened:
                    known = opened[name]
                    opened[name] = StepState(attempts=known.attempts, ended_seq=known.ended_seq)
            return {"steps": opened} | _again(state)
        case Opaque() if stored.type in _DECISIVE:
            raise _broken(stored, f"this version cannot read its {stored.type!r}")
        case _:
            return {}


_DECISIVE = frozenset(
    {
        "workflow_defined",
        "workflow_switched",
        "workflow_ended",
        "step_started",
        "step_ended",
        "step_skipped",
        "step_answered",
        "steps_reopened",
    }
)


def _started(state: State, stored: StoredEntry, fact: StepStarted) -> dict[str, Any]:
    known = state.steps.get(fact.step, StepState())
    if known.open is not None or fact.attempt != known.attempts + 1:
        return {}
    attempt = Attempt(
        fact.attempt,
        stored.seq,
        stored.created_at,
        fact.session_id,
        fact.incarnation,
        fact.message_id,
        fact.turn_id,
    )
    return {
        "status": "running",
        "attempts": fact.attempt,
        "used": known.used + 1,
        "open": attempt,
        "retry_at": None,
    }


def _ended(state: State, stored: StoredEntry, fact: StepEnded) -> dict[str, Any]:
    known = state.steps.get(fact.step, StepState())
    if known.open is None or known.open.attempt != fact.attempt:
        return {}
    if fact.retry_at is not None:
        status: StepStatus = "retrying"
    else:
        status = "completed" if fact.reason == "completed" else "failed"
    return {
        "status": status,
        "open": None,
        "retry_at": fact.retry_at,
        "ended_seq": stored.seq,
        "reason": fact.reason,
        "cause": _cut(fact.cause),
    }


def _changed(state: State, step: str, fields: dict[str, Any]) -> dict[str, Any]:
    if step not in state.steps or not fields:
        return {}
    return {"steps": {**state.steps, step: replace(state.steps[step], **fields)}}


def _again(state: State) -> dict[str, Any]:
    """A workflow that was over goes on."""
    return {"status": "running", "why": None, "ended_at": None} if state.is_over else {}


def _cut(text: str | None) -> str | None:
    return text if text is None or len(text) <= CAUSE_CHARS else text[: CAUSE_CHARS - 1] + "…"


def _broken(stored: StoredEntry, detail: str) -> StateUnreplayableError:
    return StateUnreplayableError(f"the entry {stored.id!r} at seq {stored.seq}: {detail}")
