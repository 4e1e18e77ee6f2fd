"""One session's file: creating, reading and appending. All of it blocks; worker threads call it.

One thread at a time appends to a `JournalFile`, others read meanwhile; between processes, and
between stores in one, appends exclude each other by a lock on the file. Readers take no lock: what
is not whole yet is a torn tail to them. Nothing of the file but its sound part is remembered.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from threading import Lock

from msgspec import Struct

from perdure import clock
from perdure.codec import Entry, StoredEntry
from perdure.errors import (
    AppendUncertainError,
    JournalCorruptError,
    PerdureError,
    SessionExistsError,
    StoreUnavailableError,
)
from perdure.fact import Gap
from perdure.line import read_line
from perdure.store import Receipt, Session, Verified, place_batch, receipt_of
from perdure.stores.disk import Disk, identity, unavailable, uncertain
from perdure.stores.jsonl_name import SUFFIX, draft_name, is_draft, is_hashed, name_of
from perdure.stores.jsonl_salvage import salvage_file
from perdure.stores.jsonl_scan import frame, read_on
from perdure.stores.jsonl_sound import Sound, read_header
from perdure.stores.jsonl_stream import LineStream, verify_file

logger = logging.getLogger("perdure.stores.jsonl")

LOCK_WAIT_S = 10.0
"""How long an append waits for another process's before it is refused."""

_LOCK_STEP_S = 0.005


class Append(Struct, frozen=True):
    """A caller's batch and its conditions."""

    entries: Sequence[Entry]
    expected_seq: int | None
    incarnation: str | None


class Folder:
    """The folder that a store's files are in, and the disk that it is on."""

    def __init__(self, path: str, *, durable: bool, disk: Disk | None = None) -> None:
        self.path = path
        self.durable = durable
        self.disk = disk or Disk()
        self._is_settled = False
        self._is_swept = False

    def make(self) -> None:
        """Makes it where there is none; takes away, once, what dead processes left half made."""
        if not self.disk.is_folder(self.path):
            self._is_settled = False
            self.disk.make_folder(self.path)
        elif not self._is_swept:
            self._sweep()
        self._is_swept = True

    def _sweep(self) -> None:
        with suppress(OSError):  # it harms nobody, and whoever comes next tries again
            for name in filter(is_draft, self.disk.names(self.path)):
                self._take_away(os.path.join(self.path, name))

    def _take_away(self, draft: str) -> None:
        with suppress(OSError):
            fd = self.disk.open(draft, os.O_RDONLY)
            try:
                if self.disk.lock(fd) and self.disk.is_named(fd, draft):
                    self.disk.unlink(draft)
            finally:
                self.disk.close(fd)

    def sync(self) -> None:
        """The names in it, and its own, are on the disk when this returns, if that is asked for."""
        if self.durable:
            self.disk.sync_folder(self.path)
            if not self._is_settled:
                self.disk.settle_folder(self.path)
                self._is_settled = True


class JournalFile:
    """The file of one session in a folder, and what is remembered of it."""

    def __init__(self, folder: Folder, session_id: str) -> None:
        self.session_id = session_id
        self._folder = folder
        self._disk = folder.disk
        self._durable = folder.durable
        self._name = name_of(session_id)
        self._path = os.path.join(folder.path, self._name + SUFFIX)
        self._fd: int | None = None
        self._sound: Sound | None = None
        self._acknowledged = "", 0
        self._identity: tuple[int, int] | None = None
        self._synced_size = 0
        self._unsynced_from: int | None = None
        self._is_name_synced = False
        self._is_writing = False
        self._one_writer = Lock()

    def close(self) -> None:
        """Forgets what is remembered."""
        fd, self._fd, self._sound, self._is_name_synced = self._fd, None, None, False
        if fd is not None:
            self._disk.close(fd)

    # Creating

    def create(self, session: Session, entries: Sequence[Entry]) -> Session:
        """Creates the file whole: under a name of its own, synced, then linked to its real name."""
        stored = [StoredEntry(seq, entry) for seq, entry in enumerate(entries, 1)]
        lines, _ = frame(stored, session.first_sum)
        data = b"".join([session.header, b"\n", *lines])
        with unavailable(f"session {self.session_id!r} was not created"):
            self._folder.make()
            if self._disk.stat_name(self._path) is not None:
                raise self._exists()
            fd, draft = self._open_draft()
        try:
            self._write_draft(fd, draft, data)
            with uncertain(f"session {self.session_id!r} may have been created: try to load it"):
                self._disk.unlink(draft)
                self._folder.sync()
        finally:
            self._disk.close(fd)
        return session

    def _open_draft(self) -> tuple[int, str]:
        """A new file of a name of its own, locked, so that nobody takes it for a dead one's."""
        while True:
            draft = os.path.join(self._folder.path, draft_name(self._name, clock.new_id()))
            fd = self._disk.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                if self._disk.lock(fd) and self._disk.is_named(fd, draft):
                    return fd, draft
            except OSError:
                self._disk.close(fd)
                self._disk.unlink(draft)
                raise
            self._disk.close(fd)

    def _write_draft(self, fd: int, draft: str, data: bytes) -> None:
        with unavailable(f"session {self.session_id!r} was not created"):
            try:
                self._disk.make_private(fd)
                self._disk.write_all(fd, data)
                if self._durable:
                    self._disk.sync_data(fd)
                self._disk.link(draft, self._path)
            except OSError as error:
                self._disk.unlink(draft)
                if isinstance(error, FileExistsError):
                    raise self._exists() from None
                raise

    def _exists(self) -> SessionExistsError:
        self._folder.sync()  # whoever created it may not have come so far
        return SessionExistsError(self.session_id)

    # Reading

    def read_session(self) -> Session:
        """The session, from the first line alone."""
        with self._disk.reading(self._path, self.session_id) as fd:
            return read_header(self._disk.read_first_line(fd), self.session_id, self._path).session

    def read(self, after: int = 0) -> list[StoredEntry]:
        """The entries after a `seq`; O(answer) where the file is remembered, else O(file)."""
        found = self._read_rest(after) if after > 0 else None
        if found is not None:
            return found[after - found[0].seq + 1 :] if found and found[0].seq <= after else found
        size = self._checked_size
        stream = LineStream(
            self._disk, self._path, self.session_id, after=max(after, 0), visible_size=size
        )
        found = stream.next()
        while more := stream.next():
            found += more
        self._check_not_older(stream.sound)
        return found

    def verify(self) -> Verified:
        """Reads the whole file and checks every sum in it."""
        return verify_file(self._disk, self._path, self.session_id, self._checked_size)

    def stream(self, after: int) -> LineStream:
        """The entries after a `seq`, to be read some at a time; O(file)."""
        size = self._visible_size
        return LineStream(self._disk, self._path, self.session_id, after=after, visible_size=size)

    def salvage(self) -> list[StoredEntry | Gap]:
        """The sound entries of the file, and its gaps; changes nothing."""
        path = self._path
        with unavailable(f"{path} cannot be read"):
            is_here = self._disk.stat_name(path) is not None
        if not is_here and is_hashed(self.session_id):
            path = os.path.join(self._folder.path, self.session_id + SUFFIX)  # its id is lost
        return salvage_file(self._disk, path, self.session_id)

    def _read_rest(self, after: int) -> list[StoredEntry] | None:
        """The entries after a `seq`, from what is remembered; None where that does not help."""
        sound, known_as = self._sound, self._identity
        if sound is None or after > sound.last_seq:
            return None
        with self._disk.reading(self._path, self.session_id) as fd:
            size = self._visible_size(fd)
            count = len(sound.offsets)
            start = sound.offsets[after] if after < count else sound.size
            if identity(self._disk.stat(fd)) != known_as or size < start or sound.lacks_newline:
                return None
            data = self._disk.read_bytes(fd, start, size)
        rest = Sound(self._path, sound.session, start, b"", last_seq=after)
        try:
            return read_on(rest, data, in_batch=after < count)
        except JournalCorruptError:
            return None

    def _checked_size(self, fd: int) -> int:
        """The visible size, which never becomes less."""
        size, remembered = self._visible_size(fd), self._sound
        if remembered is not None and identity(self._disk.stat(fd)) == self._identity:
            _check_not_shorter(remembered, size)
        return size

    def _visible_size(self, fd: int) -> int:
        """How much of the file may be read: not what is being written and is not synced yet."""
        size = self._disk.size(fd)
        sound = self._sound
        if not self._is_writing or sound is None:
            return size
        is_known = identity(self._disk.stat(fd)) == self._identity
        return min(size, sound.size) if is_known else size

    # Appending

    def write(self, appends: Sequence[Append]) -> list[Receipt | PerdureError]:
        """Appends the batches as one, with one write and one sync; the outcome of each."""
        with self._one_writer:
            return self._write(appends)

    def _write(self, appends: Sequence[Append]) -> list[Receipt | PerdureError]:
        try:
            fd, size, sound = self._catch_up()
        except JournalCorruptError:
            self._unlock()  # and remember what was sound: it cannot become less
            raise
        except PerdureError:
            self.close()
            raise
        try:
            outcomes, new = self._place(fd, sound, appends)
            if not self._is_name_synced:
                self._folder.sync()  # whoever created the file may not have come so far
                self._is_name_synced = True
            if self._unsynced_from is not None:
                self._write_again(fd, sound.size)
            if new:
                if size != sound.size:
                    self._cut_torn_tail(fd, sound, size)
                self._append(fd, sound, new)
            elif self._durable and self._synced_size < sound.size:
                self._sync(fd, sound.size)
        except (AppendUncertainError, StoreUnavailableError):
            self.close()
            raise
        except OSError as error:
            self.close()
            raise StoreUnavailableError(
                f"{self._path} cannot be appended to; nothing was stored: {error}"
            ) from error
        finally:
            self._is_writing = False
            self._unlock()
        self._acknowledged = sound.session.incarnation, sound.last_seq
        return outcomes

    def _unlock(self) -> None:
        if self._fd is not None:
            try:
                self._disk.unlock(self._fd)
            except OSError:
                self.close()

    def _catch_up(self) -> tuple[int, int, Sound]:
        """Locks the file and reads what others appended; leaves it locked. Also its size."""
        try:
            fd = self._fd
            size = None if fd is None else self._lock_in_place(fd)
            if fd is None or size is None:
                self.close()
                flags = os.O_RDWR | os.O_APPEND
                fd = self._fd = self._disk.open_journal(self._path, self.session_id, flags)
                self._identity = identity(self._disk.stat(fd))
                size = self._lock_in_place(fd)
            if size is None:
                raise StoreUnavailableError(
                    f"{self._path} was moved or removed meanwhile; nothing was stored: try again"
                )
            sound = self._sound
            if sound is None:
                sound = self._sound = self._read_whole(fd, size)
            elif size != sound.size:
                _check_not_shorter(sound, size)
                read_on(sound, self._disk.read_bytes(fd, sound.size, size))
        except OSError as error:
            raise StoreUnavailableError(f"{self._path} cannot be read: {error}") from error
        return fd, size, sound

    def _read_whole(self, fd: int, size: int) -> Sound:
        data = self._disk.read_bytes(fd, 0, size)
        sound = read_header(data, self.session_id, self._path)
        sound.session.check_writable()
        read_on(sound, data[sound.size :])
        self._check_not_older(sound)
        self._synced_size = 0
        return sound

    def _check_not_older(self, sound: Sound) -> None:
        """A file in the place of another has at least what was acknowledged of the same session."""
        incarnation, last_seq = self._acknowledged
        if sound.session.incarnation == incarnation and sound.last_seq < last_seq:
            raise sound.damage(
                sound.size,
                f"it ends at seq {sound.last_seq}, and {last_seq} was stored: it is an older copy. "
                "What is in it is used once the store is opened anew",
            )

    def _lock_in_place(self, fd: int) -> int | None:
        """Locks the file; its size, or None if it is not the one of its name any more."""
        disk = self._disk
        if not disk.lock(fd):
            if not disk.is_named(fd, self._path):
                return None  # whoever holds it need not be waited for
            self._lock(fd)
        named = disk.stat_name(self._path)  # one call: the open file's size is that of its name
        if named is None or identity(named) != self._identity:
            return None
        return named.st_size

    def _lock(self, fd: int) -> None:
        for _ in range(int(LOCK_WAIT_S / _LOCK_STEP_S)):
            if self._disk.lock(fd):
                return
            time.sleep(_LOCK_STEP_S)
        raise StoreUnavailableError(
            f"{self._path} has been locked by another process for {LOCK_WAIT_S:g} s; "
            "nothing was stored: try again"
        )

    def _place(
        self, fd: int, sound: Sound, appends: Sequence[Append]
    ) -> tuple[list[Receipt | PerdureError], list[StoredEntry]]:
        outcomes: list[Receipt | PerdureError] = []
        new: list[StoredEntry] = []
        known: dict[str, StoredEntry] = {}
        ids, last_seq = sound.ids, sound.last_seq
        for append in appends:
            for entry in append.entries:
                if entry.id in ids and entry.id not in known:
                    known[entry.id] = self._stored(fd, sound, ids[entry.id])
            try:
                receipt = place_batch(
                    sound.session,
                    append.entries,
                    known,
                    last_seq=last_seq,
                    expected_seq=append.expected_seq,
                    incarnation=append.incarnation,
                )
            except PerdureError as error:
                outcomes.append(error)
                continue
            if receipt is None:
                batch = [StoredEntry(seq, e) for seq, e in enumerate(append.entries, last_seq + 1)]
                if len(appends) > 1:
                    known.update((stored.id, stored) for stored in batch)
                new += batch
                last_seq += len(batch)
                receipt = receipt_of(batch)
            outcomes.append(receipt)
        return outcomes, new

    def _stored(self, fd: int, sound: Sound, seq: int) -> StoredEntry:
        start = sound.offsets[seq - 1]
        stop = sound.offsets[seq] if seq < sound.last_seq else sound.size
        line = self._disk.read_bytes(fd, start, stop).rstrip(b"\n")
        try:
            return StoredEntry(seq, read_line(line).entry)
        except ValueError as error:
            place = f"{self._path}, line {seq + 1}, byte {start}"
            raise JournalCorruptError(self.session_id, seq, place, str(error)) from error

    def _cut_torn_tail(self, fd: int, sound: Sound, size: int) -> None:
        """Moves what is beyond the sound part into a side file: it was never acknowledged."""
        torn = self._disk.read_bytes(fd, sound.size, size)
        n = 1
        side = os.path.join(self._folder.path, f"{self._name}.torn-{n}")
        while self._disk.stat_name(side) is not None:
            n += 1
            side = os.path.join(self._folder.path, f"{self._name}.torn-{n}")
        self._disk.write_new(side, torn, durable=self._durable)
        self._folder.sync()
        self._disk.truncate(fd, sound.size)
        logger.warning(
            "%s: cut a torn tail of %d bytes after byte %d; it is kept in %s",
            *(self._path, len(torn), sound.size, side),
        )

    def _append(self, fd: int, sound: Sound, new: list[StoredEntry]) -> None:
        lines, sums = frame(new, sound.last_sum)
        start = sound.size
        data = lines[0] if len(lines) == 1 else b"".join(lines)
        if sound.lacks_newline:
            data = b"\n" + data
        self._is_writing = True
        try:
            self._disk.write_all(fd, data)
        except OSError:
            with uncertain(f"what was written of a batch to {self._path} could not be cut off"):
                self._disk.truncate(fd, start)
                if self._durable:
                    self._disk.sync_data(fd)
            raise
        try:
            self._sync(fd, start + len(data))
        except AppendUncertainError:
            # So that no other process takes for stored what no later sync would write.
            with suppress(OSError):
                self._disk.truncate(fd, start)
            raise
        offset = start + sound.lacks_newline
        for stored, line, running_sum in zip(new, lines, sums, strict=True):
            sound.add(stored, offset, running_sum)
            offset += len(line)
        sound.lacks_newline = False
        sound.size = offset

    def _sync(self, fd: int, size: int) -> None:
        if not self._durable:
            return
        try:
            self._disk.sync_data(fd)
        except OSError as error:
            if self._unsynced_from is None:
                self._unsynced_from = self._synced_size
            with uncertain(f"syncing {self._path} failed: its last entries may be stored"):
                self._disk.drop_cache(fd)
                raise error
        self._synced_size = size
        self._unsynced_from = None

    def _write_again(self, fd: int, size: int) -> None:
        """After a failed sync the system may take for written what is not; a later one succeeds."""
        assert self._unsynced_from is not None
        start = self._unsynced_from
        if start < size:
            self._disk.write_again(self._path, self._disk.read_bytes(fd, start, size), start)
            self._sync(fd, size)
        self._unsynced_from = None


def _check_not_shorter(sound: Sound, size: int) -> None:
    if size < sound.size:
        raise sound.damage(size, f"{sound.size} bytes were there, {size} are left")
