"""The sessions of this server: the one actor of each that is awake, and what is asked of it.

What is only read is `Reading`, which this is too. Commands go to the session's actor, which its
first one wakes. Every method raises `PerdureError`s only; each says what became of the data.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import TypeVar

from msgspec.structs import replace

from perdure import clock
from perdure.codec import Entry, seal
from perdure.entry import Json, Part, ToolResult
from perdure.errors import (
    ServerClosingError,
    SessionExistsError,
    SessionNotFoundError,
    StoreError,
    UnrecoverableError,
)
from perdure.fact import (
    Fact,
    LoopChosen,
    Policy,
    RuntimeAttached,
    SessionOwned,
    Source,
)
from perdure.run import complete
from perdure.server.journal import JournalStore
from perdure.server.session import command, tree_command
from perdure.server.session.actor import Actor
from perdure.server.session.command import Sent, Stopped
from perdure.server.session.limit import Limits
from perdure.server.session.look import SessionLook, look_of
from perdure.server.session.path import load_whole_path
from perdure.server.session.port import FeedPort, Loops
from perdure.server.session.reading import Reading
from perdure.server.session.roster import Roster
from perdure.server.session.state import State, encode_state, fold, place
from perdure.server.session.surroundings import NOTHING, Surroundings
from perdure.server.session.tree_command import Compacted
from perdure.store import check_session_id

_T = TypeVar("_T")


class Registry(Reading):
    """The server's sessions. One process owns a store; `node_id` is random in each."""

    def __init__(
        self,
        store: JournalStore,
        loops: Loops,
        feed: FeedPort,
        *,
        node_id: str | None = None,
        limits: Limits | None = None,
        surroundings: Surroundings = NOTHING,
    ) -> None:
        limits = limits or Limits()
        super().__init__(store, feed, Roster(self._make_actor, limits), limits)
        self._loops = loops
        self._surroundings = surroundings
        self._node_id = node_id if node_id is not None else clock.new_id()
        self._closing = False

    async def create(
        self,
        session_id: str | None = None,
        loop: str | None = None,
        runtime: str | None = None,
        *,
        owner: str | None = None,
    ) -> tuple[SessionLook, bool]:
        """Creates the session; (its look, True), or (its look, False) if it is there already.

        `owner` is the principal whose a new session is; None leaves it to the admins.

        Raises:
            InvalidSessionIdError, ConfigurationError, MissingExtraError: nothing stored.
            AppendUncertainError: it may be there; the same call again finds out.
            StoreError: nothing stored.

        """
        self._check_open()
        session_id = clock.new_id() if session_id is None else session_id
        if loop is not None:
            await self._loops.prepare(loop)
        if runtime is not None:
            self._surroundings.check_runtime(runtime, owner)
        facts = _identity(owner, loop, runtime)
        try:
            made = await self._create(session_id, facts, parent_id=None)
        except SessionExistsError:
            return await self.look(session_id), False
        return made, True

    async def _create(
        self,
        session_id: str,
        facts: Sequence[Fact],
        path: Sequence[Entry] = (),
        *,
        parent_id: str | None,
    ) -> SessionLook:
        entries = (*map(seal, facts), *path)
        state = fold(State(), place(State(), entries))
        session = await complete(
            self._store.create_session(
                session_id, parent_id=parent_id, entries=entries, summary=encode_state(state)
            )
        )
        look = look_of(session, state)
        self._feed.status(look)
        return look

    async def send(
        self,
        session_id: str,
        parts: Sequence[Part],
        *,
        idempotency_key: str | None = None,
        if_running: Policy = "queue",
        source: Source = "user",
    ) -> Sent:
        """Accepts a message, durably: starts its turn, or queues it. See `command.send`."""
        return await self._command(
            session_id,
            lambda actor: command.send(
                actor,
                parts,
                idempotency_key=idempotency_key,
                if_running=if_running,
                source=source,
            ),
        )

    async def answer(
        self,
        session_id: str,
        call_id: str,
        *,
        approve: bool,
        reason: str | None = None,
        arguments: Json = None,
        requested_seq: int | None = None,
    ) -> None:
        """Answers a call that waits for an approval; see `command.answer`."""
        await self._command(
            session_id,
            lambda actor: command.answer(
                actor,
                call_id,
                approve=approve,
                reason=reason,
                arguments=arguments,
                requested_seq=requested_seq,
            ),
        )

    async def note_late(self, session_id: str, key: str, result: ToolResult) -> None:
        """Keeps a result that came too late, as a fact; see `command.note_late`."""
        await self._command(session_id, lambda actor: command.note_late(actor, key, result))

    async def stop(
        self, session_id: str, turn_id: str | None = None, *, discard_queued: bool = False
    ) -> Stopped:
        """Ends that turn, or the running one; returns when its end is stored. Idempotent."""
        return await self._command(
            session_id, lambda actor: command.stop(actor, turn_id, discard_queued=discard_queued)
        )

    async def resend(self, session_id: str, turn_id: str | None = None) -> Sent:
        """Sends the last turn's input again, if the turn did not complete.

        Where `turn_id` is given, that is the turn which has to be the last one.
        """
        return await self._command(session_id, lambda actor: command.resend(actor, turn_id))

    async def go_on(self, session_id: str) -> Sent:
        """Runs a held queue from its first message."""
        return await self._command(session_id, command.go_on)

    async def reopen(self, session_id: str) -> SessionLook:
        """Wakes a session that was unrecoverable; see `command.reopen`."""
        return await self._command(session_id, command.reopen)

    async def discard_queued(self, session_id: str, message_id: str) -> None:
        """Discards one message that waits."""
        await self._command(session_id, lambda actor: command.discard(actor, message_id))

    async def edit_queued(self, session_id: str, message_id: str, parts: Sequence[Part]) -> Sent:
        """Gives a message that waits other parts; see `command.edit_queued`."""
        return await self._command(
            session_id, lambda actor: command.edit_queued(actor, message_id, parts)
        )

    async def branch(self, session_id: str, entry_id: str | None) -> SessionLook:
        """Moves the leaf to a tree entry, or before the first one (None)."""
        return await self._command(session_id, lambda actor: tree_command.branch(actor, entry_id))

    async def compact(self, session_id: str, *, keep_turns: int = 4) -> Compacted:
        """Appends a summary of all but the last `keep_turns` turns."""
        return await self._command(
            session_id, lambda actor: tree_command.compact(actor, keep_turns)
        )

    async def fork(
        self,
        session_id: str,
        new_id: str | None = None,
        *,
        entry_id: str | None = None,
        owner: str | None = None,
    ) -> SessionLook:
        """A child with the path to the leaf, or to `entry_id`: same bytes, same ids, same loop.

        It is of the principal `owner`, whoever has the parent; None leaves it to the admins.
        One atomic step, which the parent need not be awake for; it may be in the middle of a turn.
        O(the path).

        Raises:
            SessionExistsError: `new_id` is taken; nothing stored.
            EntryNotFoundError, InvalidSessionIdError, SessionNotFoundError: nothing stored.
            StoreError: as `create`.

        """
        self._check_open()
        new_id = clock.new_id() if new_id is None else check_session_id(new_id)
        async with self._noticing(session_id):
            parent = await self.look(session_id)
            leaf_id = parent.leaf_id if entry_id is None else entry_id
            path = await load_whole_path(self._store, session_id, leaf_id)
        facts = _identity(owner, parent.loop, parent.runtime)
        return await self._create(new_id, facts, path, parent_id=session_id)

    async def delete(self, session_id: str) -> None:
        """Stops the running turn, deletes the session, and tells its viewers.

        Raises:
            InvalidSessionIdError, SessionNotFoundError.
            StoreError: the session may still be there.

        """
        self._check_open()
        try:
            look = await self.look(session_id)
        except UnrecoverableError:
            look = None  # it can be deleted, and not shown
        await complete(self._delete(session_id))
        if look is not None:
            self._tell_deleted(look)

    async def expire(self, session_id: str, before: datetime) -> bool:
        """Deletes the session if nothing happened in it since then; see `Actor.expire`."""
        self._check_open()
        try:
            look = await self.look(session_id)
            async with self._roster.use(session_id) as actor:
                try:
                    is_deleted = await complete(actor.expire(before))
                except SessionNotFoundError:
                    self._roster.drop(actor)
                    raise
                if is_deleted:
                    self._roster.drop(actor)
        except SessionNotFoundError:
            return False  # somebody else was faster
        if is_deleted:
            self._tell_deleted(look)
        return is_deleted

    def _tell_deleted(self, look: SessionLook) -> None:
        gone = replace(look, status="deleted", turn=None, queued=(), held=False, cause=None)
        self._feed.status(gone)

    async def _delete(self, session_id: str) -> None:
        async with self._roster.use(session_id) as actor:
            try:
                await actor.delete()
            except SessionNotFoundError:
                self._roster.drop(actor)
                raise
            self._roster.drop(actor)

    @property
    def is_closing(self) -> bool:
        """Whether it takes no more commands."""
        return self._closing

    def refuse_commands(self) -> None:
        """Takes no more commands; what runs goes on."""
        self._closing = True

    async def close(self) -> None:
        """Takes no more commands and ends the running turns as interrupted; idempotent.

        Bounded: what a loop does not let go of in time is ended by the next replay.
        """
        self._closing = True
        await asyncio.gather(*(actor.close() for actor in await self._roster.close()))

    def _check_open(self) -> None:
        if self._closing:
            raise ServerClosingError

    def _make_actor(self, session_id: str) -> Actor:
        return Actor(
            session_id,
            self._store,
            self._loops,
            self._feed,
            self._node_id,
            self._limits,
            self._roster.rested,
            self._surroundings,
        )

    async def _command(self, session_id: str, run: Callable[[Actor], Awaitable[_T]]) -> _T:
        check_session_id(session_id)
        self._check_open()
        async with self._roster.use(session_id) as actor:
            try:
                return await run(actor)
            except SessionNotFoundError:
                self._roster.drop(actor)
                raise
            except (StoreError, UnrecoverableError):
                await self._tell_failure(session_id, actor)
                raise


def _identity(owner: str | None, loop: str | None, runtime: str | None) -> list[Fact]:
    """What a session's journal begins with: whose it is, and what its turns run with."""
    facts: list[Fact] = []
    if owner is not None:
        facts.append(SessionOwned(principal=owner))
    if loop is not None:
        facts.append(LoopChosen(name=loop))
    if runtime is not None:
        facts.append(RuntimeAttached(runtime_id=runtime))
    return facts
