"""Durable appends a second of 1 KiB messages, against the bare disk at the same moment.

    python bench/append.py [--rounds 4] [--seconds 0.2] [--folder DIR]

A case is one session or 64 at once, through a store or through agents on it, with sessions that are
new or a file that has 10,000 entries already (in the one session, or spread over the 64). Right
before each, in every round, its references: for one session a loop of write + fdatasync; for 64 as
many asyncio producers that share one write + fdatasync, and that share one commit of a bare SQLite.
Rates depend on the disk's mood: quote the ratios, which are medians over the rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from queue import SimpleQueue

import apsw

import perdure
from perdure.store import Store

CONTENT = "x" * 880
"""Makes an entry of 1 KiB."""
LINE = b"x" * 1023 + b"\n"
MANY = 64
HISTORY = 10_000

Append = Callable[[], Awaitable[object]]


def bare_rate(folder: Path, seconds: float) -> float:
    """Appends a second of one loop of write + fdatasync."""
    descriptor = os.open(folder / "bare", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        os.write(descriptor, LINE)
        os.fdatasync(descriptor)
        count += 1
    rate = count / (time.perf_counter() - start)
    os.close(descriptor)
    return rate


class Shared:
    """Producers of one event loop that share one durable write: `commit` makes a list durable."""

    def __init__(self, commit: Callable[[list[bytes]], None]) -> None:
        self._commit = commit
        self._waiting: list[tuple[bytes, asyncio.Future[None]]] = []
        self._queue: SimpleQueue[list[tuple[bytes, asyncio.Future[None]]] | None] = SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    async def append(self) -> None:
        future = self._loop.create_future()
        if not self._waiting:
            self._loop.call_soon(self._hand_over)
        self._waiting.append((LINE, future))
        await future

    def _hand_over(self) -> None:
        self._queue.put(self._waiting)
        self._waiting = []

    def _serve(self) -> None:
        while (batch := self._queue.get()) is not None:
            self._commit([line for line, _ in batch])
            self._loop.call_soon_threadsafe(self._settle, batch)

    def _settle(self, batch: list[tuple[bytes, asyncio.Future[None]]]) -> None:
        for _, future in batch:
            future.set_result(None)

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join()


def shared_file(folder: Path) -> Shared:
    descriptor = os.open(folder / "shared", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def commit(lines: list[bytes]) -> None:
        os.write(descriptor, b"".join(lines))
        os.fdatasync(descriptor)

    return Shared(commit)


def shared_sqlite(folder: Path) -> Shared:
    connection = apsw.Connection(str(folder / "shared.db"))
    for pragma in ("page_size = 8192", "journal_mode = wal", "synchronous = full"):
        connection.execute(f"PRAGMA {pragma}").fetchall()
    connection.execute("CREATE TABLE lines (pos INTEGER PRIMARY KEY, raw BLOB)")

    def commit(lines: list[bytes]) -> None:
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany("INSERT INTO lines VALUES (NULL, ?)", [(line,) for line in lines])
        connection.execute("COMMIT")

    return Shared(commit)


async def rate(appends: list[Append], seconds: float) -> float:
    """Appends a second of these producers at once."""
    start = time.perf_counter()
    end = start + seconds

    async def produce(append: Append) -> int:
        count = 0
        while time.perf_counter() < end:
            await append()
            count += 1
        return count

    counts = await asyncio.gather(*(produce(append) for append in appends))
    return sum(counts) / (time.perf_counter() - start)


class Chain:
    """Messages that each grow from the one before, as a conversation's do."""

    def __init__(self, leaf_id: str | None = None) -> None:
        self.leaf_id = leaf_id

    def next(self) -> perdure.Message:
        message = perdure.Message("user", [perdure.Text(CONTENT)], parent_id=self.leaf_id)
        self.leaf_id = message.id
        return message


async def to_store(store: Store, session_id: str, is_new: bool) -> Append:
    """Appends to the end of this session."""
    chain = Chain()
    if is_new:
        await store.create_session(session_id)
    else:
        chain.leaf_id = (await store.load_entries(session_id))[-1].id
    return lambda: store.append_entries(session_id, [chain.next()])


async def fill(store: Store, session_ids: list[str]) -> None:
    """Gives the file its history."""
    each = HISTORY // len(session_ids)
    for session_id in session_ids:
        await store.create_session(session_id)
        chain = Chain()
        for start in range(0, each, 500):
            batch = [chain.next() for _ in range(min(500, each - start))]
            await store.append_entries(session_id, batch)


class Case:
    """One way to append, over all rounds."""

    def __init__(self, url: str, through: str, sessions: int, history: int) -> None:
        self.name = f"{url.partition(':')[0]} {through}"
        self.through, self.sessions, self.history = through, sessions, history
        self.url = url
        self.rates: list[float] = []
        self.references: dict[str, list[float]] = {}

    async def measure(self, store: Store, number: int, seconds: float) -> None:
        """One round: on sessions of its own where they are to be new."""
        prefix = f"{self.through}-{self.sessions}-{self.history}"
        if not self.history:
            prefix += f"-{number}"
        ids = [f"{prefix}-{n}" for n in range(self.sessions)]
        if number == 0 and self.history:
            await fill(store, ids)
        async with AsyncExitStack() as stack:
            appends: list[Append]
            if self.through == "store":
                appends = [
                    await to_store(store, session_id, not self.history) for session_id in ids
                ]
            else:
                agents = [
                    await stack.enter_async_context(await perdure.open(session_id, store=store))
                    for session_id in ids
                ]
                appends = [
                    lambda agent=agent: agent.append(perdure.text(CONTENT))  # type: ignore[misc]
                    for agent in agents
                ]
            self.rates.append(await rate(appends, seconds))


async def run(rounds: int, seconds: float, parent: Path | None) -> dict[str, object]:
    with tempfile.TemporaryDirectory(dir=parent) as name:
        folder = Path(name)
        urls = [f"sqlite:///{folder}/{{}}.db", f"jsonl:///{folder}/{{}}"]
        cases = [
            Case(url, through, sessions, history)
            for url in urls
            for through in ("store", "agent")
            for sessions in (1, MANY)
            for history in (0, HISTORY)
        ]
        async with AsyncExitStack() as stack:
            stores: dict[tuple[str, int, int], Store] = {}
            for case in cases:
                key = case.url, case.sessions, case.history
                if key not in stores:
                    place = case.url.format(f"{case.sessions}-{case.history}")
                    stores[key] = await stack.enter_async_context(perdure.open_store(place))
            shared = {"shared file": shared_file(folder), "shared SQLite": shared_sqlite(folder)}
            for number in range(rounds):
                for case in cases:
                    await measure_references(case, folder, shared, seconds / 2)
                    store = stores[case.url, case.sessions, case.history]
                    await case.measure(store, number, seconds)
            for producers in shared.values():
                producers.close()
    return report(cases)


async def measure_references(
    case: Case, folder: Path, shared: dict[str, Shared], seconds: float
) -> None:
    if case.sessions == 1:
        measured = {"bare": await asyncio.to_thread(bare_rate, folder, seconds)}
    else:
        measured = {
            name: await rate([producers.append] * MANY, seconds)
            for name, producers in shared.items()
        }
    for name, per_second in measured.items():
        case.references.setdefault(name, []).append(per_second)


def report(cases: list[Case]) -> dict[str, object]:
    references: dict[str, list[float]] = {}
    rows: list[dict[str, object]] = []
    for case in cases:
        ratios = {}
        for name, bases in case.references.items():
            references.setdefault(name, []).extend(bases)
            shares = [mine / base for mine, base in zip(case.rates, bases, strict=True)]
            ratios[name] = round(statistics.median(shares), 3)
        rows.append(
            {
                "case": case.name,
                "sessions": case.sessions,
                "history": case.history,
                "appends_per_s": round(statistics.median(case.rates)),
                "of": ratios,
            }
        )
    return {
        "references_per_s": {k: round(statistics.median(v)) for k, v in references.items()},
        "cases": rows,
    }


def show(result: dict[str, object]) -> None:
    references, cases = result["references_per_s"], result["cases"]
    assert isinstance(references, dict)
    assert isinstance(cases, list)
    print(f"{'case':<14}{'sessions':>8}{'history':>9}{'appends/s':>11}  as a share of")
    for name, per_second in references.items():
        print(f"{name:<14}{1 if name == 'bare' else MANY:>8}{per_second:>20}")
    for row in cases:
        shares = "  ".join(f"{name} {ratio:.2f}" for name, ratio in row["of"].items())
        print(
            f"{row['case']:<14}{row['sessions']:>8}{row['history']:>9}"
            f"{row['appends_per_s']:>11}  {shares}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=0.2, help="of each case in each round")
    parser.add_argument("--folder", type=Path, help="the disk to measure; default: temporary files")
    options = parser.parse_args()
    result = asyncio.run(run(options.rounds, options.seconds, options.folder))
    show(result)
    place = Path(__file__).parent / "results" / "append.json"
    place.parent.mkdir(exist_ok=True)
    place.write_text(json.dumps({"python": sys.version, **result}, indent=1) + "\n")
    print(f"\nwritten to {place}")


if __name__ == "__main__":
    main()
