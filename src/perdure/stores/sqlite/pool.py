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
from perdure.stores.sqlite.connection import fault, open_reader
from perdure.stores.sqlite.reader import Reader
from perdure.stores.sqlite.watch import Watch

_T = TypeVar("_T")

_THREADS = 4


class ReaderPool:
    """Answers questions about the file; `threads` is where `ask` may be called."""

    def __init__(self, path: Path, watch: Watch) -> None:
        self._path = path
        self._watch = watch
        self._idle: list[tuple[int, apsw.Connection]] = []
        self.threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="perdure-sqlite-reader")

    def ask(self, kind: Kind, session_id: str, question: Callable[[Reader], _T]) -> _T:
        """The answer from one snapshot, about journals of this kind; blocks.

        Raises:
            LogGoneError: the writer has to open the file anew first.
            StoreUnavailableError, JournalCorruptError: as the text says.

        """
        while True:
            epoch, connection = self._take()
            failure: Exception | None = None
            try:
                answer = self._ask(connection, kind, question)
            except (apsw.Error, UnicodeDecodeError) as error:
                connection.close(True)
                failure = fault(error, self._path, session_id)
                failure.__cause__ = error
            except BaseException as error:
                self._idle.append((epoch, connection))
                if not isinstance(error, Exception):
                    raise
                failure = error
            else:
                self._idle.append((epoch, connection))
            if epoch != self._watch.epoch:
                continue  # it may have read a log that is not the store's any more
            if failure is not None:
                raise failure
            return answer

    def _ask(self, connection: apsw.Connection, kind: Kind, question: Callable[[Reader], _T]) -> _T:
        connection.execute("BEGIN")
        try:
            return question(Reader(connection, self._path, kind))
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    def _take(self) -> tuple[int, apsw.Connection]:
        self._watch.check_file()
        self._watch.check_log()
        epoch = self._watch.epoch
        while True:
            try:
                opened_in, connection = self._idle.pop()
            except IndexError:
                return epoch, open_reader(self._path)
            if opened_in == epoch:
                return epoch, connection
            connection.close(True)

    def close(self) -> None:
        """Waits for the answers under way and closes every connection; blocks."""
        self.threads.shutdown()
        while self._idle:
            self._idle.pop()[1].close(True)
