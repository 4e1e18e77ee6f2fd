"""A session as a file of JSON lines that another machine can check: export, import, heads.

The file is what docs/format.md says of JSON lines, one entry a batch. A *head* (`seq` and running
sum) is all that somebody has to keep elsewhere to tell afterwards whether the log up to there was
changed, rewritten or cut off. Nothing here holds more of a session than a chunk of it, but for an
import, which is one atomic step.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from typing import Protocol

from perdure import clock
from perdure.codec import Entry, StoredEntry, next_sum
from perdure.encoding import is_too_deep
from perdure.errors import (
    AppendRejectedError,
    FormatTooNewError,
    JournalCorruptError,
    SessionNotFoundError,
    StoreUnavailableError,
)
from perdure.line import write_line
from perdure.store import FORMAT, Head, Session, SessionStore, Store, Verified
from perdure.stores.disk import Disk, unavailable
from perdure.stores.jsonl_stream import CHUNK_BYTES, LineStream


class ReadableStore(SessionStore, Protocol):
    """What exporting and checking need of a store; every store of Perdure has it."""

    async def verify_session(self, session_id: str) -> Verified:
        """Checks every byte and sum of the session; raises JournalCorruptError on damage."""
        ...

    def stream_entries(
        self, session_id: str, *, after: int = 0
    ) -> AsyncIterator[Sequence[StoredEntry]]:
        """The entries with a `seq` above `after`, in order, some at a time."""
        ...


class Export:
    """The lines of one session, as they stood when it was verified: iterate it once or again."""

    def __init__(self, store: ReadableStore, session: Session, verified: Verified) -> None:
        self._store = store
        self.session = session
        self.verified = verified

    @property
    def head(self) -> Head:
        """Where the export ends: keep it elsewhere, and any change of the file can be told."""
        return self.verified.head

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Each line with its newline, the header's first.

        Raises:
            JournalCorruptError: what is read now is not what was verified.
            AppendRejectedError: an entry's bytes are not one line of JSON, so no file can have it.
            SessionDeletedError, StoreUnavailableError.

        """
        yield self.session.header + b"\n"
        here = Head(0, self.session.first_sum)
        async for entries in self._store.stream_entries(self.session.id):
            for stored in entries:
                if here.seq == self.head.seq:
                    break
                here = Head(stored.seq, next_sum(here.sum, stored.raw))
                _check_line(stored)
                yield write_line(stored.entry, stored.seq, here.sum, (1, 1))
            if here.seq == self.head.seq:
                break
        if here != self.head:
            detail = f"its head was {self.head} when it was verified, and is {here} now"
            raise JournalCorruptError(self.session.id, here.seq, "its end", detail)


def _check_line(stored: StoredEntry) -> None:
    if b"\n" in stored.raw or not stored.raw.endswith(b"}"):
        raise AppendRejectedError(
            f"entry {stored.id!r} (seq {stored.seq}) is not one line of JSON, so it cannot be "
            "exported; another program stored it like that"
        )


async def export_session(store: ReadableStore, session_id: str) -> Export:
    """The session's export, verified to its last byte before the first line of it is made.

    Raises:
        InvalidSessionIdError, SessionNotFoundError, StoreUnavailableError.
        JournalCorruptError: it is damaged; a damaged log is salvaged, never exported.

    """
    session = await store.load_session(session_id)
    return Export(store, session, await store.verify_session(session_id))


async def write_export(
    export: Export, path: str | os.PathLike[str], *, replace: bool = False
) -> None:
    """Writes the file whole or not at all, of mode 0600; durable on return.

    Raises:
        StoreUnavailableError: it is there already and `replace` is not asked for, or it cannot be
            written; what is there is left as it is.
        JournalCorruptError, AppendRejectedError, SessionDeletedError: as for `Export`; no file.

    """
    target, draft = _places(path)
    disk = Disk()
    if not replace and disk.stat_name(target) is not None:
        raise _is_there(target)
    with unavailable(f"{target} cannot be written; there is no part of it"):
        fd = await asyncio.to_thread(disk.open, draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            try:
                disk.make_private(fd)
                async for block in _blocks(export):
                    await asyncio.to_thread(disk.write_all, fd, block)
                await asyncio.to_thread(disk.sync_data, fd)
            finally:
                disk.close(fd)
            await asyncio.to_thread(_name, disk, draft, target, replace)
        except BaseException:
            with suppress(FileNotFoundError):  # it has its name already
                disk.unlink(draft)
            raise


def _places(path: str | os.PathLike[str]) -> tuple[str, str]:
    target = os.path.abspath(path)
    folder, name = os.path.split(target)
    return target, os.path.join(folder, f".{name[:100]}.{clock.new_id()}.tmp")


async def _blocks(export: Export) -> AsyncIterator[bytes]:
    lines: list[bytes] = []
    size = 0
    async for line in export:
        lines.append(line)
        size += len(line)
        if size >= CHUNK_BYTES:
            yield b"".join(lines)
            lines, size = [], 0
    yield b"".join(lines)


def _name(disk: Disk, draft: str, target: str, replace: bool) -> None:
    if replace:
        os.replace(draft, target)
    else:
        try:
            disk.link(draft, target)
        except FileExistsError:
            raise _is_there(target) from None
        disk.unlink(draft)
    disk.sync_folder(os.path.dirname(target))


def _is_there(target: str) -> StoreUnavailableError:
    return StoreUnavailableError(
        f"{target} is there already and was left as it was; give another name, or --force"
    )


async def check_head(store: ReadableStore, session_id: str, head: Head) -> Verified:
    """Verifies the session, and that its log had this head.

    Raises:
        InvalidSessionIdError, SessionNotFoundError, StoreUnavailableError.
        JournalCorruptError: it is damaged, was cut off before the head, or was changed before it.

    """
    verified = await store.verify_session(session_id)
    session = await store.load_session(session_id)
    watch = _HeadWatch(session, head)
    async for entries in store.stream_entries(session_id):
        if watch.take(entries):
            break
    watch.check(f"session {session_id!r}")
    return verified


class _HeadWatch:
    """Recomputes the sum up to a head that somebody kept."""

    def __init__(self, session: Session, head: Head | None) -> None:
        self._session = session
        self._head = head
        self._here = Head(0, session.first_sum)

    def take(self, entries: Sequence[StoredEntry]) -> bool:
        """Whether the head's place is reached."""
        if self._head is None:
            return True
        for stored in entries:
            if self._here.seq == self._head.seq:
                break
            self._here = Head(stored.seq, next_sum(self._here.sum, stored.raw))
        return self._here.seq == self._head.seq

    def check(self, place: str) -> None:
        """Raises JournalCorruptError if the log did not have the head."""
        if self._head is None or self._here == self._head:
            return
        if self._here.seq < self._head.seq:
            detail = (
                f"it ends at seq {self._here.seq}, and the head that was kept is of a longer log"
            )
        else:
            detail = f"the head that was kept is {self._head}, this log's is {self._here}: changed"
        raise JournalCorruptError(self._session.id, self._head.seq, place, detail)


class ExportFile:
    """A file of one session's lines, checked while it is read; every call blocks.

    It is read more strictly than a store's own file: what ends torn, or in mid-batch, is damaged.
    """

    def __init__(self, path: str | os.PathLike[str], *, head: Head | None = None) -> None:
        self._path = os.path.realpath(path)
        self._head = head
        self._stream = LineStream(Disk(), self._path, None, verify=True)

    @property
    def session(self) -> Session:
        """The header's session; known once reading has begun."""
        return self._stream.session

    @property
    def verified(self) -> Verified:
        """What the file came to, once it was read to its end."""
        return self._stream.verified

    def chunks(self) -> Iterator[Sequence[StoredEntry]]:
        """The entries, some at a time; the whole file is sound if it ends without an error.

        Raises:
            StoreUnavailableError: there is no such file, or it cannot be read.
            JournalCorruptError: damage, a torn end, or another log than the head is of.

        """
        try:
            entries = self._stream.next()
        except SessionNotFoundError:
            raise StoreUnavailableError(f"there is no file {self._path!r}") from None
        watch = _HeadWatch(self.session, self._head)
        while entries:
            watch.take(entries)
            yield entries
            entries = self._stream.next()
        watch.check(self._path)
        if self.verified.torn is not None:
            raise JournalCorruptError(
                self.session.id,
                self.verified.head.seq + 1,
                self.verified.torn,
                "they are no whole entries: the file was cut off or changed there",
            )


async def verify_file(path: str | os.PathLike[str], *, head: Head | None = None) -> ExportFile:
    """Reads every byte of an exported file and checks it, against a head too if one was kept.

    Raises:
        StoreUnavailableError, JournalCorruptError: as for `ExportFile.chunks`.

    """
    file = ExportFile(path, head=head)

    def read() -> None:
        for _ in file.chunks():
            pass

    await asyncio.to_thread(read)
    return file


async def import_session(
    store: Store,
    path: str | os.PathLike[str],
    *,
    new_id: str | None = None,
    head: Head | None = None,
) -> Session:
    """Creates a session of an exported file's entries, in one atomic step: the same ids and bytes.

    Nothing is stored before the file is checked whole. The session's header is a new one (now,
    with an incarnation of its own), so that its sums are others than the file's. Holds the entries
    in memory.

    Raises:
        StoreUnavailableError, JournalCorruptError: as for `ExportFile.chunks`; nothing stored.
        FormatTooNewError: a newer version wrote the file; nothing stored.
        AppendRejectedError: an entry cannot be stored; nothing stored.
        InvalidSessionIdError, SessionExistsError, AppendUncertainError: of `create_session`.

    """
    file = ExportFile(path, head=head)
    entries = await asyncio.to_thread(lambda: [*_entries(file)])
    session = file.session
    if session.format > FORMAT:
        raise FormatTooNewError(f"file {os.fspath(path)!r}", session.format, FORMAT)
    session_id = new_id if new_id is not None else session.id
    return await store.create_session(session_id, parent_id=session.parent_id, entries=entries)


def _entries(file: ExportFile) -> Iterator[Entry]:
    for chunk in file.chunks():
        for stored in chunk:
            if is_too_deep(stored.raw):
                raise AppendRejectedError(f"entry {stored.id!r} is nested too deeply")
            yield stored.entry
