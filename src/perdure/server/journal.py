"""What the server needs of a store beyond the library's three verbs.

`perdure.testing.JournalContract` is the suite for it. Every verb is safe to call from many tasks
of one event loop, costs what its answer costs (not what the session weighs), and reads without
waking, locking or waiting for a writer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from perdure.codec import Draft, Entry, StoredEntry
from perdure.snapshot import KEPT, Snapshot
from perdure.store import Kind, Look, LookPage, Page, PathPage, Receipt, Session, SessionStore


class JournalStore(SessionStore, Protocol):
    """A Store that can be looked into: pages, paths, summaries, listings, deletion, hints.

    A *summary* is a few bytes that the server derives from a session's entries; it is stored in
    the same transaction as the entries it follows from and is opaque to the store. *Snapshots* are
    such bytes too, several of a session, put when the server chooses; they save time and nothing
    else, so that losing them all loses nothing.

    Journals have a *kind*, within which their ids are unique. A store speaks of sessions; what
    `of_kind` gives has the same verbs, and the journals of another kind are its "sessions".
    """

    def of_kind(self, kind: Kind) -> JournalStore:
        """The same store, whose verbs see the journals of this kind and no other.

        Its listings and hints are of this kind, too. Closing either closes both.
        """
        ...

    async def create_session(
        self,
        session_id: str,
        *,
        parent_id: str | None = None,
        entries: Sequence[Draft | Entry] = (),
        summary: bytes | None = None,
    ) -> Session:
        """As `Store.create_session`; a deleted id is free again and gets a new incarnation."""
        ...

    async def append_entries(
        self,
        session_id: str,
        entries: Sequence[Draft | Entry],
        *,
        expected_seq: int | None = None,
        incarnation: str | None = None,
        summary: bytes | None = None,
    ) -> Receipt:
        """As `Store.append_entries`; None keeps the summary as it is."""
        ...

    async def look(self, session_id: str) -> Look:
        """The session, where its log stands, and its summary, read as one.

        Raises:
            InvalidSessionIdError, SessionNotFoundError, StoreUnavailableError.

        """
        ...

    async def load_owner(self, session_id: str) -> str | None:
        """The principal of the newest `session_owned` among the session's entries; O(1).

        None where nobody owns it. It is told of a session whose header cannot be read, too.

        Raises:
            InvalidSessionIdError, SessionNotFoundError, StoreUnavailableError.

        """
        ...

    async def list_sessions(
        self, *, limit: int = 50, after: str | None = None, owner: str | None = None
    ) -> LookPage:
        """Sessions by newest append first (creation counts as one), `limit` at a time.

        With an `owner` only those of this principal: in time proportional to the page, however
        many others there are. An owner follows from the entries (`store.owner_after`), in the step
        that stores them.

        `after` is the `next` of the page before. The order is the store's own append order, never
        a clock's. A session that is appended to between two pages may show up on neither.

        Raises:
            CursorVoidError: `after` is not the `next` of a page of this store.

        """
        ...

    async def page_entries(
        self,
        session_id: str,
        *,
        before: int | None = None,
        after: int | None = None,
        limit: int = 50,
    ) -> Page:
        """The entries with after < seq < before, ascending, at most `limit`.

        With `after` given the oldest of them, else the newest. `has_more` says whether others in
        these bounds were left out.
        """
        ...

    async def load_entry(self, session_id: str, entry: int | str) -> StoredEntry:
        """One entry, by `seq` (int) or by entry id (str).

        Raises:
            EntryNotFoundError: the session has no such entry.

        """
        ...

    async def load_path(
        self, session_id: str, leaf_id: str, *, limit: int = 50, until: str | None = None
    ) -> PathPage:
        """The path that ends in `leaf_id`, root side first: at most the last `limit` of it.

        The walk also stops after the entry `until`, inclusive. Time is proportional to the page.

        Raises:
            EntryNotFoundError: `leaf_id` is no tree entry of the session.
            JournalCorruptError: the walk met a hole or a circle.

        """
        ...

    async def children(
        self, session_id: str, parent_ids: Sequence[str | None]
    ) -> Mapping[str | None, tuple[str, ...]]:
        """The ids of the tree entries under each of these parents (None: the roots), by `seq`."""
        ...

    async def delete_session(self, session_id: str) -> None:
        """Deletes the session and leaves a tombstone of its incarnation; durable on return.

        Afterwards it is not found, and appends with its incarnation raise SessionDeletedError,
        after a restart too.
        """
        ...

    async def put_snapshot(self, session_id: str, snapshot: Snapshot) -> None:
        """Keeps the snapshot beside the journal, in the place of one of the same `seq`.

        The session does not move up in the listing, and nobody gets a hint. It need not outlive a
        crash.

        Raises:
            SessionDeletedError: the snapshot is of another incarnation; it is not kept.
            SessionNotFoundError, StoreError: it is not kept.

        """
        ...

    async def load_snapshot(
        self, session_id: str, *, at_most: int | None = None
    ) -> Snapshot | None:
        """The newest snapshot of this incarnation whose `seq` is not above `at_most`; O(1)."""
        ...

    async def prune_snapshots(self, session_id: str, *, keep: int = KEPT) -> int:
        """Forgets all but the newest `keep`, and never an entry; returns how many it forgot."""
        ...

    def subscribe(self, listener: Callable[[str], None]) -> Callable[[], None]:
        """Calls `listener(session_id)` on the event loop soon after the session's log grew.

        A hint, and no more: it may be late, doubled or missing after a failure; it is also given
        on creation and deletion. Returns what ends the subscription.
        """
        ...
