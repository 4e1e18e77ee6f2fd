"""Time and ids: the only two sources of nondeterminism, and both can be replaced.

Nothing else in Perdure asks what time it is or makes an id. A time is shown to people and decides
nothing; an id is opaque and orders nothing.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """What Perdure asks of the world outside."""

    def now(self) -> datetime:
        """The time in UTC, aware; may step backwards."""

    def monotonic(self) -> float:
        """Seconds that never step backwards, from an arbitrary start."""

    def new_id(self) -> str:
        """An id that nobody else has: 32 lowercase hexadecimal digits."""

    async def sleep(self, delay_s: float) -> None:
        """Returns after `delay_s` seconds."""


_RANDOM_BYTES = 10
_random: deque[bytes] = deque()
"""Random bytes of the system that no id has yet: it is asked for those of many ids at once."""
os.register_at_fork(after_in_child=_random.clear)


def _more_random() -> bytes:
    block = os.urandom(256 * _RANDOM_BYTES)
    parts = [block[at : at + _RANDOM_BYTES] for at in range(0, len(block), _RANDOM_BYTES)]
    _random.extend(parts[1:])
    return parts[0]


class SystemClock:
    """The machine's clock, and ids of 48 bits of milliseconds and 80 random bits."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    def new_id(self) -> str:
        stamp = time.time_ns() // 1_000_000 & 0xFFFF_FFFF_FFFF
        try:
            random = _random.popleft()
        except IndexError:
            random = _more_random()
        return (stamp.to_bytes(6, "big") + random).hex()

    async def sleep(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s)


_active: ContextVar[Clock] = ContextVar("perdure_clock", default=SystemClock())  # noqa: B039


def now() -> datetime:
    """The active clock's time, in UTC."""
    return _active.get().now()


def monotonic() -> float:
    """The active clock's monotonic seconds."""
    return _active.get().monotonic()


def new_id() -> str:
    """A new id from the active clock."""
    return _active.get().new_id()


async def sleep(delay_s: float) -> None:
    """Sleeps `delay_s` seconds of the active clock."""
    await _active.get().sleep(delay_s)


@contextmanager
def use(clock: Clock) -> Iterator[None]:
    """Replaces the clock inside the block, for this task and the tasks that it starts."""
    token = _active.set(clock)
    try:
        yield
    finally:
        _active.reset(token)
