"""A file of lines read in chunks, in memory for one chunk and the ids; and a file verified whole.

Each chunk opens the file anew, so nothing is held between two; a chunk is about a MiB, or the batch
that is larger. All of it blocks.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from perdure.codec import StoredEntry
from perdure.errors import JournalCorruptError, StoreUnavailableError
from perdure.store import Head, Session, Verified, read_session
from perdure.stores.disk import Disk, identity
from perdure.stores.jsonl_scan import read_on
from perdure.stores.jsonl_sound import Sound, read_header

CHUNK_BYTES = 1 << 20

_LOCK_WAIT_S = 10.0
_LOCK_STEP_S = 0.005


class LineStream:
    """The entries of the file at `path`, in order.

    `session_id` is whose journal it must be, None where the first line may say; `visible_size` how
    much of the open file may be read. With `verify` every byte is held against its sum.
    """

    def __init__(
        self,
        disk: Disk,
        path: str,
        session_id: str | None,
        *,
        after: int = 0,
        verify: bool = False,
        visible_size: Callable[[int], int] | None = None,
    ) -> None:
        self._disk = disk
        self._path = path
        self._session_id = session_id
        self._after = after
        self._verify = verify
        self._visible_size = visible_size or disk.size
        self._sound: Sound | None = None
        self._identity: tuple[int, int] | None = None
        self._seen_damage = ""
        self._header: bytes | None = None
        self._last_seq = 0
        self.rest_bytes = 0
        """How much stands after the last whole entry, once `next` has said that there is none."""

    @property
    def session(self) -> Session:
        """Whose journal it is; known after the first `next`."""
        return self._known().session

    @property
    def sound(self) -> Sound:
        """What is known of the lines so far; after the first `next`."""
        return self._known()

    @property
    def verified(self) -> Verified:
        """What the lines so far came to."""
        sound = self._known()
        torn = f"{self._path}, byte {sound.size}: {self.rest_bytes} bytes"
        head = Head(sound.last_seq, sound.last_sum)
        return Verified(head, torn if self.rest_bytes else None, sound.unproven)

    def _known(self) -> Sound:
        assert self._sound is not None
        return self._sound

    def next(self) -> list[StoredEntry]:
        """The next entries; none at the end of what is there now.

        Raises:
            SessionNotFoundError, StoreUnavailableError.
            JournalCorruptError: there is damage, seen twice: a tail may be cut while it is read.

        """
        while True:
            try:
                found = self._next()
            except JournalCorruptError as error:
                if str(error) == self._seen_damage:
                    raise
                self._seen_damage, self._sound, self._identity = str(error), None, None
                continue
            if not found or found[-1].seq > self._after:
                break
        new = [stored for stored in found if stored.seq > self._after]
        if new:
            self._after = self._last_seq = new[-1].seq
        elif self._known().last_seq < self._last_seq:
            raise self._replaced(self._known())
        return new

    def _replaced(self, sound: Sound) -> JournalCorruptError:
        return sound.damage(sound.size, "the file became another one while it was read")

    def _next(self) -> list[StoredEntry]:
        with self._disk.reading(self._path, self._session_id or "") as fd:
            sound = self._sound or self._open(fd)
            size = self._visible_size(fd)
            if self._identity != identity(self._disk.stat(fd)) or size < sound.size:
                raise self._replaced(sound)
            want = CHUNK_BYTES
            while sound.size < size:
                stop = min(size, sound.size + want)
                data = self._disk.read_bytes(fd, sound.size, stop)
                if stop < size:
                    data = data[: data.rfind(b"\n") + 1]
                if found := read_on(sound, data, verify=self._verify, is_end=stop == size):
                    return found
                if stop == size:
                    break
                want *= 2
            self.rest_bytes = size - sound.size
            return []

    def _open(self, fd: int) -> Sound:
        line = self._disk.read_first_line(fd)
        header = self._disk.read_bytes(fd, 0, len(line) + 1)
        session_id = self._session_id
        if session_id is None:
            try:
                session_id = read_session(line).id
            except ValueError as error:
                place = f"{self._path}, line 1, byte 0"
                raise JournalCorruptError("", None, place, str(error)) from error
        self._sound = read_header(header, session_id, self._path)
        if self._header not in (None, line):
            raise self._replaced(self._sound)
        self._header = line
        self._identity = identity(self._disk.stat(fd))
        return self._sound


def verify_file(
    disk: Disk, path: str, session_id: str, visible_size: Callable[[int], int]
) -> Verified:
    """Reads every byte of the file and checks every sum.

    A tail that looks torn is looked at again under the file's lock: it may be in the making.

    Raises:
        SessionNotFoundError, StoreUnavailableError.
        JournalCorruptError: the first damage that was found.

    """
    stream = LineStream(disk, path, session_id, verify=True, visible_size=visible_size)
    while stream.next():
        pass
    if stream.rest_bytes:
        with _locked(disk, path, session_id):
            while stream.next():
                pass
    return stream.verified


@contextmanager
def _locked(disk: Disk, path: str, session_id: str) -> Iterator[None]:
    fd = disk.open_journal(path, session_id, os.O_RDONLY)
    try:
        for _ in range(int(_LOCK_WAIT_S / _LOCK_STEP_S)):
            if disk.lock(fd):
                break
            time.sleep(_LOCK_STEP_S)
        else:
            raise StoreUnavailableError(f"{path} is locked by another process; try again")
        yield
    finally:
        disk.close(fd)
