"""What can be read of sessions without waking them: listings, looks, pages, paths.

Looking is free: everything comes from the store, wakes nothing and writes nothing. Damage that a
reader meets is the one thing that an actor is told of.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from msgspec.structs import replace

from perdure.codec import StoredEntry
from perdure.errors import (
    EntryNotFoundError,
    PerdureError,
    SessionNotFoundError,
    UnrecoverableError,
)
from perdure.fact import (
    TurnEnded,
)
from perdure.server.folder import without_folders
from perdure.server.journal import JournalStore
from perdure.server.session.actor import Actor
from perdure.server.session.ends import Ends
from perdure.server.session.idempotency import ended_id_of
from perdure.server.session.limit import Limits
from perdure.server.session.look import SessionLook, look_of
from perdure.server.session.outline import OutlinePage, load_outline
from perdure.server.session.partial import Partial
from perdure.server.session.port import FeedPort
from perdure.server.session.replay import load_state, replay
from perdure.server.session.roster import Roster
from perdure.server.session.state import State, decode_state
from perdure.server.session.transcript import (
    TranscriptPage,
    find_newest_leaf,
    load_following,
    load_transcript,
)
from perdure.server.session.wanted import EVERY_SESSION, MOST_SEARCHED, Wanted
from perdure.store import Look, Page

MOST_FOLDED = 1024
"""Of how many sessions that others write to the fold is remembered."""


class Reading:
    """The sessions of a server, to be read."""

    def __init__(self, store: JournalStore, feed: FeedPort, roster: Roster, limits: Limits) -> None:
        self._store = store
        self._feed = self._ends = Ends(feed)
        self._roster = roster
        self._limits = limits
        self._folded: dict[tuple[str, str], State] = {}

    @property
    def live_actors(self) -> int:
        """How many actors are in memory; looking makes none."""
        return len(self._roster)

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
            failure=None if failure is None else without_folders(failure),
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
