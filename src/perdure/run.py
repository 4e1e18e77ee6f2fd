"""Drives a loop and stores what it yields. Once, for the durable agent and for the server's actor.

The loop is suspended at each yield until what it yielded is stored; only then does anybody hear of
it. However the run ends, the loop is closed first (its tools stop), what was shown of an unfinished
message is kept, and each call in flight gets its interrupted result.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import aclosing
from typing import Any, NamedTuple, Never, NoReturn, Protocol

from msgspec.structs import replace

from perdure import clock
from perdure.codec import Draft, clean_text, encode
from perdure.completion import complete as complete
from perdure.context import RunContext
from perdure.entry import Ending, Message, Part, Reasoning, Text, ToolCall, ToolResult
from perdure.errors import AppendRejectedError, LoopError, PerdureError, RuntimeLostError
from perdure.events import (
    MessageEnd,
    MessageStart,
    MessageUpdate,
    RunEvent,
    RunNotice,
    ToolEnd,
    ToolStart,
)
from perdure.fact import LoopRemembered
from perdure.loop import (
    CallWaits,
    Loop,
    LoopEvent,
    MessageDelta,
    MessageEnded,
    MessageStarted,
    Notice,
    Remembered,
    ToolDelta,
    ToolEnded,
    ToolStarted,
)
from perdure.store import Receipt
from perdure.view import interrupted_result

MOST_REMEMBERED_BYTES = 2 * 1024
"""How much of JSON a loop may have remembered under one key."""

_CUT_OFF = "the call was cut off before it gave a result; it may have had effects"
_NOT_MADE = "the call waited for an approval, and was not made"

Emit = Callable[[RunEvent], Awaitable[None]]


class Journal(Protocol):
    """What a run needs of whoever owns the transcript."""

    @property
    def leaf_id(self) -> str | None:
        """Where the next tree entry grows from."""

    async def append(self, drafts: Sequence[Draft]) -> Receipt:
        """Stores the drafts in one batch, tree entries as a chain from the leaf, and advances.

        Whoever calls it wraps it in `complete`, with what follows from it.
        """
        ...


class _Making:
    """A message in the making: the id of the entry to come and the text shown so far."""

    def __init__(self) -> None:
        self.message_id = clock.new_id()
        self._parts: dict[int, tuple[str, list[str]]] = {}
        self._sizes: dict[int, int] = {}

    def add(self, part: int, kind: str, text: str) -> int:
        """Adds text to a part; returns the offset where it begins, in code points."""
        offset = self._sizes.get(part, 0)
        self._sizes[part] = offset + len(text)
        self._parts.setdefault(part, (kind, []))[1].append(text)
        return offset

    def parts(self) -> tuple[Part, ...]:
        """What was shown, as parts."""
        made = ((kind, "".join(pieces)) for _, (kind, pieces) in sorted(self._parts.items()))
        return tuple(
            Reasoning(text) if kind == "reasoning" else Text(text) for kind, text in made if text
        )


class _Call:
    """A stored call without a result; `waits` once it was left to somebody's approval."""

    def __init__(self, call: ToolCall) -> None:
        self.call = call
        self.making = _Making()
        self.started = False
        self.waits = False


class OpenCall(NamedTuple):
    """A call that a run finds at the leaf, and the message that made it."""

    message_id: str
    call: ToolCall


class Driver:
    """The state of one run: the message in the making and the calls in flight.

    `answered` are the calls at the leaf that waited for an approval and have their answer now.
    `waiting` are, after the run, those that it left to one.
    """

    def __init__(
        self,
        context: RunContext,
        journal: Journal,
        emit: Emit,
        *,
        answered: Sequence[OpenCall] = (),
        may_wait: bool = False,
    ) -> None:
        self._context = context
        self._journal = journal
        self._emit = emit
        self._making: _Making | None = None
        self._calls = {each.call.call_id: _Call(each.call) for each in answered}
        for each in answered:
            context.key(each.message_id, each.call.call_id)
        self._may_wait = may_wait
        self._lost: PerdureError | None = None
        self.messages: list[Message] = []
        self.waiting: list[CallWaits] = []

    @property
    def in_flight(self) -> frozenset[str]:
        """The ids of the calls that were dispatched and have no result yet."""
        return frozenset(self._calls)

    async def run(self, loop: Loop) -> list[Message]:
        """Drives the loop to its end; returns the messages it added.

        Raises:
            LoopError: the loop broke its contract. Whatever the loop raises itself comes out as
                it is. What was stored stays stored.
            AppendRejectedError: the store refused what the loop had yielded.
            StoreError: another append failed; nothing more was appended after it.
        """
        try:
            events = _events_of(loop, self._context)
            async with aclosing(events):
                async for event in events:
                    await self._take(event)
            self._check_finished()
        except BaseException as error:
            if self._lost is None:
                await complete(self._keep(_ending_of(error, self._context)))
            elif error is not self._lost:
                raise self._lost from error  # a cancellation does not hide a lost write
            raise
        return self.messages

    async def _take(self, event: LoopEvent) -> None:
        _check(event)
        match event:
            case MessageStarted():
                await self._start_message()
            case MessageDelta():
                making = self._making or await self._start_message()
                text = clean_text(event.text)
                await self._update(making, event.part, event.kind, text)
            case MessageEnded():
                await self._end_message(event)
            case ToolStarted():
                await self._start_tool(self._call(event.call_id))
            case ToolDelta():
                call = self._call(event.call_id)
                if not call.started:
                    await self._start_tool(call)
                text = clean_text(event.text)
                await self._update(call.making, 0, "output", text, event.call_id)
            case ToolEnded():
                await self._end_tool(event.result)
            case CallWaits():
                self._wait(event)
            case Remembered():
                await self._remember(event)
            case Notice():
                await self._emit(RunNotice(self._context.turn_id, clean_text(event.text)))
            case _:
                _refuse(event)

    async def _start_message(self) -> _Making:
        if self._making is not None:
            raise LoopError("the loop started a message before it ended the one before")
        if self._calls:
            raise LoopError(f"the loop started a message with calls open: {sorted(self._calls)}")
        self._making = _Making()
        await self._emit(MessageStart(self._making.message_id, "assistant"))
        return self._making

    async def _update(
        self, making: _Making, part: int, kind: Any, text: str, call_id: str | None = None
    ) -> None:
        if text:
            offset = making.add(part, kind, text)
            await self._emit(MessageUpdate(making.message_id, part, offset, text, kind, call_id))

    async def _end_message(self, event: MessageEnded) -> None:
        making = self._making or await self._start_message()
        message = Message(
            "assistant", _parts_of(event), provider=event.provider, id=making.message_id
        )
        calls = message.tool_calls
        if len({clean_text(call.call_id) for call in calls}) < len(calls):
            raise LoopError("two calls of one message have the same call_id")
        facts = [self._context.dispatch(message.id, call) for call in calls]

        def advance() -> None:
            self._making = None
            self._calls = {call.call_id: _Call(call) for call in calls}

        stored, receipt = await self._store(message, facts, advance)
        await self._emit(MessageEnd(stored, receipt, stored.id))

    def _call(self, call_id: str) -> _Call:
        try:
            return self._calls[call_id]
        except KeyError:
            raise LoopError(f"the loop spoke of call {call_id!r}, which is not open") from None

    async def _start_tool(self, call: _Call) -> None:
        if call.started or call.waits:
            did = "started call {!r} twice" if call.started else "started call {!r}, which waits"
            raise LoopError("the loop " + did.format(call.call.call_id))
        call.started = True
        what = call.call
        await self._emit(ToolStart(what.call_id, what.name, what.arguments, call.making.message_id))

    async def _remember(self, event: Remembered) -> None:
        size = len(encode(event.value))
        if size > MOST_REMEMBERED_BYTES:
            raise LoopError(
                f"the loop wants {size} bytes remembered for {event.key!r}; "
                f"{MOST_REMEMBERED_BYTES} are the most"
            )
        await complete(self._append([LoopRemembered(key=event.key, value=event.value)]))

    def _wait(self, event: CallWaits) -> None:
        call = self._call(event.call_id)
        if not self._may_wait:
            raise LoopError("a call cannot wait here: there is nobody who could approve it")
        if call.started or call.waits:
            raise LoopError(f"call {event.call_id!r} has started, or waits already")
        call.waits = True
        self.waiting.append(replace(event, call_id=clean_text(event.call_id)))  # as it is stored

    async def _end_tool(self, result: ToolResult) -> None:
        call = self._call(result.call_id)
        if not call.started:
            await self._start_tool(call)

        def advance() -> None:
            del self._calls[result.call_id]

        message = Message("tool", (result,), id=call.making.message_id)
        try:
            stored, receipt = await self._store(message, (), advance)
        except AppendRejectedError as error:  # it fails that one call, and nothing else
            told = Text(f"the tool ended, but its result cannot be stored: {error}")
            refused = ToolResult(result.call_id, (told,), name=call.call.name, is_error=True)
            stored, receipt = await self._store(replace(message, parts=(refused,)), (), advance)
        await self._emit(ToolEnd(stored.tool_results[0], receipt, stored.id))
        key = self._context.idempotency_key(result.call_id)
        await self._context.around.called(call.call, stored.tool_results[0], key)

    async def _store(
        self, message: Message, facts: Sequence[Draft], advance: Callable[[], None]
    ) -> tuple[Message, Receipt]:
        """Appends and advances, in one step that a cancellation cannot split."""

        def then(append: asyncio.Future[Receipt]) -> tuple[Message, Receipt]:
            receipt = append.result()
            advance()
            stored = receipt.entries[0].view
            assert isinstance(stored, Message)
            self.messages.append(stored)
            return stored, receipt

        return await complete(self._append([message, *facts]), then)

    async def _append(self, drafts: Sequence[Draft]) -> Receipt:
        try:
            return await self._journal.append(drafts)
        except AppendRejectedError:
            raise  # the session is well: what is left of the run can still be kept
        except PerdureError as error:
            self._lost = error
            raise

    def _check_finished(self) -> None:
        if self._making is not None:
            raise LoopError("the loop ended in the middle of a message")
        if left := sorted(call_id for call_id, call in self._calls.items() if not call.waits):
            raise LoopError(f"the loop ended with calls open: {left}")

    async def _keep(self, ending: Ending) -> None:
        """Makes durable what an unfinished run leaves: the text shown, and its calls' ends."""
        drafts: list[Draft] = []
        if self._making is not None and (parts := self._making.parts()):
            drafts.append(Message("assistant", parts, end=ending, id=self._making.message_id))
        for call in self._calls.values():
            why = f"{ending}: {_NOT_MADE if call.waits else _CUT_OFF}"
            shown = "".join(part.text for part in call.making.parts() if isinstance(part, Text))
            result = interrupted_result(call.call, f"{shown}\n[{why}]" if shown else why)
            drafts.append(Message("tool", (result,), id=call.making.message_id))
        self._making, self._calls = None, {}
        self.waiting.clear()
        if drafts:
            receipt = await self._append(drafts)
            self.messages.extend(
                view for stored in receipt.entries if isinstance(view := stored.view, Message)
            )


def _ending_of(error: BaseException, context: RunContext) -> Ending:
    if isinstance(error, asyncio.CancelledError):
        return context.ending
    return "interrupted" if isinstance(error, RuntimeLostError) else "failed"


def _events_of(loop: Loop, context: RunContext) -> AsyncGenerator[LoopEvent, None]:
    events: object = loop(context)
    if isinstance(events, AsyncGenerator):
        return events
    if isinstance(events, Coroutine):
        events.close()
    raise LoopError(f"a loop is an async generator of loop events, not {type(events).__name__}")


def _check(event: Any) -> None:
    """Holds an event against its types before any of it counts: a loop may be anybody's code."""
    match event:
        case MessageDelta():
            is_sound = (
                isinstance(event.text, str)
                and isinstance(event.part, int)
                and event.kind in ("text", "reasoning")
            )
        case ToolDelta() | Notice():
            is_sound = isinstance(event.text, str)
        case CallWaits():
            is_sound = isinstance(event.reason, str | None)
        case Remembered():
            is_sound = isinstance(event.key, str)
        case ToolEnded():
            is_sound = isinstance(event.result, ToolResult)
        case _:
            is_sound = True
    if not is_sound:
        raise LoopError(f"the loop yielded a {type(event).__name__} with a field of a wrong type")


def _parts_of(event: MessageEnded) -> tuple[Part, ...]:
    try:
        parts = tuple(event.parts)
    except TypeError:
        kind = type(event.parts).__name__
        raise LoopError(f"the parts of a message are a sequence, not {kind}") from None
    for part in parts:
        if isinstance(part, ToolCall) and not isinstance(part.call_id, str):
            raise LoopError(f"a call_id is a string, not {type(part.call_id).__name__}")
    return parts


def _refuse(event: Never) -> NoReturn:
    raise LoopError(f"the loop yielded {type(event).__name__}, which is no loop event")


async def summarise(loop: Loop, context: RunContext) -> str:
    """The text of one throw-away run of a loop; nothing of it is stored.

    Raises:
        LoopError: the loop called a tool, or answered nothing.
    """
    answer: list[str] = []
    events = _events_of(loop, context)
    async with aclosing(events):
        async for event in events:
            if not isinstance(event, MessageEnded):
                continue
            if any(isinstance(part, ToolCall) for part in event.parts):
                raise LoopError("the loop called a tool while it was asked for a summary")
            answer += [part.text for part in event.parts if isinstance(part, Text)]
    if not (summary := "".join(answer).strip()):
        raise LoopError("the loop gave an empty summary; give one with summary=…")
    return summary
