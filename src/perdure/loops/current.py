"""The call whose tool runs here: for tools that a foreign agent calls with its own arguments."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from perdure.errors import LoopError
from perdure.loops.tool import ToolContext

_current: ContextVar[ToolContext] = ContextVar("perdure_call")


def current_call() -> ToolContext:
    """The call that runs this code: its session, turn, idempotency key, and a way to show output.

    For the tools of a wrapped agent; a tool of a `Model` is given it as its first parameter.

    Raises:
        LoopError: no call does.

    """
    try:
        return _current.get()
    except LookupError:
        raise LoopError("no call of a wrapped agent runs this code") from None


@contextmanager
def calling(context: ToolContext) -> Iterator[None]:
    """Makes it the current call inside the block, and in the tasks and threads that begin there."""
    token = _current.set(context)
    try:
        yield
    finally:
        _current.reset(token)
