"""The sessions of this server: who reads them, and the one actor of each that is awake.

Looking is free: listing, looking, paging and the transcript come from the store, wake nothing and
write nothing. Commands go to the session's actor, which is woken by its first one. Every method
raises `PerdureError`s only; each says what became of the data.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import TypeVar

from msgspec.structs import replace

from perdure import clock
from perdure.codec import Entry, StoredEntry, seal
from perdure.entry import Json, Part, ToolResult
from perdure.errors import (
    EntryNotFoundError,
    PerdureError,
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
    TurnEnded,
)
from perdure.run import complete
from perdure.server.journal import JournalStore
from perdure.server.session import command, tree_command
from perdure.server.session.actor import Actor
from perdure.server.session.command import Sent, Stopped
from perdure.server.session.ends import Ends
from perdure.server.session.idempotency import ended_id_of
from perdure.server.session.limit import Limits
from perdure.server.session.look import SessionLook, look_of
from perdure.server.session.outline import OutlinePage, load_outline
from perdure.server.session.partial import Partial
from perdure.server.session.path import load_whole_path
from perdure.server.session.port import FeedPort, Loops
from perdure.server.session.replay import load_state, replay
from perdure.server.session.roster import Roster
from perdure.server.session.state import State, decode_state, encode_state, fold, place
from perdure.server.session.surroundings import NOTHING, Surroundings
from perdure.server.session.transcript import (
    TranscriptPage,
    find_newest_leaf,
    load_following,
    load_transcript,
)
from perdure.server.session.tree_command import Compacted
from perdure.server.session.wanted import EVERY_SESSION, MOST_SEARCHED, Wanted
from perdure.store import Look, Page, check_session_id

_T = TypeVar("_T")

MOST_FOLDED = 1024
"""Of how many sessions that others write to the fold is remembered."""


class Registry:
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
        self._store = store
        self._loops = loops
        self._feed = self._ends = Ends(feed)
        self._surroundings = surroundings
        self._node_id = node_id if node_id is not None else clock.new_id()
        self._limits = limits or Limits()
        self._roster = Roster(self._make_actor, self._limits)
        self._closing = False
        self._folded: dict[tuple[str, str], State] = {}

    @property
    def live_actors(self) -> int:
        """How many actors are in memory; looking makes none."""
        return len(self._roster)

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
            self._surroundings.check_runtime(runtime)
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

    async def list(
        self,
        *,
        limit: int = 50,
        after: str | None = None,
        wanted: Wanted = EVERY_SESSION,
        owner: str | None = None,
    ) -> tuple[Sequence[SessionLook], str | None]:
        """Sessions by newest append first, and the `after` of the next page (None on the last).

        With an `owner` those of this principal. Of those that are `wanted`; after `MOST_SEARCHED`
        sessions a page ends, even an empty one.

        Raises:
            CursorVoidError: `after` is not from a listing.
            StoreUnavailableError: the store cannot be read.

        """
        shown: list[SessionLook] = []
        searched = 0
        while True:
            # Never more than are still missing, so that the page's end is a place to go on from.
            page = await self._store.list_sessions(
                limit=limit - len(shown), after=after, owner=owner
            )
            for look in page.sessions:
                try:
                    found = await self._show(look)
                except SessionNotFoundError:
                    continue  # it was deleted since the page was read
                if wanted.fits(found):
                    shown.append(found)
            searched += len(page.sessions)
            after = page.next
            if after is None or len(shown) >= limit or wanted is EVERY_SESSION:
                return shown, after
            if searched >= MOST_SEARCHED:
                return shown, after

    async def look(self, session_id: str) -> SessionLook:
        """The session as it stands; O(1), where nobody but a server wrote to it.

        Raises:
            InvalidSessionIdError, SessionNotFoundError, StoreUnavailableError.

        """
        async with self._noticing(session_id):
            look = await self._store.look(session_id)
        return await self._show(look)

    async def _show(self, look: Look) -> SessionLook:
        actor = self._roster.get(look.session.id)
        failure = look.damage or (actor.failure if actor is not None else None)
        state = decode_state(look.summary) or State()
        if state.last_seq != look.last_seq:
            try:
                state = await self._catch_up(look, state)
            except UnrecoverableError as error:
                failure = failure or str(error)
                state = replace(state, last_seq=look.last_seq)
        return look_of(
            look.session,
            state,
            live=actor.live if actor is not None else (),
            failure=failure,
            quarantine_after=self._limits.quarantine_after,
        )

    async def _catch_up(self, look: Look, state: State) -> State:
        """Folds what others than a server appended since the summary was stored; writes nothing.

        What was folded is remembered, so that looking again costs only what came since.
        """
        key = (look.session.id, look.session.incarnation)
        state = max(state, self._folded.pop(key, State()), key=lambda each: each.last_seq)
        if not 0 < state.last_seq <= look.last_seq:
            state = await load_state(self._store, look)
        state = self._folded[key] = await replay(self._store, look.session.id, state)
        while len(self._folded) > MOST_FOLDED:
            del self._folded[next(iter(self._folded))]
        return state

    async def entries(
        self,
        session_id: str,
        *,
        before: int | None = None,
        after: int | None = None,
        limit: int = 50,
    ) -> Page:
        """A page of the journal, ascending; see `JournalStore.page_entries`.

        Raises:
            InvalidSessionIdError, SessionNotFoundError, StoreUnavailableError.
            JournalCorruptError: the session is unrecoverable from now on.

        """
        async with self._noticing(session_id):
            return await self._store.page_entries(
                session_id, before=before, after=after, limit=limit
            )

    async def entry(self, session_id: str, seq: int) -> StoredEntry:
        """One entry whole.

        Raises:
            EntryNotFoundError, InvalidSessionIdError, SessionNotFoundError.
            JournalCorruptError: the session is unrecoverable from now on.

        """
        async with self._noticing(session_id):
            return await self._store.load_entry(session_id, seq)

    async def transcript(
        self,
        session_id: str,
        *,
        before: str | None = None,
        after: str | None = None,
        limit: int = 50,
        leaf: str | None = None,
        through: str | None = None,
    ) -> TranscriptPage:
        """A page of the path to the leaf, to `leaf`, or to the newest leaf through an entry.

        Of what is older than `before` on it, or follows `after` (empty: the start).

        Raises:
            EntryNotFoundError: there is no such tree entry.
            InvalidSessionIdError, SessionNotFoundError, StoreUnavailableError.
            JournalCorruptError: the session is unrecoverable from now on.

        """
        async with self._noticing(session_id):
            if through is not None:
                leaf_id: str | None = await find_newest_leaf(self._store, session_id, through)
            else:
                leaf_id = (await self.look(session_id)).leaf_id if leaf is None else leaf
            if after is not None:
                return await load_following(
                    self._store, session_id, leaf_id, after=after or None, limit=limit
                )
            return await load_transcript(
                self._store, session_id, leaf_id, before=before, limit=limit
            )

    async def outline(self, session_id: str, *, after: int, limit: int) -> OutlinePage:
        """A page of the tree in outline; see `load_outline`.

        Raises:
            InvalidSessionIdError, SessionNotFoundError, StoreUnavailableError.
            JournalCorruptError: the session is unrecoverable from now on.

        """
        async with self._noticing(session_id):
            return await load_outline(self._store, session_id, after=after, limit=limit)

    def partials(self, session_id: str) -> Sequence[Partial]:
        """The text so far of each part in the making; synchronous, so that no delta slips by."""
        actor = self._roster.get(session_id)
        return actor.partials() if actor is not None else ()

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
    ) -> None:
        """Answers a call that waits for an approval; see `command.answer`."""
        await self._command(
            session_id,
            lambda actor: command.answer(
                actor, call_id, approve=approve, reason=reason, arguments=arguments
            ),
        )

    async def note_late(self, session_id: str, key: str, result: ToolResult) -> None:
        """Keeps a result that came too late, as a fact; see `command.note_late`."""
        await self._command(session_id, lambda actor: command.note_late(actor, key, result))

    async def turn_end(self, session_id: str, turn_id: str) -> TurnEnded | None:
        """The stored end of a turn; None where it has none yet. Wakes nothing; O(1).

        Raises:
            InvalidSessionIdError, SessionNotFoundError, StoreUnavailableError.

        """
        look = await self._store.look(session_id)
        entry_id = ended_id_of(look.session.incarnation, turn_id)
        try:
            stored = await self._store.load_entry(session_id, entry_id)
        except EntryNotFoundError:
            return None
        return stored.view if isinstance(stored.view, TurnEnded) else None

    async def until_ended(self, session_id: str, turn_id: str) -> TurnEnded | None:
        """Waits for the turn's end, also while it waits for an approval; wakes nothing.

        None where nothing is alive that would end it: the next waking of the session does.

        Raises:
            As `turn_end`; SessionNotFoundError also if it is deleted meanwhile.

        """
        with self._ends.watch(session_id) as watch:
            while True:
                if (end := await self.turn_end(session_id, turn_id)) is not None:
                    return end
                look = await self.look(session_id)
                if look.turn is None or look.turn.turn_id != turn_id:
                    return await self.turn_end(session_id, turn_id)
                await watch.changed()

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
                is_deleted = await complete(actor.expire(before))
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
            await actor.delete()
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

    async def _tell_failure(self, session_id: str, actor: Actor) -> None:
        if actor.failure is None:
            return
        try:
            self._feed.status(await self.look(session_id))
        except PerdureError:
            return  # it cannot be looked at either; whoever looks is told so

    @asynccontextmanager
    async def _noticing(self, session_id: str) -> AsyncIterator[None]:
        """Damage that a reader meets makes the session unrecoverable until a replay succeeds."""
        try:
            yield
        except UnrecoverableError as error:
            async with self._roster.use(session_id) as actor:
                if actor.failure is None:
                    await actor.damage(error)
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
