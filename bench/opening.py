"""What does opening cost: the newest 50 of a long session, and all of it?

The newest 50 of 100,000 messages against the newest 50 of 1,000, through the store's own paging
(SQLite; JSON lines has none); the full load of 100,000 against decoding the headers of the same
bytes with msgspec, and against the least that could read them from where they are; and opening an
agent on them, which indexes the tree. Loads are measured in CPU time, which a busy machine changes
less.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import apsw
import msgspec

import perdure
from bench import report
from bench.reference import KINDS, NAMES, Series, fill, fleeting, messages, seconds_of
from perdure.stores.sqlite import SqliteStore

LENGTHS = {"short": 1_000, "long": 100_000}
PAGE = 50
PAGES_A_ROUND = 20


class Header(msgspec.Struct, gc=False):
    id: str
    type: str
    created_at: datetime
    parent_id: str | None = None


def decode_headers(lines: Sequence[bytes]) -> float:
    """Seconds of CPU to decode the header of each, and keep it."""
    decode = msgspec.json.Decoder(Header).decode
    gc.collect()
    start = time.process_time()
    kept = [decode(line) for line in lines]
    taken = time.process_time() - start
    assert len(kept) == len(lines)
    return taken


def bare_load(kind: str, place: Path) -> float:
    """Seconds of CPU to read the bytes from where they are, decode each header, and keep both.

    From SQLite in one scan of the whole table; from JSON lines with all that stands in a line.
    """
    decode = msgspec.json.Decoder(Header).decode
    gc.collect()
    start = time.process_time()
    if kind == "sqlite":
        connection = apsw.Connection(f"{place}.db", flags=apsw.SQLITE_OPEN_READONLY)
        lines = [raw for (raw,) in connection.execute("SELECT raw FROM entries ORDER BY pos")]
    else:
        lines = (place / "long.jsonl").read_bytes().splitlines()[1:]
    kept = [decode(line) for line in lines]
    taken = time.process_time() - start
    assert len(kept) >= LENGTHS["long"]
    return taken / len(kept) * LENGTHS["long"]


async def page_seconds(store: SqliteStore, name: str) -> float:
    start = time.perf_counter()
    for _ in range(PAGES_A_ROUND):
        assert len((await store.page_entries(name, limit=PAGE)).entries) == PAGE
    return (time.perf_counter() - start) / PAGES_A_ROUND


async def measure(folder: Path, rounds: int) -> report.Measured:
    entries = messages(LENGTHS["long"])
    lines = [entry.raw for entry in entries]
    for kind in KINDS:
        async with fleeting(kind, folder / kind) as store:
            for name, length in LENGTHS.items():
                await fill(store, name, entries[:length])
    del entries
    gc.collect()
    pages, figures = Series(), []
    async with fleeting("sqlite", folder / "sqlite") as store:
        assert isinstance(store, SqliteStore)
        for name in LENGTHS:
            await page_seconds(store, name)
        for _ in range(rounds):
            short = await page_seconds(store, "short")
            pages.add(await page_seconds(store, "long") * 1e3, short * 1e3)
    figures.append(
        report.Figure(
            "SQLite, newest 50 of 100,000",
            pages.medians[0],
            "ms",
            "newest 50 of 1,000",
            pages.medians[1],
            pages.ratio,
            at_most=1.5,
        )
    )
    for kind in KINDS:
        loads, agents, least = Series(), Series(), Series()
        async with fleeting(kind, folder / kind) as store:

            async def load(store: perdure.Store = store) -> object:
                entries = await store.load_entries("long")
                assert len(entries) == LENGTHS["long"]
                return entries

            async def open_agent(store: perdure.Store = store) -> object:
                agent = await perdure.open("long", store=store)
                await agent.close()
                return agent

            for _ in range(rounds):
                bare = LENGTHS["long"] / decode_headers(lines)
                loads.add(LENGTHS["long"] / await seconds_of(load), bare)
                least.add(loads.ours[-1], LENGTHS["long"] / bare_load(kind, folder / kind))
                agents.add(LENGTHS["long"] / await seconds_of(open_agent), bare)
        headers = "msgspec, headers of the same bytes"
        for what, series, of, bound in (
            ("load of 100,000", loads, headers, 0.5),
            ("load of 100,000", least, "bare reading, and headers", None),
            ("an agent on them", agents, headers, None),
        ):
            figures.append(
                report.Figure(
                    f"{NAMES[kind]}, {what}",
                    series.medians[0],
                    "/s",
                    of,
                    series.medians[1],
                    series.ratio,
                    at_least=bound,
                )
            )
    return figures, []


if __name__ == "__main__":
    report.run("opening", __doc__ or "", measure)
