"""How do other libraries that keep conversations or events compare on the same work?

Durable appends of a message of 1 KiB of content, to SQLite files of their own with the settings
that each has by default, in turns with agents of Perdure on SQLite: one session that is new, one
with 1,000 messages, and 64 sessions at once. A peer that is not installed is left out:
`pip install -r bench/requirements-peers.txt`.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import perdure
from bench import report
from bench.reference import CONTENT, MANY, Append, Series, rate

SLICE_S = 0.25
HISTORY = 1_000
INSTALL = "pip install -r bench/requirements-peers.txt"


class Peer(Protocol):
    """Makes sessions with a history; each is an append of the next message."""

    async def session(self, session_id: str, history: int) -> Append: ...

    async def close(self) -> None: ...


class Perdure:
    """An agent for each session."""

    def __init__(self, place: Path) -> None:
        self._store = perdure.open_store(f"sqlite:///{place}")

    async def session(self, session_id: str, history: int) -> Append:
        agent = await perdure.open(session_id, store=self._store)
        if history:
            await agent.append(*(perdure.text(CONTENT) for _ in range(history)))
        return lambda: agent.append(perdure.text(CONTENT))

    async def close(self) -> None:
        await self._store.close()


class OpenAIAgents:
    """`SQLiteSession`: a row for each item."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._sessions: list[Any] = []

    async def session(self, session_id: str, history: int) -> Append:
        from agents import SQLiteSession

        session = SQLiteSession(session_id, self._place)
        self._sessions.append(session)
        item: Any = {"role": "user", "content": CONTENT}
        if history:
            await session.add_items([item] * history)
        return lambda: session.add_items([item])

    async def close(self) -> None:
        for session in self._sessions:
            session.close()


class EventSourcing:
    """An aggregate for each session, an event for each message."""

    def __init__(self, place: Path) -> None:
        from eventsourcing.application import Application

        self._application: Any = Application(
            env={"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": str(place)}
        )

    async def session(self, session_id: str, history: int) -> Append:
        aggregate_class, added = _aggregate_and_event()
        aggregate = aggregate_class()

        def append(number: int = 1) -> None:
            for _ in range(number):
                aggregate.trigger_event(added, content=CONTENT)
            self._application.save(aggregate)

        append(history)
        return lambda: asyncio.to_thread(append)

    async def close(self) -> None:
        self._application.close()


@cache
def _aggregate_and_event() -> tuple[Any, Any]:
    from eventsourcing.domain import Aggregate

    class Added(Aggregate.Event):
        content: str

        def apply(self, aggregate: Any) -> None:
            pass

    return Aggregate, Added


class LangGraph:
    """`SqliteSaver`: a checkpoint of the whole conversation for each message."""

    def __init__(self, place: Path) -> None:
        from langgraph.checkpoint.sqlite import SqliteSaver

        self._context: Any = SqliteSaver.from_conn_string(str(place))
        self._saver = self._context.__enter__()

    async def session(self, session_id: str, history: int) -> Append:
        from langgraph.checkpoint.base import empty_checkpoint

        messages = [{"role": "user", "content": CONTENT}] * history
        config: Any = {"configurable": {"thread_id": session_id, "checkpoint_ns": ""}}

        def append() -> None:
            nonlocal config
            messages.append({"role": "user", "content": CONTENT})
            checkpoint: Any = empty_checkpoint()
            checkpoint["channel_values"] = {"messages": list(messages)}
            checkpoint["channel_versions"] = {"messages": len(messages)}
            metadata: Any = {"source": "loop", "step": len(messages), "parents": {}}
            config = self._saver.put(config, checkpoint, metadata, checkpoint["channel_versions"])

        return lambda: asyncio.to_thread(append)

    async def close(self) -> None:
        self._context.__exit__(None, None, None)


PEERS: dict[str, tuple[str, Callable[[Path], Peer]]] = {
    "OpenAI Agents, SQLiteSession": ("agents", OpenAIAgents),
    "eventsourcing, SQLite": ("eventsourcing", EventSourcing),
    "LangGraph, SqliteSaver": ("langgraph.checkpoint.sqlite", LangGraph),
}
CASES = {
    "1 session, new": (1, 0),
    "1 session, 1,000 messages": (1, HISTORY),
    "64 at once": (MANY, 0),
}


def is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


async def measure(folder: Path, rounds: int) -> report.Measured:
    found = {name: make for name, (module, make) in PEERS.items() if is_installed(module)}
    notes = [f"not installed: {name} ({INSTALL})" for name in PEERS if name not in found]
    if not found:
        return [], notes
    figures: list[report.Figure] = []
    for number, (case, (sessions, history)) in enumerate(CASES.items()):
        async with AsyncExitStack() as stack:
            appends: dict[str, list[Append]] = {}
            for n, (name, make) in enumerate({"Perdure": Perdure, **found}.items()):
                peer = make(folder / f"{number}-{n}.db")
                stack.push_async_callback(peer.close)
                appends[name] = [await peer.session(f"s-{k}", history) for k in range(sessions)]
            series = {name: Series() for name in found}
            best: list[float] = []
            for _ in range(rounds):
                ours = await rate(appends["Perdure"], SLICE_S)
                theirs = {name: await rate(appends[name], SLICE_S) for name in found}
                ours = (ours + await rate(appends["Perdure"], SLICE_S)) / 2
                for name, each in theirs.items():
                    series[name].add(each, ours)
                best.append(ours / max(theirs.values()))
            figures += [
                report.Figure(f"{case}: {name}", *_of(each)) for name, each in series.items()
            ]
            ours = statistics.median(next(iter(series.values())).limits)
            ratio = statistics.median(best)
            bound = 5.0 if sessions > 1 else None
            figures.append(
                report.Figure(
                    f"{case}: Perdure", ours, "/s", "the best of them", ours / ratio, ratio, bound
                )
            )
    return figures, notes


def _of(series: Series) -> tuple[float, str, str, float, float]:
    theirs, ours = series.medians
    return theirs, "/s", "Perdure, SQLite", ours, series.ratio


if __name__ == "__main__":
    report.run("peers", __doc__ or "", measure)
