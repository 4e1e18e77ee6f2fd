"""Reader threads, each question on a read-only connection of its own; no reader waits for a writer.

Connections are kept for the next question, never used by two at a time, and none before the writer
has opened the file.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import apsw

from perdure.store import Kind
from perdure.stores.sqlite.connection import check_present, fault, has_moved, open_reader
from perdure.stores.sqlite.reader import Reader

_T = TypeVar("_T")

_THREADS = 4


class ReaderPool:
    """Answers questions about the file; `threads` is where `ask` may be called."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._idle: list[apsw.Connection] = []
        self.threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="perdure-sqlite-reader")

    def ask(self, kind: Kind, session_id: str, question: Callable[[Reader], _T]) -> _T:
        """The answer from one snapshot, about journals of this kind; blocks."""
        connection = self._take()
        try:
            connection.execute("BEGIN")
            try:
                answer = question(Reader(connection, self._path, kind))
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
        except (apsw.Error, UnicodeDecodeError) as error:
            connection.close(True)
            raise fault(error, self._path, session_id) from error
        except BaseException:
            self._idle.append(connection)
            raise
        self._idle.append(connection)
        return answer

    def _take(self) -> apsw.Connection:
        try:
            connection = self._idle.pop()
        except IndexError:
            pass
        else:
            if not has_moved(connection):
                return connection
            connection.close(True)
        check_present(self._path)
        return open_reader(self._path)

    def close(self) -> None:
        """Waits for the answers under way and closes every connection; blocks."""
        self.threads.shutdown()
        while self._idle:
            self._idle.pop().close(True)
