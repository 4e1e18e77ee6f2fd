"""Agents in a test: opened on a memory store, and running for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import perdure
from perdure import DurableAgent, Message, Text, ToolCall, ToolResult
from perdure.codec import Draft
from perdure.loop import MessageDelta
from perdure.stores.memory import MemoryStore
from tests.unit.looping import SlowStore, factory


@perdure.custom("test.note")
@dataclass
class Note:
    said: str
    stars: int = 0


async def opened(
    loop: Callable[[], Any] | None = None, publisher: Any = None
) -> tuple[DurableAgent, MemoryStore]:
    store = SlowStore()
    return await perdure.open("s", loop, store=store, publisher=publisher), store


def forever() -> Callable[[], Any]:
    """Loops that show half a message and wait."""
    return factory(MessageDelta("half"), asyncio.Event().wait)


async def started(agent: DurableAgent, *entries: Draft) -> tuple[perdure.Run, Any]:
    """A run that has begun to speak, and its iterator."""
    run = agent.run(*entries)
    events = aiter(run)
    async for event in events:
        if event.type == "message_update":
            break
    return run, events


async def conversation(agent: DurableAgent, turns: int) -> None:
    for n in range(turns):
        call = Message("assistant", (ToolCall(f"c{n}", "t"),))
        found = Message("tool", (ToolResult(f"c{n}", (Text(f"r{n}"),)),))
        await agent.append(f"q{n}", call, found, Message("assistant", (Text(f"a{n}"),)))
