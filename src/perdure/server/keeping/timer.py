"""One timer for all that is kept: a heap of when each is due, and one task that sleeps.

Between due times it costs a glance at the clock each minute, whatever the number of them: a
clock that somebody sets forward is noticed by nothing else.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from datetime import datetime, timedelta

from perdure import clock

GLANCE_S = 60.0
"""How long a clock that was set may go unnoticed."""

SET_BACK = timedelta(hours=1)
"""A clock that goes back by more than this was set, and everything is looked at again."""


class Timer:
    """Calls `ring(name)` once the clock has come to the time that was set for the name."""

    def __init__(self, ring: Callable[[str], None]) -> None:
        self._ring = ring
        self._heap: list[tuple[datetime, int, str]] = []
        self._set: dict[str, tuple[datetime, int]] = {}
        self._count = 0
        self._changed = asyncio.Event()
        self._latest: datetime | None = None
        self.glances = 0

    def set(self, name: str, when: datetime | None) -> None:
        """Rings at this time, and no other, or never."""
        known = self._set.get(name)
        if when is None:
            self._set.pop(name, None)
            return
        if known is not None and known[0] == when:
            return
        self._count += 1
        self._set[name] = (when, self._count)
        heapq.heappush(self._heap, (when, self._count, name))
        if self._heap[0][2] == name:
            self._changed.set()
        if len(self._heap) > 2 * len(self._set) + 64:
            self._heap = [(at, n, each) for each, (at, n) in self._set.items()]
            heapq.heapify(self._heap)

    async def run(self) -> None:
        """Keeps time until it is cancelled."""
        while True:
            now = clock.now()
            self.glances += 1
            self._changed.clear()
            while self._heap and self._heap[0][0] <= now:
                _, count, name = heapq.heappop(self._heap)
                if self._set.get(name, (now, 0))[1] == count:
                    del self._set[name]
                    self._ring(name)
            if self._latest is not None and now < self._latest - SET_BACK:
                for name in self._set:
                    self._ring(name)
            self._latest = now
            if self._heap:
                await self._sleep(min((self._heap[0][0] - now).total_seconds(), GLANCE_S))
            else:
                await self._changed.wait()

    async def _sleep(self, delay_s: float) -> None:
        """Until the time is over, or something is due earlier."""
        tasks = [
            asyncio.ensure_future(clock.sleep(delay_s)),
            asyncio.ensure_future(self._changed.wait()),
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
