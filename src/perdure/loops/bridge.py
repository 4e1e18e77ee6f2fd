"""Lets a foreign agent, which runs by itself, speak as a loop: it waits until each word is stored.

The agent runs in a task of its own. `say` gives the loop one event and returns when the loop was
resumed after it, and that is when it is stored: so an agent that says its message before it starts
the message's tools starts none that is not durable. Leaving the loop cancels the agent.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import NamedTuple

from perdure.entry import ToolCall
from perdure.loop import LoopEvent, MessageEnded, ToolDelta, ToolEnded
from perdure.loops.tool import checked_output


class _Said(NamedTuple):
    event: LoopEvent
    is_taken: asyncio.Future[None] | None


class Bridge:
    """What an agent speaks through."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._said: asyncio.Queue[_Said | None] = asyncio.Queue()
        self._ended: set[str] = set()

    async def say(self, event: LoopEvent) -> None:
        """Gives an event; returns when it is stored. Those of several tasks come one by one."""
        match event:
            case MessageEnded(parts=parts):
                self._ended.difference_update(
                    part.call_id for part in parts if isinstance(part, ToolCall)
                )
            case ToolEnded(result=result):
                self._ended.add(result.call_id)
        taken: asyncio.Future[None] = self._loop.create_future()
        self._said.put_nowait(_Said(event, taken))
        await taken

    def show(self, call_id: str, text: str) -> None:
        """Gives output of a call, which nobody waits for, from any thread; none after its end."""
        self._loop.call_soon_threadsafe(self._add, ToolDelta(call_id, checked_output(text)))

    def _add(self, delta: ToolDelta) -> None:
        if delta.call_id not in self._ended:
            self._said.put_nowait(_Said(delta, None))

    async def flush(self) -> None:
        """Returns once all that was shown on this thread before is ahead of what is said next."""
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
