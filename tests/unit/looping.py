"""Small loops that count what they leave running, and stores that are slow or fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

from perdure.codec import Draft, Entry, StoredEntry
from perdure.entry import Message, Text, ToolCall, ToolResult
from perdure.loop import (
    Loop,
    LoopContext,
    LoopEvent,
    MessageDelta,
    MessageEnded,
    MessageStarted,
    ToolDelta,
    ToolEnded,
    ToolStarted,
)
from perdure.store import Receipt
from perdure.stores.memory import MemoryStore


def answer(content: str, call_id: str = "") -> MessageEnded:
    """The end of a message with a text and, maybe, a call."""
    calls = (ToolCall(call_id, "tool", {"of": call_id}),) if call_id else ()
    return MessageEnded((Text(content), *calls))


def result(call_id: str, content: str = "result") -> ToolEnded:
    return ToolEnded(ToolResult(call_id, (Text(content),), name="tool"))


def factory(*events: LoopEvent | BaseException | Callable[[], Any]) -> Callable[[], Loop]:
    """Loops that yield these events, raise these exceptions and call these functions, in order."""

    async def loop(context: LoopContext) -> AsyncGenerator[LoopEvent, None]:
        for event in events:
            if isinstance(event, BaseException):
                raise event
            if callable(event):
                made = event()
                if asyncio.iscoroutine(made):
                    await made
            else:
                yield event

    return lambda: loop


class Probe:
    """A loop of two parallel tools, and what of it is running."""

    def __init__(self) -> None:
        self.loops = 0
        self.is_disturbed = False
        self.tools: set[str] = set()
        self.views: list[Sequence[Message]] = []

    @property
    def is_quiet(self) -> bool:
        """Whether nothing of any run is left, and no clean-up was cut short."""
        return self.loops == 0 and not self.tools and not self.is_disturbed

    def __call__(self) -> Loop:
        return self.loop

    async def loop(self, context: LoopContext) -> AsyncGenerator[LoopEvent, None]:
        self.loops += 1
        is_ending = False
        try:
            self.views.append(await context.messages())
            if context.purpose == "summary":
                yield answer("a summary")
                return
            yield MessageStarted()
            yield MessageDelta("let me ")
            yield MessageDelta("see")
            calls = tuple(ToolCall(call_id, "tool", {}) for call_id in "ab")
            yield MessageEnded((Text("let me see"), *calls))
            async for event in self._both():
                yield event
            yield MessageDelta("do")
            yield MessageDelta("ne")
            yield answer("done")
        except (asyncio.CancelledError, GeneratorExit):
            is_ending = True
            raise
        finally:
            try:
                for _ in range(3):
                    await asyncio.sleep(0)
            except asyncio.CancelledError:
                self.is_disturbed = is_ending
                raise
            finally:
                self.loops -= 1

    async def _both(self) -> AsyncGenerator[LoopEvent, None]:
        ended: asyncio.Queue[str] = asyncio.Queue()
        tools = [asyncio.create_task(self._tool(call_id, ended)) for call_id in "ba"]
        try:
            yield ToolStarted("a")
            yield ToolDelta("a", "half of a")
            for _ in tools:
                yield result(await ended.get())
        finally:
            for tool in tools:
                tool.cancel()
            await asyncio.gather(*tools, return_exceptions=True)

    async def _tool(self, call_id: str, ended: asyncio.Queue[str]) -> None:
        self.tools.add(call_id)
        try:
            await asyncio.sleep(0)
            await ended.put(call_id)
        finally:
            try:
                await asyncio.sleep(0)
            finally:
                self.tools.discard(call_id)


class SlowStore(MemoryStore):
    """A store whose verbs give way before and after they take effect."""

    async def append_entries(
        self, session_id: str, entries: Sequence[Draft | Entry], **options: Any
    ) -> Receipt:
        await asyncio.sleep(0)
        receipt = await super().append_entries(session_id, entries, **options)
        await asyncio.sleep(0)
        return receipt

    async def load_entries(self, session_id: str, *, after: int = 0) -> Sequence[StoredEntry]:
        await asyncio.sleep(0)
        return await super().load_entries(session_id, after=after)


class FaultyStore(SlowStore):
    """A store whose `fail_at`-th append raises `error`, having stored it first or not."""

    def __init__(self, fail_at: int, error: Exception, *, stores_it: bool) -> None:
        super().__init__()
        self.appends = 0
        self._fail_at = fail_at
        self._error = error
        self._stores_it = stores_it

    async def append_entries(
        self, session_id: str, entries: Sequence[Draft | Entry], **options: Any
    ) -> Receipt:
        self.appends += 1
        if self.appends != self._fail_at:
            return await super().append_entries(session_id, entries, **options)
        if self._stores_it:
            await super().append_entries(session_id, entries, **options)
        raise self._error
