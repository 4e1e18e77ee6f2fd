"""Calls run side by side: each result comes as soon as its tool ends, whatever the others do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from functools import partial

from perdure.entry import Json, ToolCall, ToolResult
from perdure.errors import PerdureError, RuntimeLostError
from perdure.loop import (
    Allowed,
    CallWaits,
    LoopContext,
    LoopEvent,
    Refused,
    ToolDelta,
    ToolEnded,
    ToolStarted,
    Waits,
)
from perdure.loops.deadline import Deadline
from perdure.loops.permission import refused_result, verdict_of
from perdure.loops.tool import checked_output, failed_result

Show = Callable[[str], object]
RunCall = Callable[[ToolCall, Json, Show], Awaitable[ToolResult]]
"""Runs the tool of a permitted call with these arguments; whatever goes wrong in it is a result."""

Events = asyncio.Queue[LoopEvent | BaseException]


async def run_batch(
    calls: Sequence[ToolCall], run: RunCall, context: LoopContext, deadline: Deadline
) -> AsyncGenerator[LoopEvent, None]:
    """Runs those calls that may, and gives their events; leaving it ends their tools.

    Raises:
        RuntimeLostError: the runtime of one was lost; the others are ended.
        LoopError: the deadline is over; all that still ran are ended.

    """
    events: Events = asyncio.Queue()
    tasks = [asyncio.create_task(_run_one(call, run, context, events)) for call in calls]
    for call, task in zip(calls, tasks, strict=True):
        task.add_done_callback(partial(_report, call, events))
    try:
        running = len(tasks)
        while running:
            event = await deadline.meet(events.get())
            if isinstance(event, BaseException):
                raise event
            running -= isinstance(event, ToolEnded | CallWaits)
            yield event
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _report(call: ToolCall, events: Events, task: asyncio.Task[None]) -> None:
    """A task that did not end well gives no event of its own; nobody shall wait for one."""
    if task.cancelled():  # where the batch did it, nobody listens any more
        events.put_nowait(ToolEnded(failed_result(call, "the tool cancelled itself")))
    elif (error := task.exception()) is not None:
        events.put_nowait(error)


async def _run_one(call: ToolCall, run: RunCall, context: LoopContext, events: Events) -> None:
    loop = asyncio.get_running_loop()
    has_ended = False

    def add(text: str) -> None:
        if not has_ended:  # what a tool shows later is of no call that is open
            events.put_nowait(ToolDelta(call.call_id, text))

    def show(text: str) -> None:
        loop.call_soon_threadsafe(add, checked_output(text))

    def end(last: LoopEvent) -> None:
        nonlocal has_ended
        has_ended = True
        events.put_nowait(last)

    last: LoopEvent
    try:
        match await verdict_of(context, call):
            case Waits(reason=reason, arguments=changed):
                last = CallWaits(call.call_id, reason, changed)
            case Refused(reason=reason):
                last = ToolEnded(refused_result(call, reason))
            case Allowed(arguments=arguments):
                events.put_nowait(ToolStarted(call.call_id))
                last = ToolEnded(await run(call, arguments, show))
    except RuntimeLostError:
        raise
    except PerdureError as error:  # a hook or the store; the run says which
        last = ToolEnded(failed_result(call, str(error)))
    loop.call_soon_threadsafe(end, last)  # after what it has shown
