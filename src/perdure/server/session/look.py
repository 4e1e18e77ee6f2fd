"""What can be said of a session without reading its journal: the answer to a look.

A look is made of the session's header, the summary that was stored with its newest entries, and
what this process knows: whether the open turn is alive here, and whether the store refuses.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Literal, get_args

from msgspec import Struct

from perdure.entry import Json
from perdure.fact import TurnReason
from perdure.server.session.limit import Limits
from perdure.server.session.state import OpenTurn, State
from perdure.store import Session

Status = Literal["idle", "running", "waiting", "interrupted", "failed", "unrecoverable", "deleted"]

STATUSES: tuple[Status, ...] = get_args(Status)

CUT_OFF = "the server ended in the middle of the turn, or lost the session"
"""Why a turn is interrupted that has no end and runs nowhere that is known."""

QUARANTINE_AFTER = Limits.quarantine_after


def cut_off(turn: OpenTurn, quarantine_after: int) -> tuple[Literal["interrupted", "failed"], str]:
    """The end of a turn that runs nowhere: `failed` if the server died in it that often."""
    crashes = turn.crashes + 1
    if crashes < quarantine_after:
        return "interrupted", CUT_OFF
    times = "once" if crashes == 1 else f"{crashes} times"
    return "failed", (
        f"the server ended in the middle of this turn {times}, so it is in quarantine: it may be "
        "what ends the server. It is sent again only when somebody asks for that"
    )


class TurnLook(Struct, frozen=True):
    """The turn that runs."""

    turn_id: str
    message_id: str
    started_at: datetime


class LastTurnLook(Struct, frozen=True):
    """The turn that ended last."""

    turn_id: str
    message_id: str
    reason: TurnReason
    cause: str | None


class QueuedLook(Struct, frozen=True):
    """A message that waits. `seq` is that of its `message_queued`, where elided parts are whole."""

    message_id: str
    parts: tuple[Json, ...]
    seq: int


class ApprovalLook(Struct, frozen=True):
    """A call that waits for an approval. `seq` is that of its `approval_requested`.

    Where the arguments do not fit here they are None, `elided`, and whole in that entry.
    """

    call_id: str
    name: str
    arguments: Json
    elided: bool
    reason: str | None
    expires_at: datetime | None
    seq: int


class SessionLook(Struct, frozen=True):
    """A session as `GET /v1/sessions/{id}` shows it.

    `held`: messages wait and nothing runs them until the next message or a go-on. `cursor` is the
    wire cursor of `last_seq`. `loop` is the loop that was chosen at creation, None for the default.
    `title` is the beginning of its first message. `owner` is the principal whose session it is,
    None where it belongs to admins. `runtime` is where its tools run, None for the default.
    `approvals` are what a session that is `waiting` waits for.
    """

    session_id: str
    parent_id: str | None
    created_at: datetime
    status: Status
    last_seq: int
    leaf_id: str | None
    turn: TurnLook | None
    queued: tuple[QueuedLook, ...]
    held: bool
    cause: str | None
    cursor: str
    loop: str | None
    last_turn: LastTurnLook | None
    last_activity: datetime
    title: str | None = None
    owner: str | None = None
    runtime: str | None = None
    approvals: tuple[ApprovalLook, ...] = ()


def look_of(
    session: Session,
    state: State,
    *,
    live: Collection[str] = (),
    failure: str | None = None,
    deleted: bool = False,
    quarantine_after: int = QUARANTINE_AFTER,
) -> SessionLook:
    """The look at a session in this state.

    `live` are the ids of the turns alive in this process; an open turn that is none of them, and
    does not wait for an approval, is shown as what the next wake will make of it: interrupted, or
    failed where the server died in it `quarantine_after` times. `failure` is why the session is
    unrecoverable.
    """
    turn, last = _turns(state, live, quarantine_after)
    approvals = _approvals(state) if turn is not None else ()
    status, cause = _status(turn, last, is_waiting=bool(approvals))
    if failure is not None:
        status, cause = "unrecoverable", failure
    return SessionLook(
        session_id=session.id,
        parent_id=session.parent_id,
        created_at=session.created_at,
        status="deleted" if deleted else status,
        last_seq=state.last_seq,
        leaf_id=state.leaf_id,
        turn=turn,
        queued=tuple(QueuedLook(q.message_id, q.parts, q.seq) for q in state.queue),
        held=turn is None and bool(state.queue),
        cause=cause,
        cursor=f"{state.last_seq}.{session.incarnation}",
        loop=state.loop,
        last_turn=last,
        last_activity=state.last_activity or session.created_at,
        title=state.title,
        owner=state.owner,
        runtime=state.runtime,
        approvals=approvals,
    )


def _approvals(state: State) -> tuple[ApprovalLook, ...]:
    if state.turn is None:
        return ()
    return tuple(
        ApprovalLook(
            each.call_id,
            each.name,
            each.arguments,
            each.is_elided,
            each.reason,
            each.expires_at,
            each.seq,
        )
        for each in state.turn.unanswered
    )


def _turns(
    state: State, live: Collection[str], quarantine_after: int
) -> tuple[TurnLook | None, LastTurnLook | None]:
    turn, last = state.turn, state.last_turn
    if turn is not None and (turn.turn_id in live or turn.is_at_rest):
        shown = TurnLook(turn.turn_id, turn.message_id, turn.started_at)
    elif turn is not None:
        reason, cause = cut_off(turn, quarantine_after)
        return None, LastTurnLook(turn.turn_id, turn.message_id, reason, cause)
    else:
        shown = None
    if last is None:
        return shown, None
    return shown, LastTurnLook(last.turn_id, last.message_id, last.reason, last.cause)


def _status(
    turn: TurnLook | None, last: LastTurnLook | None, *, is_waiting: bool
) -> tuple[Status, str | None]:
    if turn is not None:
        return ("waiting" if is_waiting else "running"), None
    if last is None:
        return "idle", None
    match last.reason:
        case "interrupted":
            return "interrupted", last.cause
        case "failed" | "refused":
            return "failed", last.cause
        case "completed" | "stopped":
            return "idle", None
