"""What an agent told and nobody has taken yet, in order, and no more of it than fits."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress

from perdure.loops.agent_told import Asked, Told

MOST_WAITING_BYTES = 8 << 20


class Inbox:
    """A queue between whoever reads an agent's output and the run that takes it in."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Told, int]] = deque()
        self._bytes = 0
        self._changed = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._is_closed = False

    def put(self, told: Told, size: int = 0) -> None:
        """Adds what was told; it took `size` bytes to tell."""
        if self._is_closed:
            if isinstance(told, Asked):
                settle(told)
            return
        self._waiting.append((told, size))
        self._bytes += size
        self._changed.set()
        if self._bytes > MOST_WAITING_BYTES:
            self._room.clear()

    async def room(self) -> None:
        """Waits until there is room for more."""
        await self._room.wait()

    async def get(self, at_most_s: float | None) -> Told | None:
        """The next of it; None when nothing came for so long."""
        if not self._waiting:
            self._changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(at_most_s):
                    await self._changed.wait()
        if not self._waiting:
            return None
        told, size = self._waiting.popleft()
        self._bytes -= size
        if self._bytes <= MOST_WAITING_BYTES:
            self._room.set()
        return told

    def close(self) -> None:
        """Drops everything, now and from now on; whoever asks is told that nobody answers."""
        self._is_closed = True
        for told, _ in self._waiting:
            if isinstance(told, Asked):
                settle(told)
        self._waiting.clear()
        self._bytes = 0
        self._room.set()


def settle(asked: Asked) -> None:
    """Tells whoever asks that nobody answers."""
    if not asked.answer.done():
        asked.answer.set_result(None)
