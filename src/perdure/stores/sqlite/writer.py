"""The one thread that writes: it takes all requests that wait, and commits them together.

The event loop's side collects requests and hands them over once per loop iteration, or the thread
fetches them when it begins a commit; it places each, commits once, and resolves all their futures
with one call per loop. A request that is refused harms no other. A future only tells: cancelling
it does not take the request back.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import apsw

from perdure.completion import Told
from perdure.errors import (
    AppendUncertainError,
    PerdureError,
    StoreUnavailableError,
)
from perdure.store import Kind
from perdure.stores.sqlite.connection import Failure, Synchronous, fault
from perdure.stores.sqlite.ledger import Ledger
from perdure.stores.sqlite.opened import OpenFile
from perdure.stores.sqlite.watch import FilesLostError

logger = logging.getLogger("perdure.stores.sqlite")

LOOK_EVERY_S = 5.0
"""How often a writer at rest looks whether its files are in place."""

BRIEF = 128
"""So many brief requests are done before what was committed is told."""

QUICK_S = 0.001
"""A group that is committed faster may come alone while others wait."""

PARTED = 16
"""From so many requests on, a writer at rest begins with half of them."""

_T = TypeVar("_T")
_DAMAGE = (apsw.CorruptError, apsw.ConstraintError, UnicodeDecodeError)
"""What a damaged page or index looks like: it may concern one session of the group only."""

Loop = asyncio.AbstractEventLoop
Listener = Callable[[str], object]
Outcome = object
"""What a request came to: its result, or the exception to raise."""


class _Request(Told[Any], kw_only=True):
    loop: Loop
    kind: Kind
    session_id: str
    verb: Callable[..., object]
    arguments: tuple[object, ...]
    is_brief: bool


class Writer:
    """The writer thread of one store; it starts with the first request and ends with `close`."""

    def __init__(self, path: Path, synchronous: Synchronous) -> None:
        self.file = OpenFile(path, synchronous, self._tell)
        self._path = path
        self._queue: SimpleQueue[list[_Request] | Callable[[], object] | None] = SimpleQueue()
        self._outbox: dict[Loop, list[_Request]] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._process = 0
        self._is_stopped = False
        self._untold: list[tuple[_Request, Outcome]] = []
        self._hints: list[tuple[Kind, str]] = []
        self._is_quick = False
        self._acknowledged_pos = 0
        self.closing: Future[None] | None = None  # set once the store is being closed
        self.listeners: dict[object, tuple[Loop, Kind, Listener]] = {}
        self.commit_listeners: list[Callable[[int, float], object]] = []
        """Told in the thread, after each group: how many requests, and how many seconds."""

    # The event loop's side

    def submit(
        self,
        kind: Kind,
        session_id: str,
        verb: Callable[..., object],
        arguments: tuple[object, ...],
        *,
        is_brief: bool = False,
    ) -> Told[Any]:
        """Runs a verb in the writer's next transaction; what comes back tells what it came to.

        A verb that `is_brief` takes some microseconds.
        """
        loop = asyncio.get_running_loop()
        requests = self._outbox.get(loop)
        if requests is None:
            self._outbox[loop] = requests = []
            loop.call_soon(self._hand_over, loop)
        request = _Request(
            loop.create_future(),
            loop=loop,
            kind=kind,
            session_id=session_id,
            verb=verb,
            arguments=arguments,
            is_brief=is_brief,
        )
        requests.append(request)
        return request

    def _hand_over(self, loop: Loop) -> None:
        requests = self._outbox.pop(loop, None)
        if requests and not self._put(requests):
            closed = StoreUnavailableError(
                f"the store {str(self._path)!r} is closed; nothing was attempted"
            )
            _settle([(request, closed) for request in requests], [])

    def call(self, job: Callable[[], _T]) -> Future[_T]:
        """Runs `job` in the thread, between two transactions."""
        future: Future[_T] = Future()

        def run() -> None:
            try:
                future.set_result(job())
            except BaseException as error:
                future.set_exception(error)

        if not self._put(run):
            future.set_exception(StoreUnavailableError("the store is closed"))
        return future

    def _put(self, work: list[_Request] | Callable[[], object]) -> bool:
        with self._lock:
            if self._is_stopped:
                return False
            self._queue.put(work)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._serve, name="perdure-sqlite-writer", daemon=True
                )
                self._process = os.getpid()
                self._thread.start()
            return True

    def stop(self) -> None:
        """Lets the thread end after what it was given; needs no event loop, does not wait."""
        if self.is_elsewhere:
            return  # whoever held the lock when this process was forked off holds it for ever
        with self._lock:
            if not self._is_stopped:
                self._is_stopped = True
                self._queue.put(None)

    @property
    def is_started(self) -> bool:
        """Whether there is a thread, running or ended."""
        return self._thread is not None

    @property
    def is_elsewhere(self) -> bool:
        """Whether the thread is in the process that this one was forked off."""
        return self._process not in {0, os.getpid()}

    def join(self) -> None:
        """Waits until the thread has ended; blocks."""
        if self._thread is not None:
            self._thread.join()

    def flush_outbox(self) -> None:
        """Hands over what this loop's tasks have submitted in this iteration."""
        self._hand_over(asyncio.get_running_loop())

    # The thread's side

    def _serve(self) -> None:
        waiting: list[_Request] = []
        while True:
            was_at_rest, job = self._receive(waiting)
            if waiting:
                waiting += self._take_what_waits()
            count = len(waiting)
            if was_at_rest and job is _nothing and self._is_quick and count >= PARTED:
                count //= 2
            group, waiting = waiting[:count], waiting[count:]
            if group:
                self._commit_and_count(group)
            del group  # what was asked, and who waited, would be kept as long as this rests
            if job is not _nothing:
                self._tell()
                if job is None:
                    break
                job()
        self.file.drop()

    def _receive(self, waiting: list[_Request]) -> tuple[bool, Callable[[], object] | None]:
        """Adds the requests that came to those that wait, and returns the job behind them.

        Blocks while there is neither, and says whether it did.
        """
        was_at_rest = False
        work: list[_Request] | Callable[[], object] | None
        try:
            work = self._queue.get_nowait()
        except Empty:
            if waiting:
                return False, _nothing
            self._tell()
            was_at_rest = True
            work = self._wait()
        while isinstance(work, list):
            waiting += work
            try:
                work = self._queue.get_nowait()
            except Empty:
                work = _nothing
        return was_at_rest, work

    def _wait(self) -> list[_Request] | Callable[[], object] | None:
        while True:
            try:
                return self._queue.get(timeout=LOOK_EVERY_S if self.file.connection else None)
            except Empty:
                self.file.look_at_rest()

    def _commit_and_count(self, group: list[_Request]) -> None:
        start, listeners = time.perf_counter(), tuple(self.commit_listeners)
        if len(group) > BRIEF or not all(request.is_brief for request in group):
            self._tell()
        self._commit_and_keep(group)
        seconds = time.perf_counter() - start
        for listener in listeners:
            try:
                listener(len(group), seconds)
            except BaseException:  # of somebody else's code, and everybody waits for this thread
                logger.exception("a listener of commits raised, and is told of no more")
                with suppress(ValueError):
                    self.commit_listeners.remove(listener)

    def _take_what_waits(self) -> list[_Request]:
        """What was submitted and not handed over yet: so nothing waits for more than two commits.

        An event loop may be long in the iteration at whose end it hands over.
        """
        taken: list[_Request] = []
        with self._lock:
            if not self._is_stopped:
                for requests in list(self._outbox.values()):
                    count = len(requests)  # their loop may add to them meanwhile
                    taken += requests[:count]
                    del requests[:count]
        return taken

    def _commit_and_keep(self, group: list[_Request]) -> None:
        """Commits the group, and keeps what there is to tell."""
        hints: list[tuple[Kind, str]] = []
        try:
            outcomes = self._commit(group, hints)
        except Exception as error:  # the thread's outermost frame: nobody may wait for ever
            self.file.drop()
            if len(group) > 1:
                for request in group:
                    self._commit_and_keep([request])
                return
            outcomes = [self._uncertain(None, error)]
        self._untold += zip(group, outcomes, strict=True)
        self._hints += hints

    def _commit(self, group: list[_Request], hints: list[tuple[Kind, str]]) -> list[Outcome]:
        try:
            ledger = self.file.open()
        except (PerdureError, apsw.Error) as error:
            self._tell()
            return [self._failure(request, error) for request in group]
        try:
            ledger.begin()
            self._check_nothing_is_missing(ledger)
            outcomes = [_attempt(request, ledger) for request in group]
            ledger.flush()
            self._tell()  # the event loop has something to do then, while this waits for the disk
            ledger.tidy()
        except (PerdureError, apsw.Error, UnicodeDecodeError) as error:
            self._tell()
            if not self.file.is_untouched_by(error):
                self.file.drop()
            if isinstance(error, _DAMAGE) and len(group) > 1:
                return [outcome for request in group for outcome in self._commit([request], hints)]
            return [self._failure(request, error) for request in group]
        start = time.perf_counter()
        try:
            ledger.commit()
        except apsw.BusyError as error:
            self.file.drop()
            return [self._failure(request, error) for request in group]
        except apsw.Error as error:
            self.file.doubt_log()
            return [self._uncertain(outcome, error) for outcome in outcomes]
        self._is_quick = time.perf_counter() - start < QUICK_S
        hints.extend(ledger.hints)
        ledger.hints.clear()
        try:
            self.file.look()
        except PerdureError as error:
            return [self._uncertain(outcome, error) for outcome in outcomes]
        self._acknowledged_pos = ledger.last_pos
        return outcomes

    def _check_nothing_is_missing(self, ledger: Ledger) -> None:
        if ledger.last_pos < self._acknowledged_pos:
            raise StoreUnavailableError(
                f"{str(self._path)!r} has lost what was stored in it while it was open (position "
                f"{self._acknowledged_pos}, it ends at {ledger.last_pos}): it is an older copy, or "
                "its log was taken away. Nothing was stored by this call; restore the newest copy, "
                "or open the store anew to go on with what is there"
            )

    def _failure(self, request: _Request, error: Exception) -> PerdureError:
        if isinstance(error, PerdureError):
            return error
        assert isinstance(error, Failure)
        failure = fault(error, self._path, request.session_id)
        failure.__cause__ = error
        return failure

    def _uncertain(self, outcome: Outcome, error: Exception) -> Outcome:
        if isinstance(outcome, PerdureError):
            return outcome
        what = f"the commit to {str(self._path)!r} failed ({error!r})"
        if isinstance(error, FilesLostError):
            what = f"{error.what} during a commit"
        uncertain = AppendUncertainError(
            f"{what}: it may be stored or not; "
            "reload the session, compare the entry ids, and retry the same entries"
        )
        uncertain.__cause__ = error
        return uncertain

    def _tell(self) -> None:
        """Tells what was committed, and what was refused."""
        untold, hints = self._untold, self._hints
        if not untold:
            return
        self._untold, self._hints = [], []
        told: dict[Loop, tuple[list[tuple[Told[Any], Outcome]], list[tuple[Listener, str]]]] = {}
        for pair in untold:
            loop = pair[0].loop
            if loop not in told:
                told[loop] = [], []
            told[loop][0].append(pair)
        if hints:
            for loop, kind, listener in tuple(self.listeners.values()):
                own = [(listener, hint) for hint_kind, hint in hints if hint_kind == kind]
                told.setdefault(loop, ([], []))[1].extend(own)
        for loop, (outcomes, hinted) in told.items():
            try:
                loop.call_soon_threadsafe(_settle, outcomes, hinted)
            except RuntimeError:  # the loop is closed: nobody waits there any more
                continue


def _nothing() -> None:
    pass


def _attempt(request: _Request, ledger: Ledger) -> Outcome:
    ledger.kind = request.kind
    try:
        return request.verb(ledger, *request.arguments)
    except PerdureError as error:
        return error


def _settle(told: list[tuple[Told[Any], Outcome]], hinted: list[tuple[Listener, str]]) -> None:
    for request, outcome in told:
        request.tell(outcome)
    loop = asyncio.get_running_loop() if hinted else None
    for listener, session_id in hinted:
        if loop is not None:
            loop.call_soon(listener, session_id)
