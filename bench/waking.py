"""What does waking a session cost, in a long session and in one of 1,000 entries?

A registry that has just been started wakes each in turn on one SQLite file: it reads the newest
state that is kept, replays what came since, and claims the session with one durable append. Once
from the state that is stored with the newest entry, once with that taken away, from a snapshot.
The long one has 100,000 entries; `WAKING_ENTRIES=1000000` makes it longer.
"""

from __future__ import annotations

import asyncio
import os
import time
import tracemalloc
from pathlib import Path

import apsw

from bench import report
from bench.reference import Series
from bench.server import Feed, Loops
from perdure.codec import seal
from perdure.entry import text
from perdure.server.session.registry import Registry
from perdure.server.session.replay import load_state
from perdure.server.session.state import take_snapshot
from perdure.stores.sqlite import SqliteStore

LENGTHS = {"short": 1_000, "long": int(os.environ.get("WAKING_ENTRIES", "100000"))}
BATCH = 5_000
BEHIND = 500
"""How many entries came since the snapshot."""


async def fill(store: SqliteStore, session_id: str, length: int) -> None:
    """A session of one chain of short messages, as a library makes it: without any state."""
    await store.create_session(session_id)
    parent_id: str | None = None
    for first in range(0, length, BATCH):
        batch = []
        for n in range(first, min(first + BATCH, length)):
            batch.append(seal(text(f"message {n}"), parent_id))
            parent_id = batch[-1].id
        await store.append_entries(session_id, batch)


async def wake(store: SqliteStore, session_id: str) -> float:
    """Seconds until a registry that has just been started owns the session."""
    registry = Registry(store, Loops(), Feed())
    start = time.perf_counter()
    await registry.reopen(session_id)
    taken = time.perf_counter() - start
    await registry.close()
    return taken


async def keep(store: SqliteStore, session_id: str) -> None:
    """Lets a snapshot be `BEHIND` entries old, and no other be there."""
    look = await store.look(session_id)
    snapshot = take_snapshot(await load_state(store, look), look.session.incarnation)
    await store.prune_snapshots(session_id, keep=0)
    await store.put_snapshot(session_id, snapshot)
    parent_id = (await load_state(store, look)).leaf_id
    await store.append_entries(session_id, [seal(text("more"), parent_id) for _ in range(BEHIND)])


def forget(place: Path) -> None:
    """Takes away the state that is stored with the newest entries."""
    connection = apsw.Connection(str(place))
    connection.execute("UPDATE sessions SET summary = NULL")
    connection.close()


async def measure(folder: Path, rounds: int) -> report.Measured:
    place = folder / "sessions.db"
    notes = []
    async with SqliteStore(place, synchronous="off") as store:
        for name, length in LENGTHS.items():
            await fill(store, name, length)
            taken = await wake(store, name)
            notes.append(f"the first waking of all, of {length:,} entries: {taken * 1e3:,.1f} ms")
    newest, kept = Series(), Series()
    async with SqliteStore(place) as store:
        for name in LENGTHS:
            await wake(store, name)
        for _ in range(rounds):
            short = await wake(store, "short")
            newest.add(await wake(store, "long") * 1e3, short * 1e3)
        tracemalloc.start()
        await wake(store, "long")
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        notes.append(f"the most memory that waking the long one took: {peak / 1024:,.0f} KiB")
        for name in LENGTHS:
            await keep(store, name)
        for _ in range(rounds):
            await asyncio.to_thread(forget, place)
            short = await wake(store, "short")
            kept.add(await wake(store, "long") * 1e3, short * 1e3)
    figures = [
        report.Figure(
            f"waking one of {LENGTHS['long']:,}, {what}",
            series.medians[0],
            "ms",
            "one of 1,000",
            series.medians[1],
            series.ratio,
            at_most=2,
        )
        for what, series in (("from the newest state", newest), ("from a snapshot", kept))
    ]
    return figures, notes


if __name__ == "__main__":
    report.run("waking", __doc__ or "", measure)
