"""What can be said of a workflow: the answers of the API.

The look has the steps as a graph, the attempts of each, and where each attempt is: its session,
its turn, and the entries of the workflow's own journal that say so.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from perdure.codec import StoredEntry
from perdure.encoding import encode
from perdure.entry import Json
from perdure.fact import StepAnswered, StepChecked, StepEnded, StepSkipped, StepStarted
from perdure.server.session.seen import cut
from perdure.server.workflow.plan import is_waiting, waiting
from perdure.server.workflow.prompt import NOT_A_ROLLBACK
from perdure.server.workflow.state import DONE, StepState, decode_state
from perdure.server.workflow.work import Work
from perdure.store import Look, Session
from perdure.workflow import Step

SHOWN_CHARS = 4000
"""How much of a prompt, and of what was said, is shown."""

_PAGE = 256

Status = Literal[
    "running",
    "waiting",
    "paused",
    "cancelling",
    "completed",
    "failed",
    "cancelled",
    "unrecoverable",
]
StepLookStatus = Literal[
    "pending", "waiting", "running", "retrying", "completed", "failed", "skipped"
]


class CheckLook(Struct, frozen=True):
    """What the check of an attempt found."""

    check: str
    passed: bool
    output: str | None
    seconds: float
    seq: int


class AttemptLook(Struct, frozen=True):
    """An attempt at a step. `reason` None: it has not ended. `seen` are its tool calls.

    `started_seq` and `ended_seq` are the entries of the workflow's journal that say so.
    """

    attempt: int
    started_at: datetime
    started_seq: int
    session_id: str | None
    message_id: str | None
    turn_id: str | None
    prompt: str | None
    reason: str | None = None
    cause: str | None = None
    output: str | None = None
    seen: Json = None
    check: CheckLook | None = None
    ended_at: datetime | None = None
    ended_seq: int | None = None
    retry_at: datetime | None = None


class AnswerLook(Struct, frozen=True):
    """Whether a person let a step start; `skip`: or had it passed over."""

    answer: Literal["approve", "reject", "skip"]
    reason: str | None
    by: str | None
    at: datetime
    seq: int


class StepLook(Struct, frozen=True):
    """A step: what it is, how it stands, and its attempts. `needs` are the graph's edges to it.

    `undoes` are the steps whose failure it is for; it runs only then. `waiting`: a person has to
    approve it.
    """

    step: str
    title: str | None
    status: StepLookStatus
    reason: str | None
    cause: str | None
    needs: tuple[str, ...]
    undoes: tuple[str, ...]
    compensate: str | None
    prompt: str
    session: str | None
    loop: str | None
    runtime: str | None
    limit_s: float | None
    approve: bool
    check: str | None
    most_attempts: int
    retry_at: datetime | None
    attempts: tuple[AttemptLook, ...] = ()
    answers: tuple[AnswerLook, ...] = ()


class WorkflowBrief(Struct, frozen=True):
    """A workflow in a listing. `done` of its `steps` are completed or skipped.

    A compensation step counts once something has asked for it.
    """

    workflow_id: str
    name: str
    status: Status
    why: str | None
    created_at: datetime
    ended_at: datetime | None
    owner: str | None
    done: int
    steps: int
    last_seq: int


class WorkflowLook(Struct, frozen=True):
    """A workflow as it stands. `note` says what a retry is not. `cursor` names this look."""

    workflow_id: str
    name: str
    description: str | None
    status: Status
    why: str | None
    created_at: datetime
    ended_at: datetime | None
    owner: str | None
    inputs: Json
    source: str | None
    note: str
    steps: tuple[StepLook, ...]
    last_seq: int
    cursor: str


def brief_of(look: Look, lost: str | None = None, kept: Work | None = None) -> WorkflowBrief:
    """The workflow of a look, by its summary alone; `lost` is why its journal cannot be read.

    Whether it waits for an approval is told of one that is `kept`.
    """
    state, session = decode_state(look.summary), look.session
    if state is None or look.damage is not None or lost is not None:
        why = look.damage or lost or "its summary cannot be read"
        return _lost(session, why, look.last_seq)
    done = sum(each.status in DONE for each in state.counted)
    is_kept = kept is not None and kept.incarnation == session.incarnation
    status: Status = state.status
    if kept is not None and is_kept and is_waiting(kept.plan, state):
        status = "waiting"
    return WorkflowBrief(
        workflow_id=session.id,
        name=state.name,
        status=status,
        why=state.why,
        created_at=session.created_at,
        ended_at=state.ended_at,
        owner=state.owner,
        done=done,
        steps=len(state.counted),
        last_seq=state.last_seq,
    )


def _lost(session: Session, why: str, last_seq: int) -> WorkflowBrief:
    return WorkflowBrief(
        workflow_id=session.id,
        name="",
        status="unrecoverable",
        why=why,
        created_at=session.created_at,
        ended_at=None,
        owner=None,
        done=0,
        steps=0,
        last_seq=last_seq,
    )


async def look_at(work: Work) -> WorkflowLook:
    """The workflow as its journal says; O(its journal).

    Raises:
        SessionNotFoundError, StoreError, UnrecoverableError.

    """
    state, workflow = work.state, work.plan.workflow
    attempts: dict[str, dict[int, AttemptLook]] = {step.id: {} for step in workflow.steps}
    answers: dict[str, list[AnswerLook]] = {step.id: [] for step in workflow.steps}
    seq = 0
    while seq < state.last_seq:
        page = await work.store.page_entries(work.name, after=seq, limit=_PAGE)
        if not page.entries:
            break
        for stored in page.entries:
            if stored.seq <= state.last_seq:
                _collect(stored, attempts, answers)
        seq = page.entries[-1].seq
    held = set(waiting(work.plan, state))
    steps = [
        _step(work, step, state.steps[step.id], attempts[step.id], answers[step.id], held)
        for step in workflow.steps
    ]
    inputs: Any = msgspec.json.decode(encode(dict(work.plan.inputs)))
    return WorkflowLook(
        workflow_id=work.name,
        name=workflow.name,
        description=workflow.description,
        status="waiting" if is_waiting(work.plan, state) else state.status,
        why=state.why,
        created_at=work.session.created_at,
        ended_at=state.ended_at,
        owner=state.owner,
        inputs=inputs,
        source=work.plan.source,
        note=NOT_A_ROLLBACK,
        steps=tuple(steps),
        last_seq=state.last_seq,
        cursor=f"{state.last_seq}.{work.incarnation}",
    )


def _step(
    work: Work,
    step: Step,
    known: StepState,
    attempts: dict[int, AttemptLook],
    answers: Sequence[AnswerLook],
    held: set[str],
) -> StepLook:
    check = step.check
    status: StepLookStatus = "waiting" if step.id in held else known.status
    if work.state.is_over and status == "retrying":
        status = "failed"  # it was cancelled before its next attempt
    return StepLook(
        step=step.id,
        title=step.title,
        status=status,
        reason=known.reason,
        cause=known.cause,
        needs=work.plan.needs[step.id],
        undoes=work.plan.undoes.get(step.id, ()),
        compensate=step.compensate,
        prompt=cut(step.prompt, SHOWN_CHARS),
        session=step.session,
        loop=step.loop or work.plan.workflow.loop,
        runtime=step.runtime or work.plan.workflow.runtime,
        limit_s=step.limit_s,
        approve=step.approve,
        check=None if check is None else check.command or check.function,
        most_attempts=work.plan.workflow.retry_of(step).attempts,
        retry_at=known.retry_at if status == "retrying" else None,
        attempts=tuple(attempts.values()),
        answers=tuple(answers),
    )


def _collect(
    stored: StoredEntry,
    attempts: dict[str, dict[int, AttemptLook]],
    answers: dict[str, list[AnswerLook]],
) -> None:
    match stored.view:
        case StepStarted() as start if start.attempt not in attempts.get(start.step, {}):
            attempts.setdefault(start.step, {})[start.attempt] = AttemptLook(
                attempt=start.attempt,
                started_at=stored.created_at,
                started_seq=stored.seq,
                session_id=start.session_id,
                message_id=start.message_id,
                turn_id=start.turn_id,
                prompt=_shown(start.prompt),
            )
        case StepChecked(step=step, attempt=number) as found if number in attempts.get(step, {}):
            check = CheckLook(found.check, found.passed, found.output, found.seconds, stored.seq)
            attempts[step][number] = replace(attempts[step][number], check=check)
        case StepEnded(step=step, attempt=number) as end if number in attempts.get(step, {}):
            if attempts[step][number].ended_seq is None:
                attempts[step][number] = replace(
                    attempts[step][number],
                    reason=end.reason,
                    cause=end.cause,
                    output=_shown(end.output),
                    seen=end.seen,
                    ended_at=stored.created_at,
                    ended_seq=stored.seq,
                    retry_at=end.retry_at,
                )
        case StepAnswered(step=step, approve=approve, reason=reason, by=by):
            said: Literal["approve", "reject"] = "approve" if approve else "reject"
            answer = AnswerLook(said, reason, by, stored.created_at, stored.seq)
            answers.setdefault(step, []).append(answer)
        case StepSkipped(step=step, why=why, by=by):
            answer = AnswerLook("skip", why, by, stored.created_at, stored.seq)
            answers.setdefault(step, []).append(answer)
        case _:
            pass


def _shown(text: str | None) -> str | None:
    return None if text is None else cut(text, SHOWN_CHARS)
