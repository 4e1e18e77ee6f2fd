"""The server's routines: kept in memory, all of them, and attended to (keeping/keeper.py)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import datetime

from perdure import clock
from perdure.errors import RoutineNotFoundError, SessionNotFoundError, UnrecoverableError
from perdure.server.journal import JournalStore
from perdure.server.keeping import keeper
from perdure.server.keeping.port import Sessions
from perdure.server.routine.firing import Firing
from perdure.server.routine.routine import Routine, load_routine
from perdure.store import Session


class Keeper(keeper.Keeper[Routine]):
    """The routines in memory. Inside `keeping` their due times are claimed and their runs started.

    `lost` are those whose journal cannot be read, and why.
    """

    kind = "routine"

    def __init__(self, store: JournalStore, sessions: Sessions) -> None:
        super().__init__(store, sessions)
        self.firing = Firing(store, sessions)
        self.lost: dict[str, tuple[Session, str]] = {}

    async def load(self) -> None:
        """Reads which routines there are; O(routines).

        Raises:
            StoreError: the store cannot be read.

        """
        after: str | None = None
        while True:
            page = await self.journals.list_sessions(limit=keeper.PAGE, after=after)
            for look in page.sessions:
                await self.load_one(look.session)
            after = page.next
            if after is None:
                return
            await asyncio.sleep(0)  # a page is enough at a time for an event loop that serves

    async def load_one(self, session: Session) -> None:
        """Keeps the routine of this journal."""
        if self.has(session):
            return
        try:
            routine = await load_routine(self.journals, await self.journals.look(session.id))
            if routine.state.definition is None:
                return  # nothing was ever defined
        except SessionNotFoundError:
            self.forget(session.id)
        except UnrecoverableError as error:
            self._log.error("routine %r is unrecoverable: %s", session.id, error)
            self.lost[session.id] = (session, str(error))
        else:
            if not self.has(session):
                self.add(routine)

    def get(self, routine_id: str) -> Routine:
        """The routine of this id.

        Raises:
            RoutineNotFoundError: there is none. UnrecoverableError: its journal cannot be read.

        """
        if routine_id in self.lost:
            raise UnrecoverableError(self.lost[routine_id][1])
        routine = self.find_kept(routine_id)
        if routine is None:
            raise RoutineNotFoundError(routine_id)
        return routine

    def forget(self, name: str) -> None:
        """Keeps it no more."""
        self.lost.pop(name, None)
        super().forget(name)

    async def attend(self, one: Routine, *, thorough: bool) -> None:
        """Takes its runs on, and settles what is due."""
        await self.firing.attend(one, clock.now(), thorough=thorough)

    def sessions_of(self, one: Routine) -> Iterable[str]:
        """Those of the runs that have not ended."""
        return [run.session_id for run in one.state.runs if run.session_id is not None]

    def is_open(self, one: Routine) -> bool:
        """Whether a run has not ended."""
        return bool(one.state.runs)

    def wake_at(self, one: Routine) -> datetime | None:
        """When its next run starts, or one is tried again."""
        times = [time for time in (one.next_start(), one.retry_at) if time is not None]
        return min(times, default=None)
