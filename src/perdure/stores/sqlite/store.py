"""Sessions in one SQLite file: a JournalStore that any number of processes may share.

Constructing it touches nothing; the first verb opens the file in the writer's thread. An append
returns when its transaction is synced. What is read comes from a snapshot and waits for no writer.
"""

from __future__ import annotations

import asyncio
import copy
import os
import weakref
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TypeVar

from perdure.codec import Draft, Entry, StoredEntry, check_unique, seal_all
from perdure.completion import Told
from perdure.errors import JournalCorruptError, StoreUnavailableError
from perdure.fact import Gap
from perdure.snapshot import KEPT, Snapshot
from perdure.store import (
    ClosingStore,
    Kind,
    Look,
    LookPage,
    Page,
    PathPage,
    Receipt,
    Session,
    Verified,
    begins,
    check_session_id,
    new_session,
)
from perdure.stores.sqlite.check import verify_session, verify_store
from perdure.stores.sqlite.connection import Synchronous
from perdure.stores.sqlite.ledger import Ledger
from perdure.stores.sqlite.owner import OwnerLock
from perdure.stores.sqlite.pool import ReaderPool
from perdure.stores.sqlite.reader import Reader
from perdure.stores.sqlite.salvage import salvage
from perdure.stores.sqlite.schema import KINDS
from perdure.stores.sqlite.watch import LogGoneError
from perdure.stores.sqlite.writer import Writer

BRIEF_BYTES = 65536
"""An append of no more is brief for the writer."""

_T = TypeVar("_T")


class SqliteStore(ClosingStore):
    """The sessions in the SQLite file at `path`; made, with its folder, where there is none.

    `synchronous` below "full" trades durability for speed: a power loss may then take what was
    acknowledged last. Safe to use from several event loops and threads.
    """

    def __init__(self, path: str | os.PathLike[str], *, synchronous: Synchronous = "full") -> None:
        if synchronous not in {"extra", "full", "normal", "off"}:
            raise ValueError("synchronous is one of: extra, full, normal, off")
        self.path = Path(os.path.abspath(path))
        self._writer = Writer(self.path, synchronous)
        self._readers = ReaderPool(self.path, self._writer.file.watch)
        self._owner = OwnerLock(self.path)
        self._kind: Kind = "session"
        self._whole: SqliteStore | None = None
        weakref.finalize(self, self._writer.stop)

    def of_kind(self, kind: Kind) -> SqliteStore:
        """The same store, whose verbs see the journals of this kind and no other."""
        if kind not in KINDS:
            raise ValueError(f"kind is one of: {', '.join(KINDS)}")
        view = copy.copy(self)
        view._kind = kind
        view._whole = self  # which ends its thread when nobody has it any more
        return view

    async def create_session(
        self,
        session_id: str,
        *,
        parent_id: str | None = None,
        entries: Sequence[Draft | Entry] = (),
        summary: bytes | None = None,
    ) -> Session:
        """Creates the session with these entries in one transaction; `Store.create_session`."""
        session = new_session(session_id, parent_id)
        self._check_open()
        sealed = seal_all(entries)
        return await self._write(session_id, Ledger.create_session, session, sealed, summary)

    async def append_entries(
        self,
        session_id: str,
        entries: Sequence[Draft | Entry],
        *,
        expected_seq: int | None = None,
        incarnation: str | None = None,
        summary: bytes | None = None,
    ) -> Receipt:
        """Appends the batch in one transaction, synced on return; see `Store.append_entries`.

        Cancelling the await does not take the batch back: it may be stored.
        """
        check_session_id(session_id)
        self._check_open()
        batch = seal_all(entries)
        return await self.ask_append(
            session_id, batch, expected_seq=expected_seq, incarnation=incarnation, summary=summary
        ).future

    @begins(append_entries)
    def ask_append(
        self,
        session_id: str,
        batch: Sequence[Entry],
        *,
        expected_seq: int | None = None,
        incarnation: str | None = None,
        summary: bytes | None = None,
    ) -> Told[Receipt]:
        """`append_entries` of a sealed batch, begun at once; see `Asking.ask_append`."""
        check_session_id(session_id)
        check_unique(batch)
        self._check_open()
        return self._writer.submit(
            self._kind,
            session_id,
            Ledger.append_entries,
            (session_id, batch, expected_seq, incarnation, summary),
            is_brief=len(batch) == 1 and len(batch[0].raw) <= BRIEF_BYTES,
        )

    async def delete_session(self, session_id: str) -> None:
        """Deletes the session but for its tombstone; durable on return. O(its entries)."""
        await self._write(session_id, Ledger.delete_session, session_id)

    async def load_session(self, session_id: str) -> Session:
        """The session of this id."""
        return await self._ask(session_id, lambda reader: reader.load_session(session_id))

    async def load_entries(self, session_id: str, *, after: int = 0) -> Sequence[StoredEntry]:
        """The entries with a `seq` above `after`, in order."""
        return await self._ask(session_id, lambda reader: reader.load_entries(session_id, after))

    async def look(self, session_id: str) -> Look:
        """The session, where its log stands, and its summary, read as one."""
        return await self._ask(session_id, lambda reader: reader.look(session_id))

    async def load_owner(self, session_id: str) -> str | None:
        """Whose the session is; its header need not be sound."""
        return await self._ask(session_id, lambda reader: reader.load_owner(session_id))

    async def list_sessions(
        self, *, limit: int = 50, after: str | None = None, owner: str | None = None
    ) -> LookPage:
        """Sessions by newest append first, `limit` at a time; O(limit)."""
        return await self._ask_all(lambda reader: reader.list_sessions(limit, after, owner))

    async def page_entries(
        self,
        session_id: str,
        *,
        before: int | None = None,
        after: int | None = None,
        limit: int = 50,
    ) -> Page:
        """The entries between two `seq`s: the oldest with `after` given, else the newest."""
        return await self._ask(
            session_id, lambda reader: reader.page_entries(session_id, before, after, limit)
        )

    async def load_entry(self, session_id: str, entry: int | str) -> StoredEntry:
        """One entry, by `seq` or by entry id."""
        return await self._ask(session_id, lambda reader: reader.load_entry(session_id, entry))

    async def load_path(
        self, session_id: str, leaf_id: str, *, limit: int = 50, until: str | None = None
    ) -> PathPage:
        """The path that ends in `leaf_id`, root side first: at most the last `limit` of it."""
        return await self._ask(
            session_id, lambda reader: reader.load_path(session_id, leaf_id, limit, until)
        )

    async def children(
        self, session_id: str, parent_ids: Sequence[str | None]
    ) -> Mapping[str | None, tuple[str, ...]]:
        """The ids of the tree entries under each of these parents, by `seq`."""
        return await self._ask(session_id, lambda reader: reader.children(session_id, parent_ids))

    async def put_snapshot(self, session_id: str, snapshot: Snapshot) -> None:
        """Keeps the snapshot, in the place of one of the same `seq`."""
        await self._write(session_id, Ledger.put_snapshot, session_id, snapshot)

    async def load_snapshot(
        self, session_id: str, *, at_most: int | None = None
    ) -> Snapshot | None:
        """The newest snapshot whose `seq` is not above `at_most`."""
        return await self._ask(session_id, lambda reader: reader.load_snapshot(session_id, at_most))

    async def prune_snapshots(self, session_id: str, *, keep: int = KEPT) -> int:
        """Forgets all but the newest `keep`; returns how many."""
        return await self._write(session_id, Ledger.prune_snapshots, session_id, keep)

    async def session_ids(self) -> Sequence[str]:
        """The ids of all sessions, exactly as they were given, in order of their bytes."""
        return await self._ask_all(Reader.session_ids)

    async def verify_session(self, session_id: str) -> Verified:
        """Reads all of the session and holds it against its sums and its index.

        Raises:
            JournalCorruptError: the first damage that was found, and where.

        """
        return await self._ask(session_id, lambda reader: verify_session(reader, session_id))

    async def verify_store(self) -> Sequence[JournalCorruptError]:
        """The damage that belongs to no session of `session_ids`; reads the whole file."""
        return await self._ask_all(verify_store)

    async def stream_entries(
        self, session_id: str, *, after: int = 0
    ) -> AsyncIterator[Sequence[StoredEntry]]:
        """The entries with a `seq` above `after`, in order, about a MiB at a time.

        Raises:
            SessionDeletedError: it was deleted meanwhile.

        """
        session = await self.load_session(session_id)
        while True:
            found, entries = await self._ask(session_id, _chunk(session_id, after))
            found.check_incarnation(session.incarnation)
            if not entries:
                return
            after = entries[-1].seq
            yield entries

    async def salvage_entries(self, session_id: str) -> AsyncIterator[StoredEntry | Gap]:
        """What is sound of the session, and what is not there; see `perdure.salvage`."""
        for found in await self._ask(session_id, lambda reader: salvage(reader, session_id)):
            yield found

    def subscribe(self, listener: Callable[[str], None]) -> Callable[[], None]:
        """Calls `listener(session_id)` on this event loop after a commit of this store object.

        What other processes append gives no hint.
        """
        key = object()
        self._writer.listeners[key] = (asyncio.get_running_loop(), self._kind, listener)

        def end() -> None:
            self._writer.listeners.pop(key, None)

        return end

    async def try_write(self) -> None:
        """Returns once a commit that changes nothing is synced: the file can be written.

        Raises:
            PerdureError: it cannot; the text says why.

        """
        self._check_open()
        job = self._writer.call(self._writer.file.try_write)
        await asyncio.shield(asyncio.wrap_future(job))

    def observe_commits(self, listener: Callable[[int, float], object]) -> Callable[[], None]:
        """Calls `listener(requests, seconds)` after each group of requests that shared a commit.

        In the writer's thread, so it has to be quick. It is told until what is returned is called,
        or the store is closed, or it raises.
        """
        listeners = self._writer.commit_listeners
        listeners.append(listener)

        def end() -> None:
            with suppress(ValueError):
                listeners.remove(listener)

        return end

    @asynccontextmanager
    async def acquire_ownership(self, node: str) -> AsyncIterator[None]:
        """Owns the file inside the block, or until the store closes or the process ends.

        `node` says who owns it, to whoever tries next.

        Raises:
            StoreUnavailableError: somebody else owns it; the text says who.

        """
        self._check_open()
        await asyncio.shield(asyncio.wrap_future(self._writer.call(lambda: self._owner.take(node))))
        try:
            yield
        finally:
            if self._writer.closing is None:
                await asyncio.shield(asyncio.wrap_future(self._writer.call(self._owner.release)))

    async def close(self) -> None:
        """Waits for appends and answers under way and frees everything; idempotent.

        In a process that was forked off the one that opened the store it does nothing.
        """
        if self._writer.is_elsewhere:
            return
        if self._writer.closing is None:
            self._writer.flush_outbox()
            if self._writer.is_started:
                self._writer.closing = self._writer.call(self._shut)
            else:
                self._writer.closing = Future()
                self._writer.closing.set_result(None)
            self._writer.stop()
        await asyncio.shield(asyncio.wrap_future(self._writer.closing))
        self._writer.join()

    def _shut(self) -> None:
        self._readers.close()
        self._writer.file.drop()
        self._owner.release()

    def _check_open(self) -> None:
        if self._writer.closing is not None:
            raise self._closed()
        if self._writer.is_elsewhere:
            raise StoreUnavailableError(
                f"the store {str(self.path)!r} was opened before this process was forked off, and "
                "works in the one that opened it; nothing was attempted. Open it anew here"
            )

    def _closed(self) -> StoreUnavailableError:
        return StoreUnavailableError(
            f"the store {str(self.path)!r} is closed; nothing was attempted"
        )

    async def _write(self, session_id: str, verb: Callable[..., _T], *arguments: object) -> _T:
        check_session_id(session_id)
        self._check_open()
        result: _T = await self._writer.submit(self._kind, session_id, verb, arguments).future
        return result

    async def _ask(self, session_id: str, question: Callable[[Reader], _T]) -> _T:
        return await self._ask_about(check_session_id(session_id), question)

    async def _ask_all(self, question: Callable[[Reader], _T]) -> _T:
        return await self._ask_about("", question)

    async def _ask_about(self, session_id: str, question: Callable[[Reader], _T]) -> _T:
        self._check_open()
        if not self._writer.file.has_opened:
            await self._open()
        try:
            return await self._read(session_id, question)
        except LogGoneError:
            await self._open()
            return await self._read(session_id, question)

    async def _open(self) -> None:
        await asyncio.shield(asyncio.wrap_future(self._writer.call(self._writer.file.open)))

    async def _read(self, session_id: str, question: Callable[[Reader], _T]) -> _T:
        self._check_open()
        try:
            answer = asyncio.get_running_loop().run_in_executor(
                self._readers.threads, self._readers.ask, self._kind, session_id, question
            )
        except RuntimeError as error:  # another thread has just closed the store
            raise self._closed() from error
        return await answer


def _chunk(
    session_id: str, after: int
) -> Callable[[Reader], tuple[Session, Sequence[StoredEntry]]]:
    return lambda reader: reader.chunk(session_id, after)
