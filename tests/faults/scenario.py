"""What a store is put through: every verb that writes, each retried until it holds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import perdure
from perdure.codec import Entry
from perdure.entry import Message, Text
from perdure.errors import (
    AppendUncertainError,
    SessionExistsError,
    SessionNotFoundError,
    StoreUnavailableError,
)
from perdure.testing.store_cases import MADE_AT, messages
from tests.faults.record import Asked, Recorder

TRIES = 6
FAILURES = (AppendUncertainError, StoreUnavailableError)

Scenario = Callable[[Recorder], Awaitable[None]]


async def append(store: Recorder, session_id: str, batch: Sequence[Entry]) -> None:
    """Appends the batch; tries again as the errors say: the same ids."""
    for _ in range(TRIES):
        try:
            await store.append_entries(session_id, batch)
        except FAILURES:
            continue
        return
    raise AssertionError("an append failed again and again for one fault")


async def create(store: Recorder, session_id: str, entries: Sequence[Entry] = ()) -> None:
    """Creates the session; one that exists after an uncertain answer is the one asked for."""
    asked = Asked(session_id, tuple(entries), creates=True)
    for _ in range(TRIES):
        try:
            await store.create_session(session_id, entries=entries)
        except FAILURES:
            continue
        except SessionExistsError:
            store.note("ask", asked)
            store.note("ack", asked)
        return
    raise AssertionError("a creation failed again and again for one fault")


async def verbs(store: Recorder) -> None:
    """Create, append one and many, fork, append to both, two appends at once."""
    await create(store, "s")
    await append(store, "s", messages(1, "one"))
    await append(store, "s", messages(3, "many"))
    await create(store, "f", messages(2, "kept"))
    await append(store, "f", messages(1, "fork"))
    await append(store, "s", messages(2, "more"))


async def deletion(store: Recorder) -> None:
    """A session is deleted, and made anew under the same id."""
    await create(store, "d", messages(3, "old"))
    await append(store, "d", messages(9, "gone"))
    for _ in range(TRIES):
        try:
            await store.delete_session("d")
        except FAILURES:
            continue
        except SessionNotFoundError:
            store.note("delete", Asked("d", (), creates=False))
        break
    await create(store, "d", messages(1, "new"))
    await append(store, "d", messages(2, "again"))


async def together(store: Recorder) -> None:
    """Appends of several tasks to two sessions, some of which share a sync."""
    for session_id in ("a", "b"):
        await create(store, session_id)
    for n in range(2):
        await asyncio.gather(
            *(append(store, name, messages(2, f"{name}{n}_")) for name in ("a", "b"))
        )


async def agent(store: Recorder) -> None:
    """A durable agent that appends, compacts and forks."""

    async def with_agent(verb: Callable[[perdure.DurableAgent], Awaitable[object]]) -> None:
        for _ in range(TRIES):
            try:
                async with await perdure.open("s", None, store=store) as agent:
                    await verb(agent)
            except (*FAILURES, SessionNotFoundError):
                continue
            return
        raise AssertionError("the agent failed again and again for one fault")

    async def say(agent: perdure.DurableAgent, *contents: str) -> None:
        there = {entry.id for entry in agent.entries()}
        await agent.append(
            *(
                Message("user", (Text(content),), id=content, created_at=MADE_AT)
                for content in contents
                if content not in there
            )
        )

    async def compact(agent: perdure.DurableAgent) -> None:
        if not any(entry.type == "compaction" for entry in agent.entries()):
            await agent.compact(keep_turns=1, summary="they talked")

    async def fork(agent: perdure.DurableAgent) -> None:
        try:
            child = await agent.fork("f")
        except SessionExistsError:
            return
        await child.close()

    await with_agent(lambda agent: say(agent, "first", "second"))
    await with_agent(lambda agent: say(agent, "third"))
    await with_agent(compact)
    await with_agent(fork)
    await with_agent(lambda agent: say(agent, "last"))
