"""Waiting for what must not be cut in two: a cancellation comes when it is over, and is not lost.

"Append, then advance" is one step. Whoever is cancelled in it waits for the append's outcome,
advances, and is cancelled then. What is waited for is never cancelled by its waiter.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Generic, TypeVar, overload

from msgspec import Struct

_T = TypeVar("_T")
_R = TypeVar("_R")


class _Held:
    """A future as one waiter sees it: it refuses to be cancelled.

    For asyncio it is a future itself, so that nothing stands between the one that is over and the
    task that goes on. A task whose future refuses is cancelled as soon as it goes on.
    Source: asyncio.isfuture, asyncio.Task.cancel.
    """

    __slots__ = ("_asyncio_future_blocking", "add_done_callback", "get_loop", "is_asked")

    def __init__(self, future: asyncio.Future[Any]) -> None:
        self.add_done_callback = future.add_done_callback
        self.get_loop = future.get_loop
        self.is_asked = False

    def cancel(self, msg: object = None) -> bool:
        self.is_asked = True
        return False

    def __await__(self) -> Generator[Any, None, None]:
        self._asyncio_future_blocking = True
        yield self


_NOTHING = object()


class Told(Struct, Generic[_T]):
    """What will be told once, in the event loop that waits for it.

    Whoever tells looks at `future` only when it is in that loop: a waiter that was cancelled has
    cancelled its future, and gets another one from `again`.
    """

    future: asyncio.Future[_T]
    _outcome: object = _NOTHING

    def tell(self, outcome: object) -> None:
        """Gives the waiter its result, or raises the exception that it is; in its loop."""
        future = self.future
        if future.done():
            self._outcome = outcome
        elif isinstance(outcome, BaseException):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)  # type: ignore[arg-type]  # whoever tells knows what

    def again(self) -> asyncio.Future[_T]:
        """A future for whoever was cancelled and goes on waiting."""
        self.future = asyncio.get_running_loop().create_future()
        if self._outcome is not _NOTHING:
            self.tell(self._outcome)
        return self.future


def _result(future: asyncio.Future[Any]) -> Any:
    return future.result()


@overload
async def complete(step: Awaitable[_T] | Told[_T]) -> _T: ...


@overload
async def complete(
    step: Awaitable[_T] | Told[_T], then: Callable[[asyncio.Future[_T]], _R]
) -> _R: ...


async def complete(
    step: Awaitable[Any] | Told[Any], then: Callable[[asyncio.Future[Any]], Any] = _result
) -> Any:
    """Waits for a step to its end even if the caller is cancelled, and returns what `then` makes.

    A coroutine becomes a task of its own; a future and what will be told need none. `then` is
    called with the step's future when that is over, whatever it came to, and is part of the step.
    """
    cancelled: asyncio.CancelledError | None = None
    if isinstance(step, Told):
        future = step.future
        try:
            await future
        except asyncio.CancelledError as error:
            cancelled = error
            if future.cancelled():
                future = step.again()
        except Exception:  # the step's own: `then` asks for it
            if not future.done():
                raise
    else:
        future = asyncio.ensure_future(step)
    while not future.done():  # held: a scope may cancel whoever waits in it again and again
        held = _Held(future)
        try:
            await held
        except asyncio.CancelledError as error:
            if held.is_asked:
                cancelled = error
        except Exception:  # the step's own, too
            if not future.done():
                raise
    if cancelled is None:
        return then(future)
    try:
        then(future)
    except asyncio.CancelledError:
        pass
    except Exception as failure:
        raise cancelled from failure
    raise cancelled
