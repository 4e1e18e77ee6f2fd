"""A workflow's state: what its journal comes to, folded one entry at a time by the pure `apply`.

It has how each step stands, and the attempt that has no end yet; what was said and seen stays in
the journal. It is also the workflow's summary, so that listing and starting read no journal.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from perdure.codec import StoredEntry
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
from perdure.server.fold import Changes, Fold, Folded, broken
from perdure.server.workflow.definition import plan_of

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


class State(Folded, frozen=True):
    """What a journal up to `last_seq` comes to."""

    schema: int = SCHEMA
    name: str = ""
    status: Status = "running"
    why: str | None = None
    owner: str | None = None
    ended_at: datetime | None = None
    steps: Mapping[str, StepState] = {}
    undoes: tuple[str, ...] = ()
    """The compensation steps."""

    @property
    def is_over(self) -> bool:
        """Whether nothing more happens by itself."""
        return self.status in OVER

    @property
    def counted(self) -> list[StepState]:
        """The steps that count: all but compensation steps that nothing has asked for."""
        return [
            each
            for name, each in self.steps.items()
            if name not in self.undoes or each.attempts or each.status != "pending"
        ]

    @property
    def open_attempts(self) -> dict[str, Attempt]:
        """The attempts without an end, by step."""
        return {name: each.open for name, each in self.steps.items() if each.open is not None}


def _decide(state: State, stored: StoredEntry) -> Changes:
    match stored.view:
        case WorkflowDefined() as fact:
            plan = plan_of(fact)
            if plan is None:
                raise broken(stored, "this version cannot run what it defines")
            steps = {step.id: StepState() for step in plan.workflow.steps}
            undoes = tuple(plan.undoes)
            return {"name": plan.workflow.name, "steps": steps, "undoes": undoes}
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
        case _:
            raise AssertionError(stored.type)


_DECISIVE = frozenset(
    {
        "workflow_defined",
        "session_owned",
        "workflow_switched",
        "workflow_ended",
        "step_started",
        "step_ended",
        "step_skipped",
        "step_answered",
        "steps_reopened",
    }
)


def _started(state: State, stored: StoredEntry, fact: StepStarted) -> Changes:
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


def _ended(state: State, stored: StoredEntry, fact: StepEnded) -> Changes:
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


def _changed(state: State, step: str, fields: Changes) -> Changes:
    if step not in state.steps or not fields:
        return {}
    return {"steps": {**state.steps, step: replace(state.steps[step], **fields)}}


def _again(state: State) -> Changes:
    """A workflow that was over goes on."""
    return {"status": "running", "why": None, "ended_at": None} if state.is_over else {}


def _cut(text: str | None) -> str | None:
    return text if text is None or len(text) <= CAUSE_CHARS else text[: CAUSE_CHARS - 1] + "…"


FOLD = Fold(State(), _DECISIVE, _decide)
"""The first end of an attempt counts, and an attempt starts once: what others stored at the same
time changes nothing."""

apply, fold = FOLD.apply, FOLD.fold
encode_state, decode_state = FOLD.encode, FOLD.decode
