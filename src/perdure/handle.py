"""The handle of a run: awaitable, iterable and a context manager, and it leaks nothing.

One task, the pump, owns the run. The iterator that a consumer holds is a small object that the
pump does not know, so that leaving the iteration drops it, and dropping it ends the pump.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from perdure.completion import complete
from perdure.entry import Message
from perdure.errors import RunEndedError
from perdure.events import RunEvent
from perdure.run import Emit

MAX_UNREAD_EVENTS = 64
"""How far a run gets ahead of whoever iterates over it."""


class Run:
    """One run of a loop. Nothing happens until it is awaited, iterated or entered.

    Awaiting gives the messages that the run added. Leaving the iteration, leaving the `async with`
    block or cancelling the task that waits ends the run cleanly: its tools stop, what was shown is
    kept, and what was stored stays stored. Awaiting a run that was left raises RunEndedError; a
    run that fails raises from the iteration and from the await, each time. A run that was entered
    keeps its first events for the iteration; one that is awaited keeps none, and one that was
    iterated has none left.
    """

    def __init__(self, start: Callable[[Emit], Coroutine[Any, Any, Sequence[Message]]]) -> None:
        self._start = start
        self._pump: asyncio.Task[Sequence[Message]] | None = None
        self._events: deque[RunEvent] = deque()
        self._changed: asyncio.Event | None = None
        self._iterated = False
        self._kept = False
        self._bounded = False
        self._left = False

    def _ensure_started(self) -> asyncio.Task[Sequence[Message]]:
        if self._pump is None:
            if self._left:
                raise RunEndedError("the run was ended before it began")
            self._changed = asyncio.Event()
            self._pump = asyncio.get_running_loop().create_task(self._start(self._emit))
            self._pump.add_done_callback(self._wake)
        return self._pump

    def _wake(self, _: object = None) -> None:
        assert self._changed is not None
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        if self._pump is not None and self._pump.done() and not self._pump.cancelled():
            self._pump.exception()  # it is told to whoever waits; nobody else has to hear of it

    async def _emit(self, event: RunEvent) -> None:
        if self._left:
            await asyncio.sleep(0)  # a cancellation that is under way arrives here
            raise asyncio.CancelledError  # the loop swallowed it
        if not self._kept:
            return
        self._events.append(event)
        self._wake()
        while self._bounded and len(self._events) >= MAX_UNREAD_EVENTS:
            assert self._changed is not None
            await self._changed.wait()

    def _leave(self) -> None:
        """Ends the run if it is not over; the pump cleans up in its own time, undisturbed."""
        if self._pump is None:
            self._left = True
        elif not self._pump.done():
            self._left = True
            if not self._pump.cancelling():
                self._pump.cancel()

    async def _settled(self) -> None:
        """Returns when the pump is over, however it ended."""
        if self._pump is not None:
            await asyncio.wait([self._pump])

    def __await__(self) -> Generator[Any, None, Sequence[Message]]:
        return self._result().__await__()

    async def _result(self) -> Sequence[Message]:
        pump = self._ensure_started()
        self._bounded, self._kept = False, self._iterated
        if not self._kept:
            self._events.clear()
        self._wake()
        try:
            await asyncio.wait([pump])
        except asyncio.CancelledError:
            self._leave()
            await complete(self._settled())
            raise
        if self._left or pump.cancelled():
            raise RunEndedError from (None if pump.cancelled() else pump.exception())
        return pump.result()

    def __aiter__(self) -> AsyncIterator[RunEvent]:
        if self._iterated:
            if not self._left and not (self._pump is not None and self._pump.done()):
                raise RuntimeError("a run can be iterated once at a time")
            self._events.clear()
        events = _Events(self, asyncio.get_running_loop())
        self._iterated = self._kept = self._bounded = True
        return events

    async def __aenter__(self) -> Self:
        self._kept = self._bounded = True
        self._ensure_started()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._leave()
        await complete(self._settled())


class _Events:
    """The consumer's end: its own end is the run's."""

    def __init__(self, run: Run, loop: asyncio.AbstractEventLoop) -> None:
        self._run = run
        self._loop = loop

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> RunEvent:
        run = self._run
        pump = run._ensure_started()
        try:
            while not run._events:
                if pump.done():
                    return self._end(pump)
                assert run._changed is not None
                await run._changed.wait()
        except asyncio.CancelledError:
            run._leave()
            await complete(run._settled())
            raise
        event = run._events.popleft()
        run._wake()
        return event

    def _end(self, pump: asyncio.Task[Sequence[Message]]) -> RunEvent:
        if pump.cancelled():
            raise RunEndedError
        if (error := pump.exception()) is not None:
            raise error
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Ends the run and waits until it has cleaned up."""
        self._run._leave()
        await complete(self._run._settled())

    def __del__(self) -> None:
        if asyncio._get_running_loop() is self._loop:
            self._run._leave()
        else:
            with suppress(RuntimeError):  # the event loop is closed: its tasks are gone with it
                self._loop.call_soon_threadsafe(self._run._leave)
