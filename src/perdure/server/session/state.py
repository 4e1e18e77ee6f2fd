"""A session's state: what its journal comes to, folded one entry at a time by `apply`.

`apply` is the only thing that changes a state, live and in replay alike; it is pure. A state holds
no entries: its size does not grow with the session, only with the queue of messages that wait. It
is also the session's *summary*: the bytes that are stored beside the entries it follows from.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from perdure.codec import StoredEntry, encode
from perdure.entry import Json, Message, Text
from perdure.fact import (
    ApprovalAnswered,
    ApprovalRequested,
    Claimed,
    LeafMoved,
    LoopChosen,
    LoopRemembered,
    MessageDiscarded,
    MessageJoined,
    MessageQueued,
    Policy,
    RuntimeAttached,
    SessionOwned,
    SessionStarted,
    TurnEnded,
    TurnReason,
    TurnStarted,
)
from perdure.server.fold import Changes, Fold, Folded, broken
from perdure.server.session.approval import WaitingCall, answered, requested
from perdure.snapshot import Snapshot, Upcast

SCHEMA = 5
"""The number of the serialised form *and* of what `apply` makes of a journal: either one changes
with it. Schema 1 did not count crashes, and had no digest; 2 had no title, 3 no owner,
4 no approvals and nothing that loops remember."""

INLINE_BYTES = 2 * 1024
"""How much of a queued message is in the state, which is stored anew with every entry."""

MOST_REMEMBERED = 4
"""How many keys of what loops remember are kept: the newest."""

BEGINNING_CHARS = 200
"""How much of a text that is too long for that is shown."""


TITLE_CHARS = 100
"""How much of its first message a session is called by."""


class Claim(Struct, frozen=True, array_like=True):
    """Who owns the session."""

    epoch: int
    node: str


class OpenTurn(Struct, frozen=True, array_like=True):
    """The turn that has no end yet; the server died in `crashes` turns that it resends.

    `waiting` are its calls that were asked about last, those with an answer among them.
    """

    turn_id: str
    message_id: str
    started_at: datetime
    crashes: int = 0
    waiting: tuple[WaitingCall, ...] = ()

    @property
    def unanswered(self) -> tuple[WaitingCall, ...]:
        """The calls that wait for an answer."""
        return tuple(each for each in self.waiting if each.approved is None)

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing runs, and nothing has to, until somebody answers."""
        return any(not each.in_run for each in self.unanswered)

    def waiting_call(self, call_id: str) -> WaitingCall | None:
        """The call of this id, if it was asked about."""
        return next((each for each in self.waiting if each.call_id == call_id), None)


class EndedTurn(Struct, frozen=True, array_like=True):
    """The turn that ended last.

    `crashes`: in how many turns the server died, of this one and those that it resends.
    """

    turn_id: str
    message_id: str
    reason: TurnReason
    cause: str | None
    crashes: int = 0


class QueuedMessage(Struct, frozen=True, array_like=True):
    """A message that was accepted and has not run; the whole of it is the fact at `seq`."""

    message_id: str
    seq: int
    policy: Policy
    parts: tuple[Json, ...]


class State(Folded, frozen=True):
    """What a journal up to `last_seq` comes to."""

    schema: int = SCHEMA
    leaf_id: str | None = None
    turn: OpenTurn | None = None
    last_turn: EndedTurn | None = None
    queue: tuple[QueuedMessage, ...] = ()
    claim: Claim | None = None
    loop: str | None = None
    last_activity: datetime | None = None
    title: str | None = None
    owner: str | None = None
    runtime: str | None = None
    remembered: tuple[tuple[str, Json], ...] = ()
    has_started: bool = False

    @property
    def epoch(self) -> int:
        """The epoch of the newest claim; 0 where nobody ever claimed it."""
        return self.claim.epoch if self.claim is not None else 0

    def queued(self, message_id: str) -> QueuedMessage | None:
        """The waiting message of this id."""
        return next((each for each in self.queue if each.message_id == message_id), None)


def _count_crashes(value: dict[str, Any]) -> dict[str, Any]:
    """Schema 1 to 2: what was not counted counts from here on."""
    return value


def _keep(value: dict[str, Any]) -> dict[str, Any]:
    """Schema 2 to 3: a session that has no title yet gets one of its next message."""
    return value


def _own(value: dict[str, Any]) -> dict[str, Any]:
    """Schema 3 to 4: what nobody owned stays so."""
    return value


def _wait(value: dict[str, Any]) -> dict[str, Any]:
    """Schema 4 to 5: before it nothing waited for an approval, and nothing was remembered."""
    return value


_UPCASTS: Mapping[int, Upcast] = {1: _count_crashes, 2: _keep, 3: _own, 4: _wait}


def take_snapshot(state: State, incarnation: str) -> Snapshot:
    """The state as a snapshot."""
    return Snapshot(state.last_seq, state.schema, incarnation, encode_state(state))


def read_snapshot(snapshot: Snapshot, *, incarnation: str, last_seq: int) -> State | None:
    """The state of a snapshot; None where it counts as absent for this journal."""
    if not snapshot.fits(incarnation, last_seq):
        return None
    state = decode_state(snapshot.data)
    return state if state is not None and state.last_seq == snapshot.seq else None


def _note(state: State, stored: StoredEntry) -> Changes:
    changes: Changes = {}
    if stored.type != "claimed":
        changes["last_activity"] = stored.created_at
    if stored.entry.in_tree:
        changes["leaf_id"] = stored.id
        if state.title is None and stored.type == "message":
            changes["title"] = _title_of(stored)
    return changes


def _title_of(stored: StoredEntry) -> str | None:
    """The beginning of what a person said, on one line."""
    message = stored.view
    if not isinstance(message, Message) or message.role != "user" or message.meta:
        return None
    line = " ".join(message.text[: TITLE_CHARS * 4].split())
    return (line if len(line) <= TITLE_CHARS else line[: TITLE_CHARS - 1] + "…") or None


_DECISIVE = frozenset(
    {
        "claimed",
        "turn_started",
        "turn_ended",
        "message_queued",
        "message_discarded",
        "leaf_moved",
        "loop_chosen",
        "session_owned",
        "message_joined",
        "approval_requested",
        "approval_answered",
        "runtime_attached",
        "loop_remembered",
        "session_started",
    }
)


def _decide(state: State, stored: StoredEntry) -> Changes:
    match stored.view:
        case Claimed(epoch=epoch, node=node):
            if epoch <= state.epoch:
                raise broken(stored, f"epoch {epoch} was claimed after epoch {state.epoch}")
            return {"claim": Claim(epoch, node)}
        case TurnStarted(turn_id=turn_id, message_id=message_id, resends=resends):
            if state.turn is not None:
                raise broken(stored, f"turn {turn_id!r} starts inside {state.turn.turn_id!r}")
            last = state.last_turn
            is_resent = last is not None and last.turn_id == resends
            crashes = last.crashes if last is not None and is_resent else 0
            return {
                "turn": OpenTurn(turn_id, message_id, stored.created_at, crashes),
                "queue": _without(state.queue, message_id),
            }
        case TurnEnded(turn_id=turn_id, reason=reason, cause=cause, crashed=crashed):
            if state.turn is None or state.turn.turn_id != turn_id:
                return {}
            crashes = state.turn.crashes + crashed
            ended = EndedTurn(turn_id, state.turn.message_id, reason, cause, crashes)
            return {"turn": None, "last_turn": ended}
        case MessageQueued() as queued:
            if state.queued(queued.message_id) is not None:
                raise broken(stored, f"message {queued.message_id!r} is queued already")
            return {"queue": _with(state.queue, queued, stored.seq)}
        case MessageDiscarded(message_id=message_id):
            return {"queue": _without(state.queue, message_id)}
        case LeafMoved(leaf_id=leaf_id):
            return {"leaf_id": leaf_id}
        case LoopChosen(name=name):
            return {"loop": name}
        case SessionOwned(principal=principal):
            return {"owner": principal}
        case MessageJoined(message_id=message_id):
            return {"queue": _without(state.queue, message_id)}
        case ApprovalRequested() | ApprovalAnswered() as fact:
            return _ask(state, fact, stored.seq)
        case RuntimeAttached(runtime_id=runtime_id):
            return {"runtime": runtime_id}
        case LoopRemembered(key=key, value=value):
            kept = [each for each in state.remembered if each[0] != key]
            return {"remembered": (*kept[1 - MOST_REMEMBERED :], (key, value))}
        case SessionStarted():
            return {"has_started": True}
        case _:
            raise AssertionError(stored.type)


def _ask(state: State, fact: ApprovalRequested | ApprovalAnswered, seq: int) -> Changes:
    turn = state.turn
    if turn is None or turn.turn_id != fact.turn_id:
        return {}
    if isinstance(fact, ApprovalRequested):
        waiting = requested(turn.waiting, fact, seq)
    else:
        waiting = answered(turn.waiting, fact)
    return {"turn": replace(turn, waiting=waiting)}


def _without(queue: tuple[QueuedMessage, ...], message_id: str) -> tuple[QueuedMessage, ...]:
    return tuple(each for each in queue if each.message_id != message_id)


def _with(
    queue: tuple[QueuedMessage, ...], fact: MessageQueued, seq: int
) -> tuple[QueuedMessage, ...]:
    """The queue with one more: in order, but those that interrupt before those that wait."""
    one = QueuedMessage(fact.message_id, seq, fact.policy, _shown(fact))
    at = len(queue)
    if fact.policy == "interrupt":
        at = sum(1 for each in queue if each.policy == "interrupt")
    return (*queue[:at], one, *queue[at:])


def _shown(fact: MessageQueued) -> tuple[Json, ...]:
    """The parts as JSON; of one that does not fit there is what it is, and a text's beginning."""
    shown = []
    left = INLINE_BYTES
    for part in fact.parts:
        raw = encode(part)
        value = msgspec.json.decode(raw)
        if len(raw) > left:
            kept = {name: value[name] for name in ("type", "media_type", "name") if name in value}
            if isinstance(part, Text):
                kept["text"] = part.text[:BEGINNING_CHARS]
            value = {**_cut(kept), "elided": True, "bytes": len(raw)}
        else:
            left -= len(raw)
        shown.append(value)
    return tuple(shown)


def _cut(kept: dict[str, Json]) -> dict[str, Json]:
    return {name: each[:BEGINNING_CHARS] for name, each in kept.items() if isinstance(each, str)}


FOLD = Fold(State(), _DECISIVE, _decide, _note, _UPCASTS)
"""Of several ends of a turn the first one counts. An epoch that goes back, and a turn that starts
inside another, cannot be. O(the queue) for each entry."""

apply, fold, place = FOLD.apply, FOLD.fold, FOLD.place
encode_state, decode_state = FOLD.encode, FOLD.decode
