"""The limits that everything is held against, and what the benchmarks share.

A limit does the least that could do the same work durably: one loop of write + fdatasync, or 64
asyncio producers that share one fdatasync, one commit of a bare SQLite, or a pool of threads that
sync a file each. No codec, no checks, no index, no readers.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sqlite3
import statistics
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

import apsw

import perdure
from perdure.codec import Entry, seal
from perdure.store import Store
from perdure.stores.jsonl import JsonlStore
from perdure.stores.sqlite import SqliteStore

CONTENT = "x" * 826
"""Makes an entry of 1 KiB of JSON."""
LINE = b"x" * 1023 + b"\n"
MANY = 64
POOL_THREADS = 16
BATCH = 20

Append = Callable[[], Awaitable[object]]
KINDS = ("sqlite", "jsonl")
NAMES = {"sqlite": "SQLite", "jsonl": "JSON lines"}


# The limits


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
        self._thread = threading.Thread(target=self._serve, daemon=True)
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
    return _shared(apsw.Connection(str(folder / "shared.db")), page_size=8192)


def shared_module(folder: Path) -> Shared:
    """As `shared_sqlite`, with the `sqlite3` of Python and its page size as it comes."""
    path = folder / "module.db"
    return _shared(sqlite3.connect(path, isolation_level=None, check_same_thread=False))


def _shared(connection: apsw.Connection | sqlite3.Connection, **pragmas: object) -> Shared:
    for name, value in {**pragmas, "journal_mode": "wal", "synchronous": "full"}.items():
        connection.execute(f"PRAGMA {name} = {value}").fetchall()
    connection.execute("CREATE TABLE lines (pos INTEGER PRIMARY KEY, raw BLOB)")

    def commit(lines: list[bytes]) -> None:
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany("INSERT INTO lines VALUES (NULL, ?)", [(line,) for line in lines])
        connection.execute("COMMIT")

    return Shared(commit)


class Pool:
    """Threads that write to and sync a file each; a producer awaits its own."""

    def __init__(self, folder: Path, files: int) -> None:
        self._threads = ThreadPoolExecutor(POOL_THREADS)
        self._loop = asyncio.get_running_loop()
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._descriptors = [os.open(folder / f"pool-{n}", flags) for n in range(files)]
        self.appends: list[Append] = [self._append(each) for each in self._descriptors]

    def _append(self, descriptor: int) -> Append:
        def write() -> None:
            os.write(descriptor, LINE)
            os.fdatasync(descriptor)

        return lambda: self._loop.run_in_executor(self._threads, write)

    def close(self) -> None:
        self._threads.shutdown()
        for descriptor in self._descriptors:
            os.close(descriptor)


class Limits:
    """All of them, on one disk, each with a method that measures it now."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file, self._sqlite = shared_file(folder), shared_sqlite(folder)
        self._module = shared_module(folder)
        self._pool = Pool(folder, MANY)

    async def bare(self, seconds: float) -> float:
        return await asyncio.to_thread(bare_rate, self._folder, seconds)

    async def shared_file(self, seconds: float) -> float:
        return await rate([self._file.append] * MANY, seconds)

    async def shared_sqlite(self, seconds: float) -> float:
        return await rate([self._sqlite.append] * MANY, seconds)

    async def shared_module(self, seconds: float) -> float:
        return await rate([self._module.append] * MANY, seconds)

    async def pool(self, seconds: float) -> float:
        return await rate(self._pool.appends, seconds)

    def close(self) -> None:
        for each in (self._file, self._sqlite, self._module, self._pool):
            each.close()


async def rate(appends: Sequence[Append], seconds: float) -> float:
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


# Work to measure


def messages(count: int, size: int = len(CONTENT)) -> list[Entry]:
    """A chain of user messages, sealed: one can be given to several sessions and stores."""
    made: list[Entry] = []
    content = "x" * size
    for _ in range(count):
        made.append(seal(perdure.text(content), made[-1].id if made else None))
    return made


def lasting(kind: str, place: Path) -> Store:
    """A store as it is by default."""
    return perdure.open_store(f"sqlite:///{place}.db" if kind == "sqlite" else f"jsonl:///{place}")


def fleeting(kind: str, place: Path) -> SqliteStore | JsonlStore:
    """The same store without durability, to be filled."""
    if kind == "sqlite":
        return SqliteStore(f"{place}.db", synchronous="off")
    return JsonlStore(place, durable=False)


async def fill(store: Store, session_id: str, entries: Sequence[Entry]) -> None:
    """A session with these entries."""
    await store.create_session(session_id)
    for first in range(0, len(entries), BATCH):
        await store.append_entries(session_id, entries[first : first + BATCH])


# Figures


class Series:
    """What was measured in turns, over the rounds: ours and its reference."""

    def __init__(self) -> None:
        self.ours: list[float] = []
        self.limits: list[float] = []

    def add(self, ours: float, limit: float) -> None:
        self.ours.append(ours)
        self.limits.append(limit)

    @property
    def medians(self) -> tuple[float, float]:
        """Ours, and the reference."""
        return statistics.median(self.ours), statistics.median(self.limits)

    @property
    def ratio(self) -> float:
        """The median of the rounds' ratios."""
        pairs = zip(self.ours, self.limits, strict=True)
        return statistics.median(ours / limit for ours, limit in pairs)


async def seconds_of(step: Callable[[], Awaitable[object]]) -> float:
    """Seconds of CPU of the process, without a collection that something before it left due.

    What the step returns is kept until the time is taken: to free it is not a part of the step.
    """
    gc.collect()
    start = time.process_time()
    kept = await step()
    taken = time.process_time() - start
    del kept
    return taken
