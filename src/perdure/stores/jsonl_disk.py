"""Plain files, with care: modes whatever the umask, links not followed, syncs, errors with a name.

All of it blocks.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from perdure.errors import (
    AppendUncertainError,
    JournalCorruptError,
    SessionNotFoundError,
    StoreUnavailableError,
)

_COMMON = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_NOT_A_FILE = {errno.ELOOP, errno.EISDIR, errno.ENXIO, errno.EMLINK}
_LINE_STEP_BYTES = 65536


def open_journal(path: str, session_id: str, flags: int) -> int:
    """Opens a journal's file.

    Raises:
        SessionNotFoundError: there is none.
        JournalCorruptError: it is a link, or no regular file.
        StoreUnavailableError: it cannot be opened.

    """
    try:
        fd = os.open(path, flags | _COMMON)
    except FileNotFoundError:
        raise SessionNotFoundError(session_id) from None
    except OSError as error:
        if error.errno in _NOT_A_FILE:
            raise _not_a_file(path, session_id) from error
        raise StoreUnavailableError(f"{path} cannot be opened: {error}") from error
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise _not_a_file(path, session_id)
    return fd


def _not_a_file(path: str, session_id: str) -> JournalCorruptError:
    detail = "it is a link or no regular file; links are not followed"
    return JournalCorruptError(session_id, None, path, detail)


@contextmanager
def reading(path: str, session_id: str) -> Iterator[int]:
    """A journal's file, open for reading inside the block; see `open_journal`."""
    fd = open_journal(path, session_id, os.O_RDONLY)
    try:
        with unavailable(f"{path} cannot be read"):
            yield fd
    finally:
        os.close(fd)


def identity(fd: int) -> tuple[int, int]:
    """Which file it is, whatever its name."""
    found = os.fstat(fd)
    return found.st_dev, found.st_ino


def read_bytes(fd: int, start: int, stop: int) -> bytes:
    """The bytes from `start` to `stop`, or to the end of the file."""
    data = os.pread(fd, stop - start, start)
    if len(data) == stop - start:
        return data
    pieces = [data]
    while pieces[-1]:
        start += len(pieces[-1])
        pieces.append(os.pread(fd, stop - start, start))
    return b"".join(pieces)


def read_first_line(fd: int) -> bytes:
    """The first line, without its newline."""
    size = os.fstat(fd).st_size
    data = b""
    while b"\n" not in data and len(data) < size:
        data += os.pread(fd, _LINE_STEP_BYTES, len(data))
    return data.partition(b"\n")[0]


def write_all(fd: int, data: bytes) -> None:
    """Writes all of it, in one call where the system takes it in one."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def write_new(path: str, data: bytes, *, durable: bool) -> None:
    """Writes a new file of mode 0600, whatever the umask; leaves none behind if that fails."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _COMMON, 0o600)
    try:
        os.fchmod(fd, 0o600)
        write_all(fd, data)
        if durable:
            sync_data(fd)
    except OSError:
        os.unlink(path)
        raise
    finally:
        os.close(fd)


def make_folder(path: str, *, durable: bool) -> None:
    """Makes the folder, and those above it, with mode 0700 whatever the umask."""
    if os.path.isdir(path):
        return
    above = os.path.dirname(path)
    make_folder(above, durable=durable)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        if os.path.isdir(path):
            return
        raise
    os.chmod(path, 0o700)
    if durable:
        sync_folder(above)


def sync_data(fd: int) -> None:
    """The file's bytes, and its size, are on the disk when this returns."""
    if hasattr(os, "fdatasync"):
        os.fdatasync(fd)
    else:
        os.fsync(fd)


def sync_folder(path: str) -> None:
    """The folder's names are on the disk when this returns."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def distrust_cache(fd: int) -> None:
    """After a failed sync: what the page cache has and the disk has not is read no more."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


@contextmanager
def unavailable(what: str) -> Iterator[None]:
    """Turns the system's errors inside the block into StoreUnavailableError."""
    try:
        yield
    except OSError as error:
        raise StoreUnavailableError(f"{what}: {error}") from error


@contextmanager
def uncertain(what: str) -> Iterator[None]:
    """Turns the system's errors inside the block into AppendUncertainError."""
    try:
        yield
    except OSError as error:
        raise AppendUncertainError(f"{what}: {error}; reload, then compare entry ids") from error
