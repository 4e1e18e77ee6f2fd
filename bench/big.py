"""How often is a tool result of 16 MB in memory while it is stored, read, streamed and exported?

The highest amount of memory that Python held on top of what it held before (tracemalloc), in units
of the entry's JSON; and what each further reader adds to it: the one copy that it reads, or less.
"""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import Awaitable, Callable
from pathlib import Path

import perdure
from bench import report
from bench.reference import CONTENT
from perdure.interchange import export_session, write_export
from perdure.server.feed.cursor import Cursor
from perdure.server.feed.feed import Feed
from perdure.server.feed.viewer import Viewer
from perdure.server.feed.wire import EntryWriter
from perdure.server.session.look import SessionLook
from perdure.server.session.registry import Registry
from perdure.stores.sqlite import SqliteStore

SIZE = 16_000_000
READERS = 8


class Loops:
    """No loop is needed to look."""

    default = "none"

    async def prepare(self, name: str) -> None:
        raise perdure.NoLoopError(name)

    def factory(self, name: str) -> perdure.LoopFactory:
        raise perdure.NoLoopError(name)


async def peak_of(step: Callable[[], Awaitable[object]]) -> int:
    """Bytes that were held at the highest point of it, on top of those before."""
    gc.collect()
    before, _ = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    await step()
    return tracemalloc.get_traced_memory()[1] - before


def result_message() -> perdure.Message:
    line = "x" * 79 + "\n"
    part = perdure.ToolResult("call", (perdure.Text(line * (SIZE // len(line))),))
    return perdure.Message("tool", (part,))


class Readers:
    """Several at once that all do the same with the store."""

    def __init__(self, store: SqliteStore, registry: Registry, feed: Feed) -> None:
        self._store, self._registry, self._feed = store, registry, feed
        self._writer = EntryWriter("s")

    async def page(self) -> None:
        page = await self._store.page_entries("s", limit=50)
        frames = [self._writer.elided(stored) for stored in page.entries]
        assert len(frames) == page.last_seq

    async def whole(self) -> None:
        entry = await self._store.load_entry("s", self.seq)
        assert len(self._writer.whole(entry)) > SIZE

    async def catch_up(self) -> None:
        async def look(session_id: str) -> SessionLook:
            return await self._registry.look(session_id)

        viewer: Viewer = await self._feed.watch(
            [("s", Cursor(0))], look=look, partials=lambda _: ()
        )
        seen = b""
        while b'"seq":%d,' % self.last_seq not in seen:
            data = await viewer.next()
            assert data is not None
            seen += data
        self._feed.leave(viewer)

    async def export(self, place: Path) -> None:
        await write_export(await export_session(self._store, "s"), place)

    seq = 0
    last_seq = 0


async def at_once(step: Callable[[], Awaitable[None]], number: int) -> None:
    await asyncio.gather(*(step() for _ in range(number)))


async def store_by_agent(store: SqliteStore, readers: Readers) -> int:
    """The peak of an agent that stores the result; nothing of it is held afterwards."""
    agent = await perdure.open("s", store=store)
    for _ in range(20):
        await agent.append(perdure.text(CONTENT))
    message = result_message()
    peak = await peak_of(lambda: agent.append(message))
    readers.seq = agent.entries()[-1].seq
    await agent.append(perdure.text(CONTENT))
    readers.last_seq = agent.entries()[-1].seq
    await agent.close()
    return peak


async def measure(folder: Path, rounds: int) -> report.Measured:
    figures: list[report.Figure] = []

    def add(case: str, peak: float, bound: float | None = None) -> None:
        copies = peak / SIZE
        figures.append(
            report.Figure(case, peak / 1e6, "MB", "the entry", SIZE / 1e6, copies, at_most=bound)
        )

    async with SqliteStore(folder / "store.db") as store:
        feed = Feed(store)
        registry = Registry(store, Loops(), feed)
        readers = Readers(store, registry, feed)
        tracemalloc.start()
        add("stored by an agent", await store_by_agent(store, readers), 4)
        for case, step, bound in (
            ("a page with it", readers.page, 1.1),
            ("it alone, whole", readers.whole, 2.0),
            ("a stream from the start", readers.catch_up, 1.1),
        ):
            one = await peak_of(lambda step=step: at_once(step, 1))  # type: ignore[misc]
            several = await peak_of(lambda step=step: at_once(step, READERS))  # type: ignore[misc]
            add(f"{case}: one reader", one)
            add(f"{case}: each further one", max(several - one, 0) / (READERS - 1), bound)
        add("exported to a file", await peak_of(lambda: readers.export(folder / "out.jsonl")), 4)
        gc.collect()
        add("held afterwards", tracemalloc.get_traced_memory()[0], 0.5)
        tracemalloc.stop()
        await registry.close()
        await feed.close()
    return figures, ["one run: amounts of memory hardly vary"]


if __name__ == "__main__":
    report.run("big", __doc__ or "", measure)
