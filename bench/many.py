"""Does a store with 100,000 sessions cost more than one with 100, in time or in memory at rest?

Two stores of each kind, filled without durability, every session with one message. In turns: a page
of the listing (SQLite; JSON lines lists whole folders, which is O(sessions) by nature), opening an
agent on a session that was not open, and a durable append to it. Memory at rest is what Python
holds after the store was opened and has answered one question.
"""

from __future__ import annotations

import asyncio
import gc
import time
import tracemalloc
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from pathlib import Path

import perdure
from bench import report
from bench.reference import CONTENT, KINDS, NAMES, Series, fleeting, lasting, messages
from perdure.codec import Entry
from perdure.store import Store
from perdure.stores.sqlite import SqliteStore

SIZES = {"few": 100, "many": 100_000}
AT_ONCE = 500
STEPS_A_ROUND = 20
AT_MOST = 1.5


async def fill_many(store: Store, sessions: int, entries: Sequence[Entry]) -> None:
    for first in range(0, sessions, AT_ONCE):
        last = min(first + AT_ONCE, sessions)
        await asyncio.gather(
            *(store.create_session(f"session-{n}", entries=entries) for n in range(first, last))
        )


async def held_bytes(kind: str, place: Path) -> int:
    """What Python holds of a store that was opened."""
    gc.collect()
    tracemalloc.start()
    async with lasting(kind, place) as store:
        await store.load_session("session-1")
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return held


class Place:
    """One store, and sessions of it that were not touched yet."""

    def __init__(self, store: Store, sessions: int) -> None:
        self.store = store
        self.sessions = sessions
        self._next = count()

    def session_id(self) -> str:
        return f"session-{next(self._next) * 7919 % self.sessions}"

    async def list_page(self) -> None:
        assert isinstance(self.store, SqliteStore)
        assert len((await self.store.list_sessions(limit=50)).sessions) == 50

    async def open_session(self) -> None:
        async with await perdure.open(self.session_id(), store=self.store) as agent:
            assert agent.leaf_id is not None

    async def append(self) -> None:
        message = perdure.text(CONTENT)
        await self.store.append_entries(self.session_id(), [message])


async def steps(step: Callable[[], Awaitable[None]]) -> float:
    """Milliseconds a step."""
    start = time.perf_counter()
    for _ in range(STEPS_A_ROUND):
        await step()
    return (time.perf_counter() - start) / STEPS_A_ROUND * 1e3


async def measure(folder: Path, rounds: int) -> report.Measured:
    figures: list[report.Figure] = []
    entries = messages(1)
    for kind in KINDS:
        held: dict[str, int] = {}
        for name, sessions in SIZES.items():
            async with fleeting(kind, folder / f"{kind}-{name}") as store:
                await fill_many(store, sessions, entries)
            held[name] = await held_bytes(kind, folder / f"{kind}-{name}")
        series = {what: Series() for what in ("list 50", "open one", "append to one")}
        async with (
            lasting(kind, folder / f"{kind}-few") as few_store,
            lasting(kind, folder / f"{kind}-many") as many_store,
        ):
            few, many = Place(few_store, SIZES["few"]), Place(many_store, SIZES["many"])
            for each in (few, many):
                await each.open_session()
            for _ in range(rounds):
                if kind == "sqlite":
                    series["list 50"].add(await steps(many.list_page), await steps(few.list_page))
                series["open one"].add(
                    await steps(many.open_session), await steps(few.open_session)
                )
                series["append to one"].add(await steps(many.append), await steps(few.append))
        for what, found in series.items():
            if found.ours:
                figures.append(
                    report.Figure(
                        f"{NAMES[kind]}, 100,000 sessions: {what}",
                        found.medians[0],
                        "ms",
                        "the same with 100",
                        found.medians[1],
                        found.ratio,
                        at_most=AT_MOST,
                    )
                )
        more = (held["many"] - held["few"]) / (SIZES["many"] - SIZES["few"])
        figures.append(
            report.Figure(
                f"{NAMES[kind]}, memory at rest a session",
                max(more, 0),
                "B",
                "one byte",
                1,
                max(more, 0),
                at_most=1,
            )
        )
    return figures, []


if __name__ == "__main__":
    report.run("many", __doc__ or "", measure)
