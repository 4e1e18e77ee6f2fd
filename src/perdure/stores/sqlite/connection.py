"""Opening the file safely, and what a driver's exception means outside.

A file that is not a store of Perdure is refused before anything of it is changed. Every PRAGMA's
result is fetched: an unfetched one swallows I/O errors.
"""

from __future__ import annotations

import logging
import os
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

import apsw

from perdure import clock
from perdure.errors import JournalCorruptError, PerdureError, StoreUnavailableError
from perdure.stores.disk import Disk
from perdure.stores.sqlite.log import close_without_checkpoint, write_log_again
from perdure.stores.sqlite.schema import APPLICATION_ID, PAGE_SIZE, create_tables

Synchronous = Literal["extra", "full", "normal", "off"]

MINIMUM_SQLITE = (3, 51, 3)
"""Every SQLite before can corrupt a WAL file when two connections checkpoint and reset at once."""

BUSY_TIMEOUT_S = 10.0

NEW_S = 60.0
"""An empty file that is older was not made just now, to become a store."""

logger = logging.getLogger("perdure.stores.sqlite")

_creating = threading.Lock()
"""Held while a file is made and first opened: closing a descriptor of a file that SQLite has open
in this process would drop its locks."""


def check_sqlite(version: str) -> None:
    """Raises StoreUnavailableError if this SQLite is older than the first one that is safe."""
    if tuple(int(number) for number in version.split(".")[:3]) < MINIMUM_SQLITE:
        needed = ".".join(map(str, MINIMUM_SQLITE))
        raise StoreUnavailableError(
            f"SQLite {version} can damage a store; Perdure needs {needed} or newer: "
            f'pip install "apsw>={needed}.0"'
        )


def open_writer(
    path: Path, synchronous: Synchronous, *, is_log_doubted: bool = False
) -> apsw.Connection:
    """Opens the store's file for writing; makes it, and its folder, where there is none.

    What an earlier process wrote and never synced is synced before this returns. A log that is
    doubted, since a sync of it failed, is written again first.

    Raises:
        StoreUnavailableError: it cannot be opened, is locked, or is not a store.

    """
    check_sqlite(apsw.sqlite_lib_version())
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        text = f"{str(path)!r} is not UTF-8, and SQLite takes no other path; nothing was made"
        raise StoreUnavailableError(text) from error
    with _creating:
        _make_file(path)
        _check_not_emptied(path)
        connection = _connect(path, apsw.SQLITE_OPEN_READWRITE)
    try:
        _settle(connection, path)
        pragma(connection, f"synchronous = {synchronous}")
        pragma(connection, "journal_size_limit = 67108864")
        pragma(connection, "cache_size = -16384")
        pragma(connection, "temp_store = memory")
        if is_log_doubted:
            write_log_again(connection, path)
        with suppress(apsw.FullError):  # the log is synced before its pages need room in the file
            pragma(connection, "wal_checkpoint(passive)")
    except BaseException as error:
        with suppress(apsw.Error):  # nothing was written through it
            close_without_checkpoint(connection)
        if isinstance(error, apsw.Error):
            raise fault(error, path) from error
        raise
    return connection


def open_reader(path: Path) -> apsw.Connection:
    """Opens a file that a writer of this process has open, for reading only."""
    connection = _connect(path, apsw.SQLITE_OPEN_READONLY)
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    return connection


def pragma(connection: apsw.Connection, text: str) -> object:
    """Runs `PRAGMA text`; returns the first value of its answer."""
    rows = connection.execute(f"PRAGMA {text}").fetchall()
    return rows[0][0] if rows else None


Failure = apsw.Error | UnicodeDecodeError
"""What a driver raises: text in a damaged page may not be UTF-8 any more."""


def fault(error: Failure, path: Path, session_id: str = "") -> PerdureError:
    """What a driver's exception, raised before a commit, means to the caller."""
    match error:
        case apsw.CorruptError() | apsw.ConstraintError() | UnicodeDecodeError():
            return JournalCorruptError(session_id, None, f"file {str(path)!r}", str(error))
        case apsw.NotADBError():
            text = f"{str(path)!r} is not a SQLite file, so not a store; it was left as it is"
        case apsw.BusyError() | apsw.LockedError():
            text = (
                f"{str(path)!r} was locked by another process for more than "
                f"{BUSY_TIMEOUT_S:.0f} s; nothing was stored, try again"
            )
        case apsw.IOError() if getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_SHMSIZE:
            text = (
                f"the disk of {str(path)!r} is full: opening it takes 32 KiB beside it; "
                "nothing was stored"
            )
        case apsw.FullError():
            text = f"the disk of {str(path)!r} is full; nothing was stored"
        case apsw.ReadOnlyError() | apsw.PermissionsError():
            text = f"{str(path)!r} cannot be written by this user; nothing was stored"
        case _:
            text = f"{str(path)!r} cannot be used: {error}; nothing was stored"
    return StoreUnavailableError(text)


def _make_file(path: Path) -> None:
    try:
        if stat.S_ISLNK(path.lstat().st_mode):
            raise StoreUnavailableError(
                f"{str(path)!r} is a symbolic link, and links are not followed: "
                "give the path of the file itself"
            )
        return
    except FileNotFoundError:
        pass
    except OSError as error:
        raise StoreUnavailableError(f"{str(path)!r} cannot be opened: {error}") from error
    try:
        Disk().make_folder(str(path.parent))
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileExistsError:
        return
    except OSError as error:
        raise StoreUnavailableError(f"{str(path)!r} cannot be made: {error}") from error
    with _unavailable(path):
        try:
            os.fchmod(descriptor, 0o600)
        finally:
            os.close(descriptor)
        Disk().sync_folder(_folder(path))


@contextmanager
def _unavailable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreUnavailableError(f"{str(path)!r} cannot be made: {error}") from error


def _folder(path: Path) -> str:
    """The file's folder: links above it are the machine's own business; the file is never one."""
    return os.path.realpath(path.parent)


def _connect(path: Path, flags: int) -> apsw.Connection:
    try:
        place = os.path.join(_folder(path), path.name)
        connection = apsw.Connection(place, flags=flags | apsw.SQLITE_OPEN_NOFOLLOW)
        connection.set_busy_timeout(int(BUSY_TIMEOUT_S * 1000))
        pragma(connection, "trusted_schema = off")
        pragma(connection, "cell_size_check = on")
    except apsw.Error as error:
        raise fault(error, path) from error
    return connection


def _settle(connection: apsw.Connection, path: Path) -> None:
    """Checks that the file is a store, and makes an empty one a store; survives a stampede."""
    deadline = clock.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            if pragma(connection, "application_id") != APPLICATION_ID:
                _found(connection, path)
            if pragma(connection, "journal_mode") != "wal":
                _turn_wal_on(connection, path)
            return
        except apsw.BusyError:
            if clock.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _turn_wal_on(connection: apsw.Connection, path: Path) -> None:
    if pragma(connection, "journal_mode = wal") != "wal":
        raise StoreUnavailableError(
            f"{str(path)!r} is on a file system where SQLite has no write-ahead log; "
            "give a path on a local disk"
        )


def _found(connection: apsw.Connection, path: Path) -> None:
    _check_empty(connection, path)
    # Whoever made the file and its folders may have died before their names were on the disk; what
    # is a store already was founded by a process that has come so far.
    with _unavailable(path):
        found = path.stat()
        if found.st_size == 0 and clock.now().timestamp() - found.st_mtime > NEW_S:
            logger.warning(
                "%s was there, and empty (0 bytes): a new store is made in it. If there was one, "
                "it was emptied: stop, and restore a copy",
                path,
            )
        disk, folder = Disk(), _folder(path)
        disk.sync_folder(folder)
        disk.settle_folder(folder)
    pragma(connection, f"page_size = {PAGE_SIZE}")
    _turn_wal_on(connection, path)
    connection.execute("BEGIN IMMEDIATE")
    try:
        if pragma(connection, "application_id") != APPLICATION_ID:
            _check_empty(connection, path)
            create_tables(connection)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _check_not_emptied(path: Path) -> None:
    """What was emptied is not founded anew: a new store has no log before its first page.

    SQLite would take the log away unread.
    """
    with _unavailable(path):
        log = path.with_name(f"{path.name}-wal")
        if path.stat().st_size == 0 and log.exists() and log.stat().st_size > 0:
            raise StoreUnavailableError(
                f"{str(path)!r} is empty (0 bytes), and its log is not: it was emptied. It was "
                f"left as it is; restore a copy, and take {str(log)!r} away before that, or "
                "both away to begin with a new store"
            )


def _check_empty(connection: apsw.Connection, path: Path) -> None:
    tables = connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()[0][0]
    other = pragma(connection, "application_id"), pragma(connection, "user_version")
    if (tables, *other) != (0, 0, 0) and other[0] != APPLICATION_ID:
        raise StoreUnavailableError(
            f"{str(path)!r} is a SQLite file of another program; it was left as it is"
        )
