"""What each command means to a session: a step of its actor, decided on the state as it stands.

A step that is decided again, after an append in doubt, first looks for what it stored already.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

from msgspec import Struct

from perdure import clock
from perdure.codec import StoredEntry, encode
from perdure.context import call_key
from perdure.entry import File, Json, Message, Part, Text, ToolResult
from perdure.errors import (
    AppendRejectedError,
    ApprovalAnsweredError,
    ApprovalNotFoundError,
    EntryNotFoundError,
    IdempotencyConflictError,
    MessageRejectedError,
    NothingHeldError,
    NothingToResendError,
    QueuedMessageNotFoundError,
    SteeringUnsupportedError,
)
from perdure.fact import (
    LateResult,
    MessageDiscarded,
    MessageJoined,
    MessageQueued,
    Policy,
    Source,
    TurnStarted,
)
from perdure.server.session.actor import Actor
from perdure.server.session.batch import Input
from perdure.server.session.idempotency import (
    joined_id_of,
    late_id_of,
    message_id_of,
    queued_id_of,
    resent_id_of,
    same_body,
    turn_id_of,
)
from perdure.server.session.look import SessionLook
from perdure.server.session.path import has_result
from perdure.server.session.turn import Turn

_log = logging.getLogger("perdure.server")


class Sent(Struct, frozen=True):
    """A message was accepted, durably: `seq` is the entry that says so.

    `turn_id` is None while the message waits in the queue (`queued`), and when it was discarded.
    """

    message_id: str
    seq: int
    turn_id: str | None
    queued: bool


class Stopped(Struct, frozen=True):
    """Whether this ended the turn; False where it was over, or where none ran."""

    stopped: bool
    turn_id: str | None


@dataclass(frozen=True, slots=True)
class _Given:
    """A message as it was sent; an id that no key made is made once, before anything is tried."""

    parts: tuple[Part, ...]
    key: str | None
    fresh_id: str
    source: Source

    def message_id(self, incarnation: str) -> str:
        return message_id_of(incarnation, self.key) if self.key is not None else self.fresh_id


async def send(
    actor: Actor,
    parts: Sequence[Part],
    *,
    idempotency_key: str | None,
    if_running: Policy,
    source: Source = "user",
) -> Sent:
    """Accepts a message: starts its turn, or queues it behind the running one or the held ones.

    Raises:
        AppendRejectedError: no parts, or parts that a user cannot send; nothing stored.
        IdempotencyConflictError, MessageRejectedError, SteeringUnsupportedError: nothing stored.
        LoopError, ConfigurationError, MissingExtraError: the loop cannot start; nothing stored.
        PerdureError: as `Actor.command`.

    """
    _check_parts(parts)
    given = _Given(tuple(parts), idempotency_key, clock.new_id(), source)
    return await actor.command(lambda again: _send(actor, given, if_running, again))


async def _send(actor: Actor, given: _Given, if_running: Policy, again: bool) -> Sent:
    message_id = given.message_id(actor.session.incarnation)
    if again or given.key is not None:
        known = await _find(actor, given, message_id)
        if known is not None:
            return known
    open_turn_id = actor.open_turn_id
    match if_running:
        case "steer":
            if open_turn_id is not None and not await actor.can_steer():
                raise SteeringUnsupportedError(actor.session_id)
        case "reject":
            if open_turn_id is not None:
                raise MessageRejectedError(actor.session_id, open_turn_id)
        case "queue" | "interrupt":
            pass
        case _:
            assert_never(if_running)
    queued = MessageQueued(
        id=queued_id_of(actor.session.incarnation, message_id),
        message_id=message_id,
        parts=given.parts,
        policy=if_running,
        source=given.source,
    )
    if open_turn_id is not None:
        cause = f"message {message_id} took its place"
        turn = actor.turn
        if if_running == "interrupt" and turn is None:
            receipt = await actor.end_waiting("stopped", cause, instead=queued)
        else:
            receipt = await actor.append([queued])
            if if_running == "interrupt" and turn is not None:
                turn.gives_way = True
                turn.ask_to_end("stopped", cause)
        return Sent(message_id, receipt.first_seq, None, queued=True)
    if actor.state.queue and if_running != "interrupt":
        head = await actor.load_queued(actor.state.queue[0])
        receipt, _ = await actor.start(head, before=[queued])
        return Sent(message_id, receipt.first_seq, None, queued=True)
    message = Message("user", given.parts, id=message_id)
    receipt, turn_id = await actor.start(Input(message, given.source))
    return Sent(message_id, receipt.last_seq, turn_id, queued=False)


async def _find(actor: Actor, given: _Given, message_id: str) -> Sent | None:
    """What became of this message, if it was accepted before."""
    incarnation = actor.session.incarnation
    queued = await _entry(actor, queued_id_of(incarnation, message_id))
    message = await _entry(actor, message_id)
    accepted = queued or message
    if accepted is None:
        return None
    view = accepted.view
    if not isinstance(view, Message | MessageQueued) or not same_body(view.parts, given.parts):
        raise IdempotencyConflictError(actor.session_id, message_id)
    turn_id = turn_id_of(incarnation, message_id) if message is not None else None
    if message is not None and isinstance(view, MessageQueued) and view.policy == "steer":
        joined = await _entry(actor, joined_id_of(incarnation, message_id))
        if joined is not None and isinstance(joined.view, MessageJoined):
            turn_id = joined.view.turn_id
    waits = actor.state.queued(message_id) is not None
    return Sent(message_id, accepted.seq, turn_id, queued=waits)


async def _entry(actor: Actor, entry_id: str) -> StoredEntry | None:
    try:
        return await actor.store.load_entry(actor.session_id, entry_id)
    except EntryNotFoundError:
        return None


async def stop(actor: Actor, turn_id: str | None, *, discard_queued: bool) -> Stopped:
    """Ends that turn, or the running one, and returns when its end is stored; in bounded time.

    A turn that is over, or was never there, is left alone, and so is the queue then.

    Raises:
        PerdureError: as `Actor.command`; or the store failed before the end was stored.

    """

    async def ask(again: bool) -> Turn | str | None:
        turn, open_turn_id = actor.turn, actor.open_turn_id
        if turn_id is not None and open_turn_id != turn_id:
            return None
        if discard_queued and actor.state.queue:
            await actor.append(
                [
                    MessageDiscarded(message_id=each.message_id, why="discarded by a stop")
                    for each in actor.state.queue
                ]
            )
        if turn is None and open_turn_id is not None:
            await actor.end_waiting("stopped", None)
            return open_turn_id
        if turn is not None:
            turn.ask_to_end("stopped", None)
        return turn

    turn = await actor.command(ask)
    if turn is None:
        return Stopped(stopped=False, turn_id=turn_id)
    if isinstance(turn, str):
        return Stopped(stopped=True, turn_id=turn)
    reason = await asyncio.shield(turn.ended)
    return Stopped(stopped=reason == "stopped", turn_id=turn.turn_id)


async def resend(actor: Actor, turn_id: str | None) -> Sent:
    """Starts a new turn from the input of the last one, which did not complete.

    Where `turn_id` names it, asking twice starts one turn, across crashes too.

    Raises:
        TurnRunningError, NothingToResendError: nothing stored.
        PerdureError: as `Actor.command`, and where the loop cannot start.

    """
    fresh_id = clock.new_id()

    async def step(again: bool) -> Sent:
        new_id = fresh_id
        if turn_id is not None:
            new_id = resent_id_of(actor.session.incarnation, turn_id)
        if (known := await _entry(actor, new_id)) is not None:
            assert isinstance(known.view, TurnStarted)
            return Sent(known.view.message_id, known.seq, new_id, queued=False)
        actor.check_idle()
        last = actor.state.last_turn
        is_meant = last is not None and turn_id in (None, last.turn_id)
        if last is None or last.reason == "completed" or not is_meant:
            raise NothingToResendError(actor.session_id)
        receipt = await actor.start_again(last.message_id, new_id, last.turn_id)
        return Sent(last.message_id, receipt.last_seq, new_id, queued=False)

    return await actor.command(step)


async def go_on(actor: Actor) -> Sent:
    """Runs the held queue from its first message.

    Raises:
        TurnRunningError, NothingHeldError: nothing stored.
        PerdureError: as `Actor.command`, and where the loop cannot start.

    """
    chosen: list[str] = []

    async def step(again: bool) -> Sent:
        actor.check_idle()
        if chosen and actor.state.queued(chosen[0]) is None:
            stored = await actor.store.load_entry(actor.session_id, chosen[0])
            turn_id = turn_id_of(actor.session.incarnation, stored.id)
            return Sent(stored.id, stored.seq, turn_id, queued=False)
        if not actor.state.queue:
            raise NothingHeldError(actor.session_id)
        head = await actor.load_queued(actor.state.queue[0])
        chosen[:] = [head.message.id]
        receipt, turn_id = await actor.start(head)
        return Sent(head.message.id, receipt.last_seq, turn_id, queued=False)

    return await actor.command(step)


async def discard(actor: Actor, message_id: str) -> None:
    """Takes a message out of the queue, by an entry that says so.

    Raises:
        QueuedMessageNotFoundError: it does not wait; nothing stored.

    """

    async def step(again: bool) -> None:
        if actor.state.queued(message_id) is None:
            if again:
                return
            raise QueuedMessageNotFoundError(actor.session_id, message_id)
        await actor.append([MessageDiscarded(message_id=message_id, why="discarded")])

    await actor.command(step)


async def edit_queued(actor: Actor, message_id: str, parts: Sequence[Part]) -> Sent:
    """Gives a message that waits other parts; it keeps its id and its place in the queue.

    It is discarded and queued anew, and so are those behind it, in one batch.

    Raises:
        AppendRejectedError: no parts, or parts that a user cannot send; nothing stored.
        QueuedMessageNotFoundError: it does not wait, maybe since it runs; nothing stored.

    """
    _check_parts(parts)

    async def step(again: bool) -> Sent:
        edited = actor.state.queued(message_id)
        if edited is None:
            raise QueuedMessageNotFoundError(actor.session_id, message_id)
        if again and (await actor.load_queued(edited)).message.parts == tuple(parts):
            return Sent(message_id, edited.seq, None, queued=True)
        at = actor.state.queue.index(edited)
        source = (await actor.load_queued(edited)).source
        kept = [await actor.load_queued(each) for each in actor.state.queue[at + 1 :]]
        behind = list(zip(actor.state.queue[at + 1 :], kept, strict=True))
        receipt = await actor.append(
            [
                MessageDiscarded(message_id=message_id, why="edited"),
                *(
                    MessageDiscarded(message_id=each.message_id, why="queued anew, in its place")
                    for each, _ in behind
                ),
                MessageQueued(
                    message_id=message_id, parts=tuple(parts), policy=edited.policy, source=source
                ),
                *(
                    MessageQueued(
                        message_id=each.message_id,
                        parts=given.message.parts,
                        policy=each.policy,
                        source=given.source,
                    )
                    for each, given in behind
                ),
            ]
        )
        return Sent(message_id, receipt.first_seq + 1 + len(behind), None, queued=True)

    return await actor.command(step)


async def answer(
    actor: Actor,
    call_id: str,
    *,
    approve: bool,
    reason: str | None,
    arguments: Json,
    requested_seq: int | None = None,
) -> None:
    """Answers a call that waits for an approval; the last answer that is missing resumes the turn.

    `arguments` replace the call's own, where they are given. The same answer again does nothing;
    a yes to other arguments is another answer. `requested_seq` is the request that is meant, where
    a later one of this call's id is not.

    Raises:
        ApprovalNotFoundError, ApprovalAnsweredError: nothing stored.
        PerdureError: as `Actor.command`, and where the loop cannot start.

    """

    async def step(again: bool) -> None:
        turn = actor.state.turn
        call = turn.waiting_call(call_id) if turn is not None else None
        if turn is None or call is None or requested_seq not in (None, call.seq):
            raise ApprovalNotFoundError(actor.session_id, call_id)
        fact = actor.new_answer(
            turn.turn_id, call, approve=approve, reason=reason, arguments=arguments
        )
        if call.approved is not None:
            given = await actor.load_answer(turn.turn_id, call)
            is_same = call.approved == approve
            if is_same and (not approve or encode(given.arguments) == encode(arguments)):
                return
            raise ApprovalAnsweredError(actor.session_id, call_id)
        await actor.answer(call, fact)

    await actor.command(step)


async def note_late(actor: Actor, key: str, result: ToolResult) -> None:
    """Keeps a result that came after its call was interrupted, as a fact; it changes nothing.

    `key` is the call's idempotency key. One that is kept already, that had arrived in time, or that
    is of no call of this session, is not kept.
    """

    async def step(again: bool) -> None:
        fact_id = late_id_of(actor.session.incarnation, key)
        if await _entry(actor, fact_id) is not None:
            return
        message_id = await _caller_of(actor, key, result.call_id)
        if message_id is None:
            _log.warning("a late result for session %r is of no call of it", actor.session_id)
            return
        leaf_id = actor.state.leaf_id
        store, session_id = actor.store, actor.session_id
        if not await has_result(store, session_id, leaf_id, message_id, result.call_id):
            await actor.append([LateResult(id=fact_id, call_id=result.call_id, parts=result.parts)])

    await actor.command(step)


async def _caller_of(actor: Actor, key: str, call_id: str) -> str | None:
    """The id of the message of this session that made the call of this key."""
    turn_id, _, rest = key.partition(":")
    message_id = rest.partition(":")[0]
    stored = await _entry(actor, message_id) if message_id else None
    if stored is None or not isinstance(stored.view, Message):
        return None
    calls = {call.call_id for call in stored.view.tool_calls}
    is_its = call_id in calls and key == call_key(turn_id, message_id, call_id)
    return message_id if is_its else None


async def reopen(actor: Actor) -> SessionLook:
    """Wakes the session; one that was unrecoverable is well again where the cause is gone.

    Raises:
        PerdureError: as `Actor.command`: the cause is still there.

    """

    async def step(again: bool) -> SessionLook:
        return actor.look()

    return await actor.command(step)


def _check_parts(parts: Sequence[Part]) -> None:
    if not parts or not all(isinstance(part, Text | File) for part in parts):
        raise AppendRejectedError("a message has one part or more, each a text or a file")
