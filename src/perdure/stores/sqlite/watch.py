"""Whether the files that SQLite has open are still the ones at their paths, and whole.

SQLite goes on with a file that was removed, replaced or emptied, and says so to nobody: what is
committed then is gone with the process. The writer looks before a transaction and after its commit,
so that nothing is acknowledged that the next process would not find. A log (`<file>-wal`) that was
removed is no loss while it is open: it is moved into the file, and a new one is begun.

What cannot be seen: bytes that somebody writes into a file in place, without making it shorter.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

import apsw

from perdure.errors import StoreUnavailableError
from perdure.stores.disk import identity

logger = logging.getLogger("perdure.stores.sqlite")

_HEADER_BYTES, _FRAME_HEADER_BYTES = 32, 24
_MAGIC = b"\x37\x7f\x06"
"""How a log begins. Source: SQLite, "WAL-mode file format"."""

_GO_ON = (
    "nothing was stored by this call. Put back what was there, or stop what uses the store and "
    "restore a copy: what is at the path then is used when the store is opened anew."
)


class FilesLostError(StoreUnavailableError):
    """What is at the paths is not what is open, or not all of it; `what` says it in a clause."""

    def __init__(self, what: str, more: str = "") -> None:
        super().__init__(f"{what} while it was open: {_GO_ON}{more}")
        self.what = what


class LogGoneError(FilesLostError):
    """The log at its path is not the one that is open, which still has what was committed."""


class Watch:
    """Knows the two files of one store by what they were when it was opened first.

    `epoch` grows when the log becomes another file: what was opened before reads it no more.
    """

    def __init__(self, path: Path) -> None:
        self.epoch = 0
        self._path = str(path)
        self._log_path = f"{path}-wal"
        self._file: tuple[int, int] | None = None
        self._file_bytes = 0
        self._log: tuple[int, int] | None = None
        self._log_fd = -1
        self._page_bytes = 0

    def start(self, connection: apsw.Connection) -> None:
        """Takes what the connection has just opened for what has to stay.

        Raises:
            FilesLostError: it is not what was open before.

        """
        self.check_file()
        self.stop()
        try:
            self._log_fd = os.open(self._log_path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            log = identity(os.fstat(self._log_fd))
            found = os.lstat(self._path)
        except OSError as error:
            raise StoreUnavailableError(f"{self._path!r} cannot be used: {error}") from error
        self._file, self._file_bytes = identity(found), found.st_size
        self._page_bytes = int(str(connection.pragma("page_size")))
        if log != self._log:
            self._log = log
            self.epoch += 1

    def stop(self) -> None:
        """Lets go of the log."""
        if self._log_fd != -1:
            os.close(self._log_fd)
            self._log_fd = -1

    def check_file(self) -> os.stat_result | None:
        """Raises FilesLostError if another file, or an empty one, or none is at the path."""
        if self._file is None:
            return None
        try:
            found = os.lstat(self._path)
        except FileNotFoundError:
            raise self._lost("was removed") from None
        except OSError as error:
            raise StoreUnavailableError(f"{self._path!r} cannot be used: {error}") from error
        if identity(found) != self._file:
            raise self._lost(
                "was replaced by another file",
                f" {self._log_path!r} is the old one's, as long as that is not put back: before "
                "another file is opened, take it away, or it is mixed into that",
            )
        if found.st_size == 0:
            raise self._lost("was emptied")
        return found

    def check_log(self) -> os.stat_result:
        """Raises LogGoneError if another log, or none, is at its path."""
        try:
            found = os.lstat(self._log_path)
        except FileNotFoundError:
            raise LogGoneError(f"{self._path!r} lost its log (the -wal file)") from None
        except OSError as error:
            raise StoreUnavailableError(f"{self._log_path!r} cannot be used: {error}") from error
        if identity(found) != self._log:
            what = f"{self._path!r} got another log (the -wal file)"
            raise LogGoneError(what) if found.st_size == 0 else FilesLostError(what)
        return found

    def check(self, connection: apsw.Connection) -> None:
        """Raises unless both files are in place and as long as what was committed to them.

        Raises:
            FilesLostError: they are not.
            LogGoneError: the log is gone, and `rescue` can move it into the file.
            StoreUnavailableError: they cannot be looked at.

        """
        try:
            self._check(connection)
        except OSError as error:
            raise StoreUnavailableError(f"{self._path!r} cannot be used: {error}") from error

    def _check(self, connection: apsw.Connection) -> None:
        found, log = self.check_file(), self.check_log()
        if found is not None and found.st_size != self._file_bytes:
            if found.st_size < self._file_bytes and self._is_cut_off(connection):
                raise self._lost("was cut off")
            self._file_bytes = found.st_size
        needed = self._needed(connection)
        if log.st_size < needed and self._is_log_cut_off(connection):
            raise self._lost("lost a part of its log (the -wal file), which was cut off,")
        if needed and os.pread(self._log_fd, len(_MAGIC), 0) != _MAGIC:
            raise self._lost("lost the beginning of its log (the -wal file)")

    def rescue(self, connection: apsw.Connection) -> None:
        """Moves the log that is open into the file, all of it, and syncs that.

        Raises:
            StoreUnavailableError: somebody reads in it still, or the file cannot be written.

        """
        try:
            log, moved = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        except apsw.Error as error:
            text = f"{self._log_path!r} is gone, and what was in it cannot be moved into the file"
            raise StoreUnavailableError(f"{text} now: {error}; nothing was stored") from error
        logger.warning(
            "%s was removed or replaced while it was open; all of it (%d of %d pages) was moved "
            "into %s, so nothing is lost. It is a part of the store: leave it to SQLite",
            *(self._log_path, moved, log, self._path),
        )

    def _needed(self, connection: apsw.Connection) -> int:
        frames, _ = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)
        return _HEADER_BYTES + frames * (_FRAME_HEADER_BYTES + self._page_bytes) if frames else 0

    def _is_log_cut_off(self, connection: apsw.Connection) -> bool:
        """Asks until nobody appended to it or began it anew between two questions."""
        while True:
            needed, size = self._needed(connection), os.fstat(self._log_fd).st_size
            if size >= needed or needed == self._needed(connection):
                return size < needed

    def _is_cut_off(self, connection: apsw.Connection) -> bool:
        """Not if a VACUUM made it shorter: then it has every page."""
        while True:
            pages, size = connection.pragma("page_count"), os.lstat(self._path).st_size
            if pages == connection.pragma("page_count"):
                return size < int(str(pages)) * self._page_bytes

    def _lost(self, what: str, more: str = "") -> FilesLostError:
        return FilesLostError(f"{self._path!r} {what}", more)
