"""A clock that moves when it is told to, and whose ids are the same in every run."""

from __future__ import annotations

import asyncio
import heapq
from datetime import UTC, datetime, timedelta

_STEPS_TO_SETTLE = 20


class ManualClock:
    """A `perdure.clock.Clock` for tests: install it with `perdure.clock.use(clock)`.

    Its ids count up from 1 after `seed`; a sleep ends when `advance` passes its end.
    """

    def __init__(self, start: datetime | None = None, *, seed: int = 0) -> None:
        self._start = start or datetime(2026, 1, 1, tzinfo=UTC)
        self._shift = timedelta()
        self._elapsed_s = 0.0
        self._seed = seed
        self._ids = 0
        self._order = 0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now(self) -> datetime:
        """The start, and what was advanced and stepped since."""
        return self._start + timedelta(seconds=self._elapsed_s) + self._shift

    def monotonic(self) -> float:
        """The seconds advanced since the start."""
        return self._elapsed_s

    def new_id(self) -> str:
        """The next id."""
        self._ids += 1
        return f"{self._seed:016x}{self._ids:016x}"

    async def sleep(self, delay_s: float) -> None:
        """Returns once the clock has been advanced by `delay_s` seconds."""
        if delay_s <= 0:
            await asyncio.sleep(0)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._order += 1
        heapq.heappush(self._sleepers, (self._elapsed_s + delay_s, self._order, future))
        await future

    @property
    def sleeping(self) -> int:
        """How many sleeps have not ended."""
        return sum(not future.done() for _, _, future in self._sleepers)

    async def advance(self, delay_s: float) -> None:
        """Moves on by `delay_s` seconds, waking each sleeper at its own time and in order.

        What a woken task does at once (sleep again, say) counts from the time of its waking.
        """
        end_s = self._elapsed_s + delay_s
        await self._settle()
        while self._sleepers and self._sleepers[0][0] <= end_s:
            self._elapsed_s, _, future = heapq.heappop(self._sleepers)
            if not future.done():
                future.set_result(None)
                await self._settle()
        self._elapsed_s = end_s

    def step(self, by: timedelta) -> None:
        """Sets the wall clock forward or back, as an operator would; no sleep notices."""
        self._shift += by

    async def _settle(self) -> None:
        for _ in range(_STEPS_TO_SETTLE):
            await asyncio.sleep(0)
