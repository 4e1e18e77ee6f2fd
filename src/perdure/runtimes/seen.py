"""The calls of a runtime's life by their idempotency keys: each runs once.

A key that comes again while its call runs waits for the same result. Results are kept up to a
bound, the oldest go first; their keys stay far longer, so that a call whose result is gone is
still not run again, and says so. What a life forgets is the oldest of very many keys.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from perdure.entry import File, Text, ToolResult

MAX_KEYS = 100_000
MAX_KEPT_CHARS = 64 << 20


@dataclass(slots=True)
class Run:
    """A call that was begun: its task, and afterwards its result for as long as it is kept.

    `what` tells it from other calls, and is small.
    """

    what: bytes
    task: asyncio.Task[ToolResult] | None
    result: ToolResult | None = None
    chars: int = 0
    was_ended: bool = False


class SeenKeys:
    """What a runtime remembers of its calls."""

    def __init__(self, *, max_keys: int = MAX_KEYS, max_kept_chars: int = MAX_KEPT_CHARS) -> None:
        self._runs: dict[str, Run] = {}
        self._kept: dict[str, Run] = {}
        self._kept_chars = 0
        self._max_keys = max_keys
        self._max_kept_chars = max_kept_chars

    def find(self, key: str) -> Run | None:
        """The call of this key, if it was begun in this life."""
        return self._runs.get(key)

    def begin(self, key: str, what: bytes, run: Callable[[], Awaitable[ToolResult]]) -> Run:
        """Begins the call of a key that is new; an empty key is never remembered."""
        task = asyncio.ensure_future(run())
        assert isinstance(task, asyncio.Task)
        begun = Run(what, task)
        if key:
            self._runs[key] = begun
        task.add_done_callback(lambda done: self._end(key, begun, done))
        return begun

    def _end(self, key: str, run: Run, task: asyncio.Task[ToolResult]) -> None:
        run.task = None
        if task.cancelled() or task.exception() is not None:
            run.was_ended = True
        else:
            run.result = task.result()
            run.chars = size_of(run.result)
        if key and run.result is not None:
            self._kept[key] = run
            self._kept_chars += run.chars
        while self._kept_chars > self._max_kept_chars and len(self._kept) > 1:
            oldest = self._kept.pop(next(iter(self._kept)))
            self._kept_chars -= oldest.chars
            oldest.result = None
        while len(self._runs) > self._max_keys:
            self._forget()

    def _forget(self) -> None:
        oldest = next((key for key, run in self._runs.items() if run.task is None), None)
        if oldest is None:
            raise AssertionError("more calls run than keys are kept")
        del self._runs[oldest]
        if (run := self._kept.pop(oldest, None)) is not None:
            self._kept_chars -= run.chars


def size_of(result: ToolResult) -> int:
    """About how much memory a result takes: characters of text, bytes of files."""
    size = 0
    for part in result.parts:
        match part:
            case Text():
                size += len(part.text)
            case File():
                size += len(part.data or b"")
    return size
