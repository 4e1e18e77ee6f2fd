"""The server's routines: kept in memory, attended to when something is due or has happened.

Everything that a routine does follows from its journal and its session's, so a keeper that starts
does what one that never stopped would do next. Of several nodes each may try; the journals decide.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

from perdure import clock
from perdure.errors import (
    PerdureError,
    RoutineNotFoundError,
    SessionNotFoundError,
    StoreError,
    UnrecoverableError,
)
from perdure.server.journal import JournalStore
from perdure.server.routine.firing import Firing
from perdure.server.routine.port import Sessions
from perdure.server.routine.routine import Routine, load_routine
from perdure.server.routine.timer import Timer
from perdure.store import Session

_log = logging.getLogger("perdure.routine")

PAGE = 200
AT_ONCE = 32
"""How many routines are attended to at the same time."""

MOST_RETRY_S = 300.0


_REFUSALS = (StoreError, UnrecoverableError)


class Keeper:
    """The routines in memory. Inside `keeping` their due times are claimed and their runs started.

    `lost` are those whose journal cannot be read, and why.
    """

    def __init__(self, store: JournalStore, sessions: Sessions) -> None:
        self.journals = store.of_kind("routine")
        self.firing = Firing(store, sessions)
        self.lost: dict[str, tuple[Session, str]] = {}
        self.timer = Timer(lambda routine_id: self.call(routine_id, thorough=True))
        self._store = store
        self._sessions = sessions
        self._routines: dict[str, Routine] = {}
        self._watched: dict[str, set[str]] = {}
        self._watching: dict[str, frozenset[str]] = {}
        self._wanted: dict[str, bool] = {}
        self._stale: set[str] = set()
        self._attending: dict[str, asyncio.Task[None]] = {}
        self._room = asyncio.Semaphore(AT_ONCE)
        self._is_keeping = False

    async def load(self) -> None:
        """Reads which routines there are; O(routines).

        Raises:
            StoreError: the store cannot be read.

        """
        after: str | None = None
        while True:
            page = await self.journals.list_sessions(limit=PAGE, after=after)
            for look in page.sessions:
                await self._load(look.session)
            after = page.next
            if after is None:
                return

    async def _load(self, session: Session) -> None:
        if self._has(session):
            return
        try:
            routine = await load_routine(self.journals, await self.journals.look(session.id))
            if routine.state.definition is None:
                return  # nothing was ever defined
        except SessionNotFoundError:
            self.forget(session.id)
        except UnrecoverableError as error:
            _log.error("routine %r is unrecoverable: %s", session.id, error)
            self.lost[session.id] = (session, str(error))
        else:
            if not self._has(session):
                self.add(routine)

    def _has(self, session: Session) -> bool:
        """Whether this very routine is kept: there is never a second object of one."""
        known = self._routines.get(session.id)
        return known is not None and known.incarnation == session.incarnation

    @asynccontextmanager
    async def keeping(self) -> AsyncIterator[None]:
        """Keeps the routines inside the block: what was left open goes on, what is due starts."""
        ends = [
            self._store.subscribe(self._session_grew),
            self.journals.subscribe(self._routine_grew),
        ]
        self._is_keeping = True
        for routine in self._routines.values():
            self.settle(routine)
            if routine.state.runs:
                self.call(routine.routine_id, thorough=True)
        keeping_time = asyncio.create_task(self.timer.run())
        try:
            yield
        finally:
            self._is_keeping = False
            for end in ends:
                end()
            tasks = [keeping_time, *self._attending.values()]
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def until_rest(self) -> None:
        """Returns when no routine is being attended to."""
        while self._attending:
            await asyncio.wait(list(self._attending.values()))

    def get(self, routine_id: str) -> Routine:
        """The routine of this id.

        Raises:
            RoutineNotFoundError: there is none. UnrecoverableError: its journal cannot be read.

        """
        if routine_id in self.lost:
            raise UnrecoverableError(self.lost[routine_id][1])
        try:
            return self._routines[routine_id]
        except KeyError:
            raise RoutineNotFoundError(routine_id) from None

    def __len__(self) -> int:
        return len(self._routines)

    def add(self, routine: Routine) -> Routine:
        """Keeps a routine, in the place of another one of the same id; the one that is kept."""
        if self._has(routine.session):
            return self._routines[routine.routine_id]
        self.forget(routine.routine_id)
        self._routines[routine.routine_id] = routine
        self.settle(routine)
        return routine

    def forget(self, routine_id: str) -> None:
        """Keeps it no more."""
        self.lost.pop(routine_id, None)
        routine = self._routines.pop(routine_id, None)
        if routine is not None:
            routine.is_gone = True
        self.timer.set(routine_id, None)
        self._watch(routine_id, frozenset())

    def call(self, routine_id: str, *, thorough: bool) -> None:
        """Attends to the routine soon; once, however often it is called meanwhile."""
        if not self._is_keeping:
            return
        self._wanted[routine_id] = thorough or self._wanted.get(routine_id, False)
        if routine_id not in self._attending:
            self._attending[routine_id] = asyncio.create_task(self._attend(routine_id))

    async def _attend(self, routine_id: str) -> None:
        try:
            while routine_id in self._wanted:
                thorough = self._wanted.pop(routine_id)
                async with self._room:
                    await self._attend_once(routine_id, thorough=thorough)
        finally:
            del self._attending[routine_id]

    async def _attend_once(self, routine_id: str, *, thorough: bool) -> None:
        is_stale = routine_id in self._stale
        self._stale.discard(routine_id)
        routine = self._routines.get(routine_id)
        if routine is None:
            if is_stale:
                await self.find(routine_id)
            return

        async def step() -> None:
            if is_stale:
                await routine.catch_up()
            await self.firing.attend(routine, clock.now(), thorough=thorough)

        try:
            await self.hold(routine, step)
        except RoutineNotFoundError:
            if is_stale:
                await self.find(routine_id)  # one that was made anew has its id now
        except PerdureError as error:
            _log.warning("routine %r, trying again: %s", routine_id, error)
        except Exception:  # outermost frame of a routine: its fault must not end the others
            _log.exception("routine %r", routine_id)

    async def hold(self, routine: Routine, step: Callable[[], Awaitable[None]]) -> None:
        """Runs a step of the routine under its lock, and sees to what follows from it.

        Raises:
            RoutineNotFoundError: it is gone. And what the step raises.

        """
        async with routine.lock:
            if routine.is_gone:
                raise RoutineNotFoundError(routine.routine_id)
            try:
                await step()
                routine.failures = 0
            except RoutineNotFoundError:
                if self._routines.get(routine.routine_id) is routine:
                    self.forget(routine.routine_id)
                raise
            except Exception as error:
                if isinstance(error, PerdureError) and not isinstance(error, _REFUSALS):
                    raise  # somebody asked for what cannot be
                routine.failures += 1
                delay_s = min(2.0**routine.failures, MOST_RETRY_S)
                routine.retry_at = clock.now() + timedelta(seconds=delay_s)
                raise
            finally:
                if not routine.is_gone:
                    self.settle(routine)

    def settle(self, routine: Routine) -> None:
        """Sets the timer, and watches the sessions of the runs that have not ended."""
        self.timer.set(routine.routine_id, self._wake_at(routine))
        sessions = (run.session_id for run in routine.state.runs)
        self._watch(routine.routine_id, frozenset(each for each in sessions if each is not None))

    def _wake_at(self, routine: Routine) -> datetime | None:
        if self._sessions.is_closing:
            return None
        if routine.failures:
            return routine.retry_at
        times = [time for time in (routine.next_start(), routine.retry_at) if time is not None]
        return min(times, default=None)

    def _watch(self, routine_id: str, session_ids: frozenset[str]) -> None:
        before = self._watching.pop(routine_id, frozenset())
        if session_ids:
            self._watching[routine_id] = session_ids
        for session_id in before - session_ids:
            self._watched[session_id].discard(routine_id)
            if not self._watched[session_id]:
                del self._watched[session_id]
        for session_id in session_ids - before:
            self._watched.setdefault(session_id, set()).add(routine_id)

    def _session_grew(self, session_id: str) -> None:
        for routine_id in tuple(self._watched.get(session_id, ())):
            self.call(routine_id, thorough=False)

    def _routine_grew(self, routine_id: str) -> None:
        """Others may have written to it, or it is new here."""
        routine = self._routines.get(routine_id)
        if routine is None or not routine.lock.locked():
            self._stale.add(routine_id)
            self.call(routine_id, thorough=False)

    async def find(self, routine_id: str) -> None:
        """Looks for a routine that others made, or deleted."""
        try:
            await self._load(await self.journals.load_session(routine_id))
        except SessionNotFoundError:
            self.forget(routine_id)
        except PerdureError as error:
            _log.warning("routine %r cannot be read: %s", routine_id, error)

    def routines(self) -> Sequence[Routine]:
        """All that are kept."""
        return tuple(self._routines.values())
