"""An event loop without a world outside: a seed orders what is ready, and time passes at once.

The same seed gives the same run, to the last callback. Nothing sleeps: when nothing is ready, the
clock stands at the next timer. A run that spins, or waits for what never comes, fails.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from perdure import clock

_T = TypeVar("_T")

MOST_STEPS = 60_000
START = datetime(2026, 1, 1, tzinfo=UTC)


class SeededLoop(asyncio.BaseEventLoop):
    """Runs one ready callback at a time, drawn by `dice`; its time is the seconds slept."""

    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]

    def __init__(self, dice: random.Random) -> None:
        super().__init__()
        self._dice = dice
        self._now = 0.0
        self.steps = 0

    def time(self) -> float:
        return self._now

    def _write_to_self(self) -> None:
        """Nobody waits to be woken."""

    def _run_once(self) -> None:
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise AssertionError(f"nothing comes to rest after {MOST_STEPS} steps")
        if not self._ready:
            self._pass_time()
        if not self._ready:
            raise AssertionError("everybody waits for what never comes")
        self._ready.rotate(-self._dice.randrange(len(self._ready)))
        handle = self._ready.popleft()
        if not handle.cancelled():
            handle._run()

    def _pass_time(self) -> None:
        waiting = [each for each in self._scheduled if not each.cancelled()]
        if waiting:
            self._now = min(each.when() for each in waiting)
        self._ready.extend(each for each in waiting if each.when() <= self._now)
        self._scheduled[:] = [each for each in waiting if each.when() > self._now]


class SeededClock:
    """The time of a seeded loop, and ids that count up."""

    def __init__(self, loop: SeededLoop) -> None:
        self._loop = loop
        self._ids = 0

    def now(self) -> datetime:
        return START + timedelta(seconds=self._loop.time())

    def monotonic(self) -> float:
        return self._loop.time()

    def new_id(self) -> str:
        self._ids += 1
        return f"{self._ids:032x}"

    async def sleep(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s)


def run(dice: random.Random, main: Coroutine[Any, Any, _T]) -> _T:
    """Runs `main` to its end on a loop of its own; what still runs then is a failure."""
    loop = SeededLoop(dice)
    try:
        with clock.use(SeededClock(loop)):
            task = loop.create_task(main)
            try:
                result = loop.run_until_complete(task)
            finally:
                left = asyncio.all_tasks(loop)
                for each in left:
                    each.cancel()
                if left:
                    loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        assert not left, f"left running: {left}"
        return result
    finally:
        loop.close()


def steps() -> int:
    """How many steps the running loop has taken."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SeededLoop)
    return loop.steps
