"""The one door to the file system: every system call of the JSON-lines store is a method of `Disk`.

Modes whatever the umask, links not followed, a name for every error. All of it blocks. A test puts
a `Disk` of its own underneath, which fails a call or loses the power. Folders that others need,
SQLite's file and the server's data, are made here too.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from perdure.errors import (
    AppendUncertainError,
    JournalCorruptError,
    SessionNotFoundError,
    StoreUnavailableError,
)

_COMMON = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_NOT_A_FILE = {errno.ELOOP, errno.EISDIR, errno.ENXIO, errno.EMLINK}
_LINE_STEP_BYTES = 65536


class Disk:
    """Plain files, with care; any thread may call it."""

    # System calls, one each

    def open(self, path: str, flags: int, mode: int = 0) -> int:
        """Opens a file or a folder; never follows a link to it."""
        return os.open(path, flags | _COMMON, mode)

    def close(self, fd: int) -> None:
        """Closes it; what had to be on the disk was synced before, so an error says nothing."""
        with suppress(OSError):
            os.close(fd)

    def stat(self, fd: int) -> os.stat_result:
        """What the system knows of an open file."""
        return os.fstat(fd)

    def stat_name(self, path: str) -> os.stat_result | None:
        """What bears this name, a link itself included; None where nothing does."""
        try:
            return os.lstat(path)
        except FileNotFoundError:
            return None

    def is_folder(self, path: str) -> bool:
        """Whether it is a folder, or a link to one."""
        return os.path.isdir(path)

    def names(self, folder: str) -> list[str]:
        """The names in a folder."""
        return os.listdir(folder)

    def read(self, fd: int, size: int, offset: int) -> bytes:
        """At most `size` bytes from `offset`."""
        return os.pread(fd, size, offset)

    def write(self, fd: int, data: bytes | memoryview) -> int:
        """Writes at the end of the file, perhaps not all of it; returns how much."""
        return os.write(fd, data)

    def write_at(self, fd: int, data: bytes | memoryview, offset: int) -> int:
        """Writes at `offset`, perhaps not all of it; returns how much. Not for `O_APPEND`."""
        return os.pwrite(fd, data, offset)

    def truncate(self, fd: int, size: int) -> None:
        """Cuts the file off."""
        os.ftruncate(fd, size)

    def sync_data(self, fd: int) -> None:
        """The file's bytes, and its size, are on the disk when this returns."""
        if hasattr(os, "fdatasync"):
            os.fdatasync(fd)
        else:
            os.fsync(fd)

    def sync_names(self, fd: int) -> None:
        """An open folder's names are on the disk when this returns."""
        os.fsync(fd)

    def link(self, path: str, new: str) -> None:
        """Gives a file a second name, which must be free."""
        os.link(path, new, follow_symlinks=False)

    def unlink(self, path: str) -> None:
        """Takes a name away."""
        os.unlink(path)

    def make_one_folder(self, path: str) -> None:
        """Makes a folder whose parent is there."""
        os.mkdir(path, 0o700)
        os.chmod(path, 0o700)

    def make_private(self, fd: int) -> None:
        """Only the owner reads and writes it, whatever the umask was."""
        os.fchmod(fd, 0o600)

    def lock(self, fd: int) -> bool:
        """Takes the file's lock; False where another has it."""
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def unlock(self, fd: int) -> None:
        """Gives the file's lock up."""
        fcntl.flock(fd, fcntl.LOCK_UN)

    def drop_cache(self, fd: int) -> None:
        """What the page cache has and the disk has not is read no more, as far as it can be had."""
        if hasattr(os, "posix_fadvise"):
            with suppress(OSError):  # advice
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)

    # What the store does with them

    def size(self, fd: int) -> int:
        """The file's size in bytes."""
        return self.stat(fd).st_size

    def is_named(self, fd: int, path: str) -> bool:
        """Whether the open file bears this name still."""
        named = self.stat_name(path)
        return named is not None and identity(named) == identity(self.stat(fd))

    def open_journal(self, path: str, session_id: str, flags: int) -> int:
        """Opens a journal's file.

        Raises:
            SessionNotFoundError: there is none.
            JournalCorruptError: it is a link, or no regular file.
            StoreUnavailableError: it cannot be opened.

        """
        try:
            fd = self.open(path, flags)
        except FileNotFoundError:
            raise SessionNotFoundError(session_id) from None
        except OSError as error:
            if error.errno in _NOT_A_FILE:
                raise _not_a_file(path, session_id) from error
            raise StoreUnavailableError(f"{path} cannot be opened: {error}") from error
        try:
            with unavailable(f"{path} cannot be opened"):
                is_file = stat.S_ISREG(self.stat(fd).st_mode)
            if not is_file:
                raise _not_a_file(path, session_id)
        except BaseException:
            self.close(fd)
            raise
        return fd

    @contextmanager
    def reading(self, path: str, session_id: str) -> Iterator[int]:
        """A journal's file, open for reading inside the block; see `open_journal`."""
        fd = self.open_journal(path, session_id, os.O_RDONLY)
        try:
            with unavailable(f"{path} cannot be read"):
                yield fd
        finally:
            self.close(fd)

    def read_bytes(self, fd: int, start: int, stop: int) -> bytes:
        """The bytes from `start` to `stop`, or to the end of the file."""
        data = self.read(fd, stop - start, start)
        if len(data) == stop - start:
            return data
        pieces = [data]
        while pieces[-1]:
            start += len(pieces[-1])
            pieces.append(self.read(fd, stop - start, start))
        return b"".join(pieces)

    def read_first_line(self, fd: int) -> bytes:
        """The first line, without its newline."""
        data = b""
        while b"\n" not in data:
            more = self.read(fd, _LINE_STEP_BYTES, len(data))
            if not more:
                break
            data += more
        return data.partition(b"\n")[0]

    def write_all(self, fd: int, data: bytes) -> None:
        """Writes all of it, in one call where the system takes it in one."""
        view = memoryview(data)
        while view:
            view = view[self.write(fd, view) :]

    def write_again(self, path: str, data: bytes, offset: int) -> None:
        """Writes bytes that are there once more, so that the next sync has them to write."""
        fd = self.open(path, os.O_WRONLY)
        try:
            view = memoryview(data)
            while view:
                written = self.write_at(fd, view, offset)
                view, offset = view[written:], offset + written
        finally:
            self.close(fd)

    def write_new(self, path: str, data: bytes, *, durable: bool) -> None:
        """Writes a new file of mode 0600, whatever the umask; leaves none behind if that fails."""
        fd = self.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            self.make_private(fd)
            self.write_all(fd, data)
            if durable:
                self.sync_data(fd)
        except OSError:
            self.unlink(path)
            raise
        finally:
            self.close(fd)

    def make_folder(self, path: str) -> None:
        """Makes the folder, and those above it, each of mode 0700 whatever the umask.

        `path` is absolute. What is there already stays as it is; `settle_folder` makes it durable.
        """
        if self.is_folder(path):
            return
        self.make_folder(os.path.dirname(path))
        try:
            self.make_one_folder(path)
        except FileExistsError:
            if not self.is_folder(path):
                raise

    def settle_folder(self, path: str) -> None:
        """The folder's own name is on the disk, and those of the folders above it.

        Whoever made them: it may be a process that has not come so far, or that is dead.
        """
        while (above := os.path.dirname(path)) != path:
            with suppress(PermissionError):  # a folder of somebody else's, and not new
                self.sync_folder(above)
            path = above

    def sync_folder(self, path: str) -> None:
        """The folder's names are on the disk when this returns."""
        fd = self.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self.sync_names(fd)
        finally:
            self.close(fd)


def identity(found: os.stat_result) -> tuple[int, int]:
    """Which file it is, whatever its name."""
    return found.st_dev, found.st_ino


def _not_a_file(path: str, session_id: str) -> JournalCorruptError:
    detail = "it is a link or no regular file; links are not followed"
    return JournalCorruptError(session_id, None, path, detail)


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
