"""What each command means to a session: a step of its actor, decided on the state as it stands.

A step that is decided again, after an append in doubt, first looks for what it stored already.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

from msgspec import Struct

from perdure import clock
from perdure.codec import StoredEntry
from perdure.compaction import DEFAULT_PROMPT, plan_compaction
from perdure.context import RunContext
from perdure.entry import Compaction, File, Message, Part, Text, text
from perdure.errors import (
    AppendConflictError,
    AppendRejectedError,
    EntryNotFoundError,
    IdempotencyConflictError,
    LoopError,
    MessageRejectedError,
    NothingHeldError,
    NothingToResendError,
    PerdureError,
    QueuedMessageNotFoundError,
    SteeringUnsupportedError,
    TurnRunningError,
)
from perdure.fact import LeafMoved, MessageDiscarded, MessageQueued, Policy
from perdure.loop import Loop
from perdure.run import summarise
from perdure.server.session.actor import Actor
from perdure.server.session.idempotency import message_id_of, queued_id_of, same_body, turn_id_of
from perdure.server.session.look import SessionLook
from perdure.server.session.path import load_model_path
from perdure.server.session.turn import Turn, describe


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


class Compacted(Struct, frozen=True):
    """The stored compaction; `entry` is None where there was nothing to summarise."""

    entry: StoredEntry | None
    leaf_id: str | None


@dataclass(frozen=True, slots=True)
class _Given:
    """A message as it was sent; an id that no key made is made once, before anything is tried."""

    parts: tuple[Part, ...]
    key: str | None
    fresh_id: str

    def message_id(self, incarnation: str) -> str:
        return message_id_of(incarnation, self.key) if self.key is not None else self.fresh_id


async def send(
    actor: Actor, parts: Sequence[Part], *, idempotency_key: str | None, if_running: Policy
) -> Sent:
    """Accepts a message: starts its turn, or queues it behind the running one or the held ones.

    Raises:
        AppendRejectedError: no parts, or parts that a user cannot send; nothing stored.
        IdempotencyConflictError, MessageRejectedError, SteeringUnsupportedError: nothing stored.
        LoopError, ConfigurationError, MissingExtraError: the loop cannot start; nothing stored.
        PerdureError: as `Actor.command`.

    """
    _check_parts(parts)
    given = _Given(tuple(parts), idempotency_key, clock.new_id())
    return await actor.command(lambda again: _send(actor, given, if_running, again))


async def _send(actor: Actor, given: _Given, if_running: Policy, again: bool) -> Sent:
    message_id = given.message_id(actor.session.incarnation)
    if again or given.key is not None:
        known = await _find(actor, given, message_id)
        if known is not None:
            return known
    match if_running:
        case "steer":
            raise SteeringUnsupportedError(actor.session_id)
        case "reject" if actor.turn is not None:
            raise MessageRejectedError(actor.session_id, actor.turn.turn_id)
        case "queue" | "interrupt" | "reject":
            pass
        case _:
            assert_never(if_running)
    queued = MessageQueued(
        id=queued_id_of(actor.session.incarnation, message_id),
        message_id=message_id,
        parts=given.parts,
        policy=if_running,
    )
    if (turn := actor.turn) is not None:
        receipt = await actor.append([queued])
        if if_running == "interrupt":
            turn.gives_way = True
            turn.ask_to_end("stopped", f"message {message_id} took its place")
        return Sent(message_id, receipt.first_seq, None, queued=True)
    if actor.state.queue and if_running != "interrupt":
        head = await actor.load_queued(actor.state.queue[0])
        receipt, _ = await actor.start(head, before=[queued])
        return Sent(message_id, receipt.first_seq, None, queued=True)
    message = Message("user", given.parts, id=message_id)
    receipt, turn_id = await actor.start(message)
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

    async def ask(again: bool) -> Turn | None:
        turn = actor.turn
        if turn_id is not None and (turn is None or turn.turn_id != turn_id):
            return None
        if discard_queued and actor.state.queue:
            await actor.append(
                [
                    MessageDiscarded(message_id=each.message_id, why="discarded by a stop")
                    for each in actor.state.queue
                ]
            )
        if turn is not None:
            turn.ask_to_end("stopped", None)
        return turn

    turn = await actor.command(ask)
    if turn is None:
        return Stopped(stopped=False, turn_id=turn_id)
    reason = await asyncio.shield(turn.ended)
    return Stopped(stopped=reason == "stopped", turn_id=turn.turn_id)


async def resend(actor: Actor) -> Sent:
    """Starts a new turn from the input of the last one, which did not complete.

    Raises:
        TurnRunningError, NothingToResendError: nothing stored.
        PerdureError: as `Actor.command`, and where the loop cannot start.

    """
    turn_id = clock.new_id()

    async def step(again: bool) -> Sent:
        _check_idle(actor)
        last = actor.state.last_turn
        if last is None or last.reason == "completed":
            raise NothingToResendError(actor.session_id)
        if last.turn_id == turn_id:
            stored = await actor.store.load_entry(actor.session_id, turn_id)
            return Sent(last.message_id, stored.seq, turn_id, queued=False)
        receipt = await actor.start_again(last.message_id, turn_id, last.turn_id)
        return Sent(last.message_id, receipt.last_seq, turn_id, queued=False)

    return await actor.command(step)


async def go_on(actor: Actor) -> Sent:
    """Runs the held queue from its first message.

    Raises:
        TurnRunningError, NothingHeldError: nothing stored.
        PerdureError: as `Actor.command`, and where the loop cannot start.

    """
    chosen: list[str] = []

    async def step(again: bool) -> Sent:
        _check_idle(actor)
        if chosen and actor.state.queued(chosen[0]) is None:
            stored = await actor.store.load_entry(actor.session_id, chosen[0])
            turn_id = turn_id_of(actor.session.incarnation, stored.id)
            return Sent(stored.id, stored.seq, turn_id, queued=False)
        if not actor.state.queue:
            raise NothingHeldError(actor.session_id)
        head = await actor.load_queued(actor.state.queue[0])
        chosen[:] = [head.id]
        receipt, turn_id = await actor.start(head)
        return Sent(head.id, receipt.last_seq, turn_id, queued=False)

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
        if again and (await actor.load_queued(edited)).parts == tuple(parts):
            return Sent(message_id, edited.seq, None, queued=True)
        at = actor.state.queue.index(edited)
        kept = [await actor.load_queued(each) for each in actor.state.queue[at + 1 :]]
        behind = list(zip(actor.state.queue[at + 1 :], kept, strict=True))
        receipt = await actor.append(
            [
                MessageDiscarded(message_id=message_id, why="edited"),
                *(
                    MessageDiscarded(message_id=each.message_id, why="queued anew, in its place")
                    for each, _ in behind
                ),
                MessageQueued(message_id=message_id, parts=tuple(parts), policy=edited.policy),
                *(
                    MessageQueued(message_id=each.message_id, parts=m.parts, policy=each.policy)
                    for each, m in behind
                ),
            ]
        )
        return Sent(message_id, receipt.first_seq + 1 + len(behind), None, queued=True)

    return await actor.command(step)


async def branch(actor: Actor, entry_id: str | None) -> SessionLook:
    """Moves the leaf, by an entry, so that every viewer and every restart agrees.

    Raises:
        TurnRunningError: nothing stored. EntryNotFoundError: no such tree entry; nothing stored.

    """

    async def step(again: bool) -> SessionLook:
        _check_idle(actor)
        if entry_id is not None:
            stored = await actor.store.load_entry(actor.session_id, entry_id)
            if not stored.entry.in_tree:
                raise EntryNotFoundError(
                    actor.session_id, entry_id, "it is a fact and has no place in the tree"
                )
        if entry_id != actor.state.leaf_id:
            await actor.append([LeafMoved(from_id=actor.state.leaf_id, leaf_id=entry_id)])
        return actor.look()

    return await actor.command(step)


async def compact(actor: Actor, keep_turns: int) -> Compacted:
    """Appends a summary of all but the last `keep_turns` turns, made by a throw-away run.

    The session takes commands meanwhile; one that grows it wins.

    Raises:
        TurnRunningError: a turn runs; nothing stored.
        AppendConflictError: the session grew while the summary was made; nothing stored.
        LoopError: the loop gave no summary; nothing stored.

    """

    async def begin(again: bool) -> tuple[int, str | None]:
        _check_idle(actor)
        return actor.state.last_seq, actor.state.leaf_id

    async def build(again: bool) -> Loop:
        return await actor.build_loop()

    seq, leaf_id = await actor.command(begin)
    path = await load_model_path(actor.store, actor.session_id, leaf_id)
    plan = plan_compaction(path, keep_turns)
    if plan is None:
        return Compacted(None, leaf_id)
    prompt = text(DEFAULT_PROMPT)

    async def messages() -> Sequence[Message]:
        return [*plan.messages, prompt]

    context = RunContext(actor.session_id, input=(prompt,), messages=messages, purpose="summary")
    loop = await actor.command(build)
    try:
        summary = await summarise(loop, context)
    except PerdureError:
        raise
    except (Exception, SystemExit) as error:  # somebody else's loop: its own failure
        raise LoopError(f"the loop gave no summary: {describe(error)}") from error
    entry = Compaction(summary=summary, first_kept_id=plan.first_kept_id)

    async def store(again: bool) -> Compacted:
        _check_idle(actor)
        if actor.state.leaf_id == entry.id:
            return Compacted(await actor.store.load_entry(actor.session_id, entry.id), entry.id)
        if actor.state.leaf_id != leaf_id:
            raise AppendConflictError(actor.session_id, seq, actor.state.last_seq)
        receipt = await actor.append([entry])
        await actor.keeper.prune()
        return Compacted(receipt.entries[0], entry.id)

    return await actor.command(store)


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


def _check_idle(actor: Actor) -> None:
    if actor.turn is not None:
        raise TurnRunningError(actor.session_id, actor.turn.turn_id)
