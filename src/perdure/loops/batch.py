"""Calls run side by side: each result comes as soon as its tool ends, whatever the others do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

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
from perdure.loops.tool import failed_result

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
    for task in tasks:
        task.add_done_callback(lambda done: _report(done, events))
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


def _report(task: asyncio.Task[None], events: Events) -> None:
    """A task that failed gives no event of its own; nobody shall wait for one."""
    if not task.cancelled() and (error := task.exception()) is not None:
        events.put_nowait(error)


async def _run_one(call: ToolCall, run: RunCall, context: LoopContext, events: Events) -> None:
    loop = asyncio.get_running_loop()

    def show(text: str) -> None:
        loop.call_soon_threadsafe(events.put_nowait, ToolDelta(call.call_id, text))

    last: LoopEvent
    try:
        match await verdict_of(context, call):
            case Waits(reason=reason, arguments=changed):
                last = CallWaits(call.call_id, reason, changed)
            case Refused(reason=reason):
                last = ToolEnded(refused_result(call, reason))
            case Allowed(arguments=arguments):
                events.put_nowait(ToolStarted(call.call_id))
                last = ToolEnded(await _result(call, arguments, run, show))
    except RuntimeLostError:
        raise
    except PerdureError as error:  # a hook or the store; the run says which
        last = ToolEnded(failed_result(call, str(error)))
    loop.call_soon_threadsafe(events.put_nowait, last)  # after what it has shown


async def _result(call: ToolCall, arguments: Json, run: RunCall, show: Show) -> ToolResult:
    try:
        return await run(call, arguments, show)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        return failed_result(call, "the tool cancelled itself")
