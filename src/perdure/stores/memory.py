"""Sessions in this process's memory: the shortest true JournalStore, and what others are held to.

Everything that it hands out is immutable, and each verb is one step of the event loop. Nothing
outlives `close`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from perdure.codec import Draft, Entry, StoredEntry, next_sum, seal_all
from perdure.errors import (
    CursorVoidError,
    EntryNotFoundError,
    JournalCorruptError,
    SessionDeletedError,
    SessionExistsError,
    SessionNotFoundError,
    StoreUnavailableError,
)
from perdure.fact import Gap
from perdure.snapshot import KEPT, Snapshot
from perdure.store import (
    ClosingStore,
    Head,
    Kind,
    Look,
    LookPage,
    Page,
    PathPage,
    Receipt,
    Session,
    Verified,
    check_session_id,
    new_session,
    owner_after,
    place_batch,
    receipt_of,
)
from perdure.stores.piece import Piece, sound_pieces


@dataclass(slots=True)
class _Log:
    session: Session
    touched: int = 0
    summary: bytes | None = None
    owner: str | None = None
    entries: list[StoredEntry] = field(default_factory=list)
    sums: list[bytes] = field(default_factory=list)
    by_id: dict[str, StoredEntry] = field(default_factory=dict)
    children: dict[str | None, list[str]] = field(default_factory=dict)
    snapshots: dict[int, Snapshot] = field(default_factory=dict)

    def look(self) -> Look:
        return Look(self.session, len(self.entries), self.summary)


class MemoryStore(ClosingStore):
    """A JournalStore that lives as long as its object; every verb is atomic."""

    def __init__(self) -> None:
        self._logs: dict[str, _Log] = {}
        self._deleted: set[tuple[str, str]] = set()
        self._listeners: dict[object, Callable[[str], None]] = {}
        self._touched = 0
        self._closed = False
        self._kinds: dict[Kind, MemoryStore] = {"session": self}

    def of_kind(self, kind: Kind) -> MemoryStore:
        """The same store, whose verbs see the journals of this kind and no other."""
        self._check_open()
        if kind not in self._kinds:
            self._kinds[kind] = made = MemoryStore()
            made._kinds = self._kinds
        return self._kinds[kind]

    async def create_session(
        self,
        session_id: str,
        *,
        parent_id: str | None = None,
        entries: Sequence[Draft | Entry] = (),
        summary: bytes | None = None,
    ) -> Session:
        """Creates the session with these entries in one step; see `Store.create_session`."""
        self._check_open()
        session = new_session(session_id, parent_id)
        sealed = seal_all(entries)
        if session_id in self._logs:
            raise SessionExistsError(session_id)
        log = self._logs[session_id] = _Log(session, summary=summary)
        self._add(log, sealed)
        return session

    async def append_entries(
        self,
        session_id: str,
        entries: Sequence[Draft | Entry],
        *,
        expected_seq: int | None = None,
        incarnation: str | None = None,
        summary: bytes | None = None,
    ) -> Receipt:
        """Appends the batch in one step; see `Store.append_entries`."""
        check_session_id(session_id)
        self._check_open()
        if (session_id, incarnation) in self._deleted:
            raise SessionDeletedError(session_id, incarnation)
        log = self._log(session_id)
        sealed = seal_all(entries)
        receipt = place_batch(
            log.session,
            sealed,
            log.by_id,
            last_seq=len(log.entries),
            expected_seq=expected_seq,
            incarnation=incarnation,
        )
        if receipt is not None:
            return receipt
        if summary is not None:
            log.summary = summary
        return receipt_of(self._add(log, sealed))

    def _add(self, log: _Log, sealed: Sequence[Entry]) -> Sequence[StoredEntry]:
        first_seq = len(log.entries) + 1
        stored = [StoredEntry(seq, entry) for seq, entry in enumerate(sealed, first_seq)]
        for new in stored:
            previous = log.sums[-1] if log.sums else log.session.first_sum
            log.entries.append(new)
            log.sums.append(next_sum(previous, new.raw))
            log.by_id[new.id] = new
            if isinstance(new.parent_id, str | None):
                log.children.setdefault(new.parent_id, []).append(new.id)
        log.owner = owner_after(sealed) or log.owner
        self._touched += 1
        log.touched = self._touched
        self._hint(log.session.id)
        return stored

    async def load_session(self, session_id: str) -> Session:
        """The session of this id."""
        return self._log(session_id).session

    async def load_entries(self, session_id: str, *, after: int = 0) -> Sequence[StoredEntry]:
        """The entries with a `seq` above `after`, in order."""
        return tuple(self._log(session_id).entries[max(after, 0) :])

    async def look(self, session_id: str) -> Look:
        """The session, where its log stands, and its summary."""
        return self._log(session_id).look()

    async def load_owner(self, session_id: str) -> str | None:
        """Whose the session is."""
        return self._log(session_id).owner

    async def list_sessions(
        self, *, limit: int = 50, after: str | None = None, owner: str | None = None
    ) -> LookPage:
        """Sessions by newest append first; O(sessions)."""
        self._check_open()
        if after is None:
            bound = self._touched + 1
        elif after.isascii() and after.isdecimal() and len(after) < 20:
            bound = int(after)
        else:
            raise CursorVoidError(after, "it is not from a listing of this store")
        logs = sorted(self._logs.values(), key=lambda log: -log.touched)
        found = [
            log for log in logs if log.touched < bound and (owner is None or log.owner == owner)
        ]
        page = found[:limit]
        more = len(found) > len(page) and bool(page)
        return LookPage(tuple(log.look() for log in page), str(page[-1].touched) if more else None)

    async def page_entries(
        self,
        session_id: str,
        *,
        before: int | None = None,
        after: int | None = None,
        limit: int = 50,
    ) -> Page:
        """The entries between two `seq`s: the oldest with `after` given, else the newest."""
        log = self._log(session_id)
        entries = log.entries
        low = max(after or 0, 0)
        high = len(entries) if before is None else max(min(before - 1, len(entries)), 0)
        if after is None:
            first, last = max(low, high - limit), high
        else:
            first, last = low, min(high, low + limit)
        has_more = first > low or last < high
        return Page(tuple(entries[first:last]), has_more, len(entries), log.session.incarnation)

    async def load_entry(self, session_id: str, entry: int | str) -> StoredEntry:
        """One entry, by `seq` or by entry id."""
        log = self._log(session_id)
        if isinstance(entry, str) and entry in log.by_id:
            return log.by_id[entry]
        if isinstance(entry, int) and 1 <= entry <= len(log.entries):
            return log.entries[entry - 1]
        raise EntryNotFoundError(session_id, str(entry))

    async def load_path(
        self, session_id: str, leaf_id: str, *, limit: int = 50, until: str | None = None
    ) -> PathPage:
        """The path that ends in `leaf_id`, root side first: at most the last `limit` of it."""
        by_id = self._log(session_id).by_id
        path: dict[str, StoredEntry] = {}
        entry_id: object = leaf_id
        while isinstance(entry_id, str) and len(path) < limit and until not in path:
            stored = by_id.get(entry_id)
            if stored is None or not stored.entry.in_tree:
                if not path:
                    raise EntryNotFoundError(session_id, leaf_id, "no such tree entry")
                raise JournalCorruptError(
                    session_id, None, f"entry {entry_id!r}", "a path leads to it, it is not there"
                )
            if entry_id in path:
                raise JournalCorruptError(
                    session_id, stored.seq, f"entry {entry_id!r}", "its path is a circle"
                )
            path[entry_id] = stored
            entry_id = stored.parent_id
        return PathPage(tuple(reversed(path.values())), isinstance(entry_id, str))

    async def children(
        self, session_id: str, parent_ids: Sequence[str | None]
    ) -> Mapping[str | None, tuple[str, ...]]:
        """The ids of the tree entries under each of these parents, by `seq`."""
        found = self._log(session_id).children
        return {parent_id: tuple(found.get(parent_id, ())) for parent_id in parent_ids}

    async def delete_session(self, session_id: str) -> None:
        """Deletes the session; its incarnation can never be appended to again."""
        log = self._log(session_id)
        del self._logs[session_id]
        self._deleted.add((session_id, log.session.incarnation))
        self._hint(session_id)

    async def put_snapshot(self, session_id: str, snapshot: Snapshot) -> None:
        """Keeps the snapshot, in the place of one of the same `seq`."""
        check_session_id(session_id)
        self._check_open()
        if (session_id, snapshot.incarnation) in self._deleted:
            raise SessionDeletedError(session_id, snapshot.incarnation)
        log = self._log(session_id)
        log.session.check_incarnation(snapshot.incarnation)
        log.snapshots[snapshot.seq] = snapshot

    async def load_snapshot(
        self, session_id: str, *, at_most: int | None = None
    ) -> Snapshot | None:
        """The newest snapshot whose `seq` is not above `at_most`."""
        found = self._log(session_id).snapshots
        seqs = [seq for seq in found if at_most is None or seq <= at_most]
        return found[max(seqs)] if seqs else None

    async def prune_snapshots(self, session_id: str, *, keep: int = KEPT) -> int:
        """Forgets all but the newest `keep`; returns how many."""
        found = self._log(session_id).snapshots
        old = sorted(found, reverse=True)[max(keep, 0) :]
        for seq in old:
            del found[seq]
        return len(old)

    def subscribe(self, listener: Callable[[str], None]) -> Callable[[], None]:
        """Calls `listener(session_id)` soon after the session's log grew."""
        key = object()
        self._listeners[key] = listener

        def end() -> None:
            self._listeners.pop(key, None)

        return end

    async def session_ids(self) -> Sequence[str]:
        """The ids of all sessions, exactly as they were given."""
        self._check_open()
        return tuple(self._logs)

    async def verify_session(self, session_id: str) -> Verified:
        """Holds every entry of the session against its sum and its index.

        Raises:
            JournalCorruptError: the first damage that was found.

        """
        log = self._log(session_id)
        head = Head(0, log.session.first_sum)
        if not len(log.entries) == len(log.sums) == len(log.by_id):
            raise JournalCorruptError(session_id, None, "memory", "entries are missing or doubled")
        for stored, running_sum in zip(log.entries, log.sums, strict=True):
            head = Head(head.seq + 1, next_sum(head.sum, stored.raw))
            in_place = stored.seq == head.seq and log.by_id.get(stored.id) is stored
            if head.sum != running_sum or not in_place:
                detail = "its bytes do not have its sum" if in_place else "it is not in its place"
                raise JournalCorruptError(session_id, head.seq, f"entry {stored.id!r}", detail)
        return Verified(head)

    async def stream_entries(
        self, session_id: str, *, after: int = 0
    ) -> AsyncIterator[Sequence[StoredEntry]]:
        """The entries with a `seq` above `after`, in order, some at a time."""
        if entries := await self.load_entries(session_id, after=after):
            yield entries

    async def salvage_entries(self, session_id: str) -> AsyncIterator[StoredEntry | Gap]:
        """What is sound of the session; see `perdure.salvage`."""
        log = self._log(session_id)
        pieces = [
            Piece(f"entry {stored.id!r}", len(stored.raw), stored.entry, stored.seq, running_sum)
            for stored, running_sum in zip(log.entries, log.sums, strict=False)
        ]
        for kept in sound_pieces(pieces, log.session.first_sum, None):
            yield kept

    async def close(self) -> None:
        """Forgets everything, of every kind; idempotent."""
        for store in self._kinds.values():
            store._closed = True
            store._logs.clear()

    def _hint(self, session_id: str) -> None:
        for listener in self._listeners.values():
            asyncio.get_running_loop().call_soon(listener, session_id)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailableError("this memory store is closed; nothing was attempted")

    def _log(self, session_id: str) -> _Log:
        check_session_id(session_id)
        self._check_open()
        try:
            return self._logs[session_id]
        except KeyError:
            raise SessionNotFoundError(session_id) from None
