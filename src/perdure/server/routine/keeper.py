"""The server's routines: kept in memory, all of them, and attended to (keeping/keeper.py)."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from perdure.errors import RoutineNotFoundError, UnrecoverableError
from perdure.server.journal import JournalStore
from perdure.server.keeping import keeper
from perdure.server.keeping.port import Sessions
from perdure.server.routine.firing import Firing
from perdure.server.routine.routine import Routine, load_routine
from perdure.store import Look


class Keeper(keeper.Keeper[Routine]):
    """The routines in memory. Inside `keeping` due times are claimed and runs started."""

    kind = "routine"

    def __init__(self, store: JournalStore, sessions: Sessions) -> None:
        super().__init__(store, sessions)
        self.firing = Firing(store, sessions)

    async def read(self, look: Look) -> Routine | None:
        """The routine of this look; None where nothing was ever defined."""
        routine = await load_routine(self.journals, look)
        return None if routine.state.definition is None else routine

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

    async def advance(self, one: Routine, now: datetime, *, thorough: bool) -> None:
        """Takes its runs on, and settles what is due."""
        await self.firing.advance(one, now, thorough=thorough)

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
