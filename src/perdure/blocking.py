"""Somebody's function that blocks, in a thread of its own: one that hangs is in nobody's way.

A pool would be full of those that hang, and whatever else uses it would stand still. A thread
cannot be ended: a caller who is cancelled goes on at once, and leaves it behind.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Blocking(Generic[T]):
    """A function whose calls have a daemon thread each, with the context variables of the caller.

    `hanging` is how many of them nobody waits for any more, and have not come back.
    """

    def __init__(self, function: Callable[..., T]) -> None:
        self.hanging = 0
        self._function = function

    async def __call__(self, *arguments: Any, **named: Any) -> T:
        """What the function returns, or raises; a StopIteration comes out as a RuntimeError."""
        loop = asyncio.get_running_loop()
        came: asyncio.Future[T] = loop.create_future()

        def settle(result: Any, error: BaseException | None) -> None:
            if came.done():  # nobody waits any more, and it has come back
                self.hanging -= 1
            elif error is None:
                came.set_result(result)
            else:
                came.set_exception(error)

        def work() -> None:
            result: Any = None
            raised: BaseException | None = None
            try:
                result = self._function(*arguments, **named)
            except StopIteration as error:  # a future cannot hold one
                raised = RuntimeError(repr(error))
            except BaseException as error:  # the outermost frame of this thread
                raised = error
            with suppress(RuntimeError):  # the event loop is gone
                loop.call_soon_threadsafe(settle, result, raised)

        run = partial(copy_context().run, work)
        threading.Thread(target=run, name="perdure-blocking", daemon=True).start()
        try:
            return await came
        except asyncio.CancelledError:
            if came.cancelled():
                self.hanging += 1
            raise
