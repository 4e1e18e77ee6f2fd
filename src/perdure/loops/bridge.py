"""Lets a foreign agent, which runs by itself, speak as a loop: it waits until each word is stored.

The agent runs in a task of its own. `say` gives the loop one event and returns when the loop was
resumed after it, and that is when it is stored: so an agent that says its message before it starts
the message's tools starts none that is not durable. Leaving the loop cancels the agent.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import NamedTuple

from perdure.loop import LoopEvent


class _Said(NamedTuple):
    event: LoopEvent
    is_taken: asyncio.Future[None] | None


class Bridge:
    """What an agent speaks through."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._said: asyncio.Queue[_Said | None] = asyncio.Queue()

    async def say(self, event: LoopEvent) -> None:
        """Gives an event; returns when it is stored. Those of several tasks come one by one."""
        taken: asyncio.Future[None] = self._loop.create_future()
        self._said.put_nowait(_Said(event, taken))
        await taken

    def tell(self, event: LoopEvent) -> None:
        """Gives an event that nobody waits for, from any thread."""
        self._loop.call_soon_threadsafe(self._said.put_nowait, _Said(event, None))

    async def flush(self) -> None:
        """Returns once all that was told on this thread before is ahead of what is said next."""
        await asyncio.sleep(0)


async def bridged(run: Callable[[Bridge], Awaitable[None]]) -> AsyncGenerator[LoopEvent, None]:
    """What an agent says while `run` runs it; ends when that does, or raises what it raises."""
    bridge = Bridge()
    said = bridge._said

    async def whole() -> None:
        await run(bridge)

    task = asyncio.create_task(whole())
    task.add_done_callback(lambda _: said.put_nowait(None))
    try:
        while (each := await said.get()) is not None:
            yield each.event
            if each.is_taken is not None and not each.is_taken.done():
                each.is_taken.set_result(None)
        await task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
