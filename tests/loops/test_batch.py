"""Calls side by side, whose tools do what tools should not: the run goes on all the same."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Any

import pydantic_ai  # noqa: F401 - it takes seconds: not while a test is timed
import pytest

import perdure
from perdure.entry import Json, Text, ToolCall, ToolResult
from perdure.events import MessageUpdate
from perdure.loop import Loop, LoopContext, LoopEvent, MessageEnded, ToolEnded
from perdure.loops import ToolContext
from perdure.loops.batch import Show, run_batch
from perdure.loops.bridge import Bridge, bridged
from perdure.loops.deadline import Deadline
from perdure.loops.tool import MAX_HANGING, Tool

PATIENCE_S = 10.0


def calling(*functions: Callable[..., Any]) -> Callable[[], Loop]:
    """A loop that calls each of these tools once, in one message."""
    tools = {tool.name: tool for tool in map(Tool, functions)}
    calls = [ToolCall(name, name, {}) for name in tools]

    async def run(call: ToolCall, arguments: Json, show: Show) -> ToolResult:
        context = ToolContext("s", "t", call.call_id, "key", show)
        is_error, parts = await tools[call.name].run(call, context)
        return ToolResult(call.call_id, tuple(parts), name=call.name, is_error=is_error)

    async def loop(context: LoopContext) -> AsyncGenerator[LoopEvent, None]:
        yield MessageEnded(calls)
        async with aclosing(run_batch(calls, run, context, Deadline(None))) as events:
            async for event in events:
                yield event

    return lambda: loop


async def results(factory: Callable[[], Loop]) -> dict[str, str]:
    async with asyncio.timeout(PATIENCE_S), await perdure.open("s", factory) as agent:
        messages = await agent.run("go")
    return {result.call_id: result.text for message in messages for result in message.tool_results}


def shows_late(context: ToolContext) -> str:
    threading.Timer(0.05, context.show, ["too late"]).start()
    return "done"


async def is_slow() -> str:
    await asyncio.sleep(0.3)
    return "slow"


async def test_what_a_tool_shows_after_its_end_is_dropped() -> None:
    assert await results(calling(shows_late, is_slow)) == {"shows_late": "done", "is_slow": "slow"}


async def test_the_same_of_an_agent_that_speaks_through_a_bridge() -> None:
    async def agent(bridge: Bridge) -> None:
        await bridge.say(MessageEnded([ToolCall("a", "t", {}), ToolCall("b", "t", {})]))
        bridge.show("a", "in time")
        await bridge.flush()
        await bridge.say(ended("a"))
        bridge.show("a", "too late")
        bridge.show("b", "in time")
        await bridge.flush()
        await bridge.say(ended("b"))
        await bridge.say(MessageEnded([ToolCall("a", "t", {})]))
        bridge.show("a", "another call")
        await bridge.flush()
        await bridge.say(ended("a"))

    def ended(call_id: str) -> Any:
        return ToolEnded(ToolResult(call_id, (Text("done"),)))

    async def loop(context: LoopContext) -> AsyncGenerator[LoopEvent, None]:
        async with aclosing(bridged(agent)) as events:
            async for event in events:
                yield event

    async with await perdure.open("s", lambda: loop) as opened:
        events = [event async for event in opened.run("go")]
    assert [event.text for event in events if isinstance(event, MessageUpdate)] == [
        "in time",
        "in time",
        "another call",
    ]


async def cancels_itself() -> str:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)
    return "never"


async def is_cancelled() -> str:
    raise asyncio.CancelledError


@pytest.mark.parametrize("tool", [cancels_itself, is_cancelled])
async def test_a_tool_that_cancels_itself_has_a_result(tool: Callable[..., Any]) -> None:
    assert await results(calling(tool, is_slow)) == {
        tool.__name__: "the tool cancelled itself",
        "is_slow": "slow",
    }


def has_no_more() -> str:
    return next(iter(()))


async def test_a_stop_iteration_is_a_result() -> None:
    assert "StopIteration" in (await results(calling(has_no_more)))["has_no_more"]


def shows_a_number(context: ToolContext) -> str:
    context.show(5)  # type: ignore[arg-type] # a mistake of the tool's
    return "never"


async def test_what_is_no_text_cannot_be_shown_and_the_tool_hears_of_it() -> None:
    text = (await results(calling(shows_a_number)))["shows_a_number"]
    assert text == "TypeError: a tool shows text, not int"


async def test_a_function_of_which_many_calls_hang_is_not_called_again() -> None:
    free = threading.Event()

    def hangs() -> str:
        free.wait(30)
        return "at last"

    tool, call = Tool(hangs), ToolCall("c", "hangs", {})
    context = ToolContext("s", "t", "c", "key", lambda text: None)
    runs: Sequence[asyncio.Task[Any]] = [
        asyncio.create_task(tool.run(call, context)) for _ in range(MAX_HANGING)
    ]
    await asyncio.sleep(0.05)
    for run in runs:
        run.cancel()
    await asyncio.gather(*runs, return_exceptions=True)
    assert await tool.run(call, context) == (
        True,
        (Text("not run: 16 earlier calls of it still hang"),),
    )
    free.set()
    for _ in range(int(PATIENCE_S / 0.01)):
        is_error, (told,) = await tool.run(call, context)
        if not is_error:
            break
        await asyncio.sleep(0.01)
    assert told == Text("at last")
