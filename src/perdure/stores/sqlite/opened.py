"""The file as its one writer has it open: opened anew after a failure, and looked at.

What may be wrong between two requests is here: the file is locked by another process, it or its log
is not in place any more, a commit of it failed. All of it is called in the writer's thread.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import apsw

from perdure import clock
from perdure.errors import FormatTooNewError, PerdureError
from perdure.stores.sqlite.connection import BUSY_TIMEOUT_S, Synchronous, fault, open_writer
from perdure.stores.sqlite.ledger import Ledger
from perdure.stores.sqlite.log import close_without_checkpoint, write_log_again
from perdure.stores.sqlite.watch import LogGoneError, Watch

logger = logging.getLogger("perdure.stores.sqlite")

FRESH_S = 0.01
"""How long the look after a commit is as good as one before the next."""

BUSY_STEP_S = 0.05
"""The longest time between two tries for a file that another process has locked."""


class OpenFile:
    """The file of one store, open for writing or not; `has_opened` once it was.

    `while_locked` is called when another process turns out to have the file locked.
    """

    def __init__(
        self, path: Path, synchronous: Synchronous, while_locked: Callable[[], None]
    ) -> None:
        self.watch = Watch(path)
        self.connection: apsw.Connection | None = None
        self.has_opened = False
        self._path = path
        self._synchronous = synchronous
        self._while_locked = while_locked
        self._ledger: Ledger | None = None
        self._is_log_doubted = False
        self._gives_up_at = 0.0
        self._looked_at = 0.0
        self._said = ""

    def open(self) -> Ledger:
        """Opens the file, and makes it where there is none; what is known of it.

        Raises:
            StoreUnavailableError: it cannot be opened, or what was open is not there any more.

        """
        self.watch.check_file()
        if self.connection is not None and clock.monotonic() > self._looked_at + FRESH_S:
            self.look()
        if self.connection is None or self._ledger is None:
            is_doubted, self._is_log_doubted = self._is_log_doubted, True
            connection = open_writer(self._path, self._synchronous, is_log_doubted=is_doubted)
            try:
                self.watch.start(connection)
            except BaseException:
                close_without_checkpoint(connection)
                raise
            connection.set_busy_handler(self._wait_for_another)
            self.connection = connection
            self._is_log_doubted = False
            self._ledger = Ledger(connection, self._path)
            self.has_opened = True
        return self._ledger

    def _wait_for_another(self, times: int) -> bool:
        """Whether to try again for the file, which another process has locked."""
        if times == 0:
            self._while_locked()
            self._gives_up_at = time.monotonic() + BUSY_TIMEOUT_S
        time.sleep(min(0.001 * 2**times, BUSY_STEP_S))
        return time.monotonic() < self._gives_up_at

    def look(self) -> None:
        """Raises StoreUnavailableError if what is committed would be gone; saves what it can.

        The connection stays open then: what is put back is gone on with.
        """
        connection = self.connection
        if connection is None:
            return
        self._looked_at = 0.0
        try:
            try:
                self.watch.check(connection)
            except LogGoneError:
                self.watch.rescue(connection)
                self.drop()
        except apsw.Error as error:
            self.drop()
            raise fault(error, self._path) from error
        self._looked_at = clock.monotonic()

    def look_at_rest(self) -> None:
        """Says in the log, once, that the files are not in place."""
        try:
            self.look()
            self._said = ""
        except PerdureError as error:
            if self._said != str(error):
                self._said = str(error)
                logger.error("the store cannot be used: %s", error)

    def try_write(self) -> None:
        """Commits one page that says what it said before.

        Raises:
            StoreUnavailableError, AppendUncertainError: the file cannot be written.
        """
        try:
            self.open()
            assert self.connection is not None
            self.connection.execute("BEGIN IMMEDIATE")
            version = self.connection.pragma("user_version")
            self.connection.execute(f"PRAGMA user_version = {version}")
        except apsw.Error as error:
            self.drop()
            raise fault(error, self._path) from error
        try:
            self.connection.execute("COMMIT")
        except apsw.Error as error:
            self.doubt_log()
            raise fault(error, self._path) from error

    def drop(self) -> None:
        """Closes the connection and forgets everything.

        The next request starts from what the file says.
        """
        self._ledger = None
        if self.connection is not None:
            connection, self.connection = self.connection, None
            # What was committed is synced in the log; only moving it into the file can fail here.
            with suppress(apsw.Error):
                if self._is_log_doubted or not self._is_whole(connection):
                    close_without_checkpoint(connection)
                else:
                    connection.close(True)
        self.watch.stop()

    def _is_whole(self, connection: apsw.Connection) -> bool:
        """Whether the log may be moved into the file, and be taken away then."""
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            self.watch.check(connection)
        except LogGoneError:
            return True  # there is no other copy of it
        except (PerdureError, apsw.Error):
            return False
        return True

    def doubt_log(self) -> None:
        """Drops it after a failed commit, with a log that may not be on the disk."""
        self._is_log_doubted = True
        if self.connection is not None:
            with suppress(apsw.Error):  # then it is doubted until it is opened again
                write_log_again(self.connection, self._path)
                self._is_log_doubted = False
        self.drop()

    def is_untouched_by(self, error: Exception) -> bool:
        """Whether the transaction never began, so that what is remembered stays true."""
        has_transaction = self.connection is not None and self.connection.in_transaction
        return isinstance(error, apsw.BusyError | FormatTooNewError) and not has_transaction
