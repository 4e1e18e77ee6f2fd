"""A loop that does everything a crash could cut: deltas, reasoning, parallel tools, failures."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator
from contextlib import aclosing

from perdure.entry import Part, Reasoning, Text, ToolCall, ToolResult
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

WORDS = ("lorem", "ipsum ", "dolor\n", "sit ", "🧭", "é", "\u2028", "\x00", '"q" ', "data: x\r\n")


def chaos() -> Loop:
    """A loop factory; what the loop does follows from the id of its turn."""
    return _chaos


async def _chaos(context: LoopContext) -> AsyncGenerator[LoopEvent, None]:
    dice = random.Random(context.turn_id)
    if context.purpose == "summary":
        yield MessageEnded((Text(f"summary of {len(await context.messages())} messages"),))
        return
    for step in range(dice.randint(1, 3)):
        yield MessageStarted()
        parts: list[Part] = []
        if dice.random() < 0.4:
            reasoning = "".join(dice.choices(WORDS, k=4))
            yield MessageDelta(reasoning, part=0, kind="reasoning")
            parts.append(Reasoning(reasoning, provider={"signature": f"s{step}"}))
        words = dice.choices(WORDS, k=dice.randint(1, 8))
        for word in words:
            await asyncio.sleep(dice.random() * 0.004)
            yield MessageDelta(word, part=len(parts))
        parts.append(Text("".join(words)))
        calls = [
            ToolCall(f"call-{step}-{n}", dice.choice(("read", "run")), {"n": n})
            for n in range(dice.randint(0, 3))
        ]
        yield MessageEnded([*parts, *calls], provider={"step": step})
        async with aclosing(_run_tools(calls, dice)) as tools:
            async for event in tools:
                yield event
        if dice.random() < 0.05:
            raise RuntimeError("the provider went away")


async def _run_tools(calls: list[ToolCall], dice: random.Random) -> AsyncGenerator[LoopEvent, None]:
    queue: asyncio.Queue[LoopEvent] = asyncio.Queue()

    async def tool(call: ToolCall, delay_s: float, fails: bool) -> None:
        await queue.put(ToolStarted(call.call_id))
        for n in range(3):
            await asyncio.sleep(delay_s)
            await queue.put(ToolDelta(call.call_id, f"line {n}\n"))
        text = "line 0\nline 1\nline 2\n"
        await queue.put(
            ToolEnded(ToolResult(call.call_id, (Text(text),), name=call.name, is_error=fails))
        )

    tasks = [
        asyncio.create_task(tool(call, dice.random() * 0.003, dice.random() < 0.2))
        for call in calls
    ]
    try:
        ended = 0
        while ended < len(calls):
            event = await queue.get()
            ended += isinstance(event, ToolEnded)
            yield event
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
