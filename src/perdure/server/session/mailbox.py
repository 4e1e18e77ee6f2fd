"""A mailbox: steps that are taken one after the other, each to its end."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

_T = TypeVar("_T")


class Mailbox:
    """Takes steps in the order they come, one at a time; holds no task while it is empty.

    A caller that is cancelled leaves its step to run to its end: what a step appends and what it
    then changes are never split.
    """

    def __init__(self) -> None:
        self._steps: deque[tuple[Callable[[], Awaitable[Any]], asyncio.Future[Any]]] = deque()
        self._worker: asyncio.Task[None] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a step is being taken or waits."""
        return self._worker is not None

    @property
    def has_more(self) -> bool:
        """Whether a step waits behind the one that is being taken."""
        return bool(self._steps)

    async def do(self, step: Callable[[], Awaitable[_T]]) -> _T:
        """Runs the step when its time comes; returns what it returns, raises what it raises."""
        answer: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
        self._steps.append((step, answer))
        if self._worker is None:
            self._worker = asyncio.create_task(self._work())
        return await asyncio.shield(answer)

    async def _work(self) -> None:
        try:
            while self._steps:
                step, answer = self._steps.popleft()
                try:
                    result = await step()
                except asyncio.CancelledError as error:
                    worker = asyncio.current_task()
                    if worker is None or worker.cancelling():
                        answer.cancel()
                        raise
                    # Somebody else's code, in the step: those that wait have nothing to do with it.
                    cut_off = RuntimeError("a step of a session was cancelled from inside")
                    cut_off.__cause__ = error
                    answer.set_exception(cut_off)
                except Exception as error:  # whatever it is belongs to who asked for the step
                    answer.set_exception(error)
                else:
                    answer.set_result(result)
        finally:
            self._worker = None
            for _, answer in self._steps:
                answer.cancel()
            self._steps.clear()
