"""Waiting for what must not be cut in two: a cancellation comes when it is over, and is not lost.

"Append, then advance" is one step. Whoever is cancelled in it waits for the append's outcome,
advances, and is cancelled then. What is waited for is never cancelled by its waiter.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, NoReturn, TypeVar, overload

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


class Answer(Coroutine[Any, Any, _T]):
    """A coroutine that asks for one future, when it begins, and waits for it.

    The future only tells: cancelling it takes nothing back. `complete` needs no task for it.
    """

    __slots__ = ("_ask", "_waiting")

    def __init__(self, ask: Callable[[], asyncio.Future[_T]]) -> None:
        self._ask = ask
        self._waiting: Generator[Any, Any, _T] | None = None

    def begin(self) -> asyncio.Future[_T]:
        """Asks, inside the event loop that waits; once. What asking raises, this raises."""
        ask, self._ask = self._ask, _asked_already
        return ask()

    def __await__(self) -> Generator[Any, Any, _T]:
        return self.begin().__await__()

    def send(self, value: Any) -> Any:
        """As every coroutine."""
        if self._waiting is None:
            self._waiting = self.__await__()
        return self._waiting.send(value)

    def throw(self, *error: Any) -> Any:
        """As every coroutine."""
        if self._waiting is None:
            return super().throw(*error)
        return self._waiting.throw(*error)

    def close(self) -> None:
        """As every coroutine."""
        if self._waiting is not None:
            self._waiting.close()


def _asked_already() -> NoReturn:
    raise RuntimeError("cannot reuse an answer that was awaited")


def _result(future: asyncio.Future[Any]) -> Any:
    return future.result()


@overload
async def complete(step: Awaitable[_T]) -> _T: ...


@overload
async def complete(step: Awaitable[_T], then: Callable[[asyncio.Future[_T]], _R]) -> _R: ...


async def complete(
    step: Awaitable[Any], then: Callable[[asyncio.Future[Any]], Any] = _result
) -> Any:
    """Waits for a step to its end even if the caller is cancelled, and returns what `then` makes.

    A coroutine becomes a task of its own; an answer and a future need none. `then` is called with
    the step's future when that is over, whatever it came to, and is part of the step.
    """
    future = step.begin() if type(step) is Answer else asyncio.ensure_future(step)
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        held = _Held(future)
        try:
            await held
        except asyncio.CancelledError as error:
            if held.is_asked:
                cancelled = error
        except Exception:  # the step's own: `then` asks for it
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
