"""What does a page of history cost, in a session of 100, of 100,000 and of 1,000,000 entries?

A server's process on one SQLite file, asked over one connection for 50 entries, in turns: the
newest of the journal, and of the transcript, and pages from the middle of both. The time of a page
of the long one is held against that of the short one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from bench import report
from bench.node import Client, Node
from bench.reference import Series
from bench.report import Figure, Measured
from bench.waking import fill
from perdure.stores.sqlite import SqliteStore

LENGTHS = {
    "short": 100,
    "long": 100_000,
    "longest": int(os.environ.get("HISTORY_ENTRIES", "1000000")),
}
PAGE = 50
PAGES_A_ROUND = 10
MOST = 1.5


def page_ms(client: Client, address: str) -> float:
    """Milliseconds a page, in the middle of some."""
    start = time.perf_counter()
    for _ in range(PAGES_A_ROUND):
        client.ask("GET", address)
    return (time.perf_counter() - start) / PAGES_A_ROUND * 1e3


async def addresses(store: SqliteStore, session_id: str, length: int) -> Sequence[str]:
    """Of the four pages."""
    middle = await store.load_entry(session_id, length // 2 + PAGE)
    base = f"/v1/sessions/{session_id}"
    return [
        f"{base}/entries?limit={PAGE}",
        f"{base}/entries?limit={PAGE}&before={middle.seq}",
        f"{base}/transcript?limit={PAGE}",
        f"{base}/transcript?limit={PAGE}&before={middle.id}",
    ]


PAGES = (
    "the newest of the journal",
    "the middle of the journal",
    "the newest of the transcript",
    "the middle of the transcript",
)


async def measure(folder: Path, rounds: int) -> Measured:
    """All pages of all sessions in turns."""
    file = folder / "sessions.db"
    asked: dict[str, Sequence[str]] = {}
    async with SqliteStore(file, synchronous="off") as store:
        for name, length in LENGTHS.items():
            await fill(store, name, length)
            asked[name] = await addresses(store, name, length)
    with Node(file) as node:
        client = Client(node.port)
        start = time.perf_counter()
        client.ask("GET", "/v1/sessions/longest")
        first = time.perf_counter() - start
        for each in asked.values():
            for address in each:
                client.ask("GET", address)
        series = {name: [Series() for _ in PAGES] for name in ("long", "longest")}
        for _ in range(rounds):
            for number in range(len(PAGES)):
                short = page_ms(client, asked["short"][number])
                for name, found in series.items():
                    found[number].add(page_ms(client, asked[name][number]), short)
        client.close()
    figures = [
        Figure(
            f"{what}, {LENGTHS[name]:,} entries",
            found[number].medians[0],
            "ms",
            f"{LENGTHS['short']} entries",
            found[number].medians[1],
            found[number].ratio,
            at_most=MOST,
        )
        for number, what in enumerate(PAGES)
        for name, found in series.items()
    ]
    return figures, [f"the first look at the longest, which no server ever had: {first:.1f} s"]


if __name__ == "__main__":
    assert __doc__ is not None
    report.run("history", __doc__, measure)
