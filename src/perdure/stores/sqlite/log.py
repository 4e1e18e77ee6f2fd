"""After a failed sync: the write-ahead log is written once more before anything relies on it.

A system may take the pages of a failed sync for written, show them to every reader, and let the
next sync succeed without them. A checkpoint that then relied on the log could leave half of it in
the file. Writing the same bytes again gives the next sync something to write.
"""

from __future__ import annotations

from pathlib import Path

import apsw

_STEP_BYTES = 1 << 16
"""SQLite's VFS takes less than 128 KiB at a time."""


def write_log_again(connection: apsw.Connection, path: Path) -> None:
    """Writes and syncs the bytes of the log, while no process appends to it or starts it anew.

    Raises:
        apsw.Error: they are not certain to be on the disk.

    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        flags = apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_READWRITE
        try:
            log = apsw.VFSFile("", f"{path}-wal", [flags, 0])
        except apsw.CantOpenError:
            if path.with_name(f"{path.name}-wal").exists():
                raise
            return
        try:
            size = log.xFileSize()
            for start in range(0, size, _STEP_BYTES):
                log.xWrite(log.xRead(min(_STEP_BYTES, size - start), start), start)
            log.xSync(apsw.SQLITE_SYNC_NORMAL)
        finally:
            log.xClose()
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def close_without_checkpoint(connection: apsw.Connection) -> None:
    """Closes it and leaves the log as it is: whoever opens the file next reads it there."""
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    connection.close(True)
