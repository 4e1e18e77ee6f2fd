"""A server's routines in a test: real sessions, a store, and a clock that is moved."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from perdure import clock
from perdure.entry import Message
from perdure.fact import TurnStarted
from perdure.server.journal import JournalStore
from perdure.server.routine.definition import Wanted
from perdure.server.routine.look import RoutineLook, RunLook
from perdure.server.routine.registry import RoutineRegistry, Switch
from perdure.server.session.limit import Limits
from perdure.testing import ManualClock
from tests.server.house import House, Loops

START = datetime(2026, 1, 5, 8, 0, tzinfo=UTC)
"""A Monday."""

SAY = '[{"do": "say", "text": "done"}]'
HANG = '[{"do": "hang"}]'
FAIL = '[{"do": "fail", "message": "broken"}]'


def at(text: str) -> datetime:
    """A time in UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


class RoutineHouse:
    """One process of a server: a registry of sessions, and the routines beside it."""

    def __init__(
        self, store: JournalStore, loops: Loops | None = None, limits: Limits | None = None
    ) -> None:
        self.house = House(store, loops, limits)
        self.store = store
        self.routines = RoutineRegistry(store, self.house.registry, self.house.loops.prepare)

    @property
    def keeper(self) -> Any:
        return self.routines.keeper

    async def make(
        self, text: str = SAY, *, status: Switch = "enabled", **wanted: Any
    ) -> RoutineLook:
        """A routine `r`, every hour unless it says otherwise."""
        if not {"cron", "every_s", "at"} & wanted.keys():
            wanted["cron"] = "0 * * * *"
        look, is_new = await self.routines.create("r", Wanted(text=text, **wanted), status=status)
        assert is_new
        return look

    async def rest(self) -> None:
        """Waits until nothing moves any more."""
        for _ in range(60):
            await asyncio.sleep(0)
            await self.keeper.until_rest()
            if not self.keeper._attending:
                await asyncio.sleep(0)
        await self.keeper.until_rest()

    async def runs(self, routine_id: str = "r", limit: int = 500) -> list[RunLook]:
        """The whole run history, oldest first."""
        found: list[RunLook] = []
        after: str | None = None
        while True:
            page = await self.routines.runs(routine_id, limit=limit, after=after)
            found += page.runs
            after = page.next
            if after is None:
                return found[::-1]

    async def said(self, routine_id: str = "r") -> list[tuple[str, str]]:
        """The run history in short: when, and what became of it."""
        return [(f"{run.due_at:%m-%dT%H:%M}", run.status) for run in await self.runs(routine_id)]

    async def starts(self, session_id: str = "r") -> int:
        """How many turns this session ever had."""
        entries = await self.store.load_entries(session_id)
        return sum(isinstance(each.view, TurnStarted) for each in entries)

    async def messages(self, session_id: str = "r") -> Sequence[str]:
        """What users sent into this session."""
        views = [each.view for each in await self.store.load_entries(session_id)]
        return [each.text for each in views if isinstance(each, Message) and each.role == "user"]


async def move(house: RoutineHouse, manual: ManualClock, seconds: float) -> None:
    """Moves the clock on, due time by due time, and lets everything happen at its time."""
    end = manual.now().timestamp() + seconds
    while True:
        await house.rest()
        left = end - manual.now().timestamp()
        if left <= 0:
            return
        heap = house.keeper.timer._heap
        if not heap:
            await manual.advance(left)
            continue
        step = (heap[0][0] - manual.now()).total_seconds()
        await manual.advance(min(left, step if step > 0 else 5))


async def move_to(house: RoutineHouse, manual: ManualClock, moment: datetime) -> None:
    """Moves the clock on to a time."""
    await move(house, manual, (moment - manual.now()).total_seconds())


@asynccontextmanager
async def living(
    store: JournalStore, loops: Loops | None = None, limits: Limits | None = None
) -> AsyncIterator[RoutineHouse]:
    """A server on this store, from its start to its clean end."""
    house = RoutineHouse(store, loops, limits)
    await house.keeper.load()
    try:
        async with house.keeper.keeping():
            await house.rest()
            yield house
            await house.rest()
    finally:
        await house.house.close()


@asynccontextmanager
async def timed(start: datetime = START) -> AsyncIterator[ManualClock]:
    """A clock that the test moves."""
    manual = ManualClock(start)
    with clock.use(manual):
        yield manual
