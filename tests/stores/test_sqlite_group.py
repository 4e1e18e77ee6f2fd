"""Appends that come while the writer is busy share its next commit, whatever their loop is at."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

from perdure.codec import seal
from perdure.entry import text
from perdure.store import Receipt
from perdure.stores.sqlite import SqliteStore, ledger, writer


@pytest.mark.may_block
async def test_what_comes_during_a_commit_is_in_the_next_one_though_its_loop_is_slow(
    tmp_path: Path,
) -> None:
    groups: list[int] = []
    committed, gate = threading.Event(), threading.Event()

    def note(size: int, seconds: float) -> None:
        assert seconds >= 0
        groups.append(size)
        committed.set()

    async with SqliteStore(tmp_path / "s.db") as store:
        for each in ("a", "b"):
            await store.create_session(each)
        store.observe_commits(note)
        store._writer.call(gate.wait)  # stands for a commit that is under way
        first = asyncio.ensure_future(store.append_entries("a", [text("one")]))
        for _ in range(5):  # until it is handed over
            await asyncio.sleep(0)
        second = store.append_entries("b", [text("two")])
        future = second.send(None)  # submitted, and the loop does not get to hand it over
        gate.set()
        assert committed.wait(10)
        assert groups == [2]
        await first
        await future
        with pytest.raises(StopIteration) as ended:
            second.send(None)
        assert ended.value.value.entries[0].seq == 1
        assert [each.seq for each in await store.load_entries("b")] == [1]
    assert groups == [2]


SESSIONS = [f"s{n}" for n in range(64)]


@asynccontextmanager
async def many(path: Path) -> AsyncIterator[tuple[SqliteStore, list[int]]]:
    """A store with all the sessions, and the sizes of the groups that are committed from now on."""
    groups: list[int] = []
    async with SqliteStore(path / "s.db") as store:
        for each in SESSIONS:
            await store.create_session(each)
        store.observe_commits(lambda size, seconds: groups.append(size))
        yield store, groups


@pytest.mark.parametrize(("quick_s", "expected"), [(60.0, [32, 32]), (0.0, [64])])
async def test_of_many_that_come_at_once_half_are_told_while_the_others_are_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick_s: float, expected: list[int]
) -> None:
    monkeypatch.setattr(writer, "QUICK_S", quick_s)
    async with many(tmp_path) as (store, groups):
        receipts = await asyncio.gather(
            *(store.append_entries(each, [text("hi")]) for each in SESSIONS)
        )
        assert [receipt.last_seq for receipt in receipts] == [1] * len(SESSIONS)
        assert groups == expected


class Stage:
    """Two appends: the second waits when the first was committed, and the writer gets no further.

    `then` is called in the writer's thread before it goes on to the second.
    """

    def __init__(self, store: SqliteStore, then: Callable[[], object]) -> None:
        self.is_reached, self.is_set = threading.Event(), threading.Event()
        self._store = store
        self._then = then
        self._stop = store.observe_commits(self._note)

    def _note(self, size: int, seconds: float) -> None:
        self._stop()
        self.is_reached.set()
        assert self.is_set.wait(10)
        self._then()

    async def play(self, second: Callable[[], Any]) -> tuple[asyncio.Future[Receipt], Any]:
        first = asyncio.ensure_future(self._store.append_entries("s0", [text("one")]))
        assert await asyncio.to_thread(self.is_reached.wait, 10)
        other = asyncio.ensure_future(second())
        for _ in range(5):  # until it is handed over
            await asyncio.sleep(0)
        self.is_set.set()
        return first, other


async def test_what_was_committed_is_told_while_the_next_group_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, commit = threading.Event(), ledger.Ledger.commit

    def slow(self: ledger.Ledger) -> None:
        assert gate.wait(10)
        commit(self)

    async with many(tmp_path) as (store, _):
        stage = Stage(store, lambda: monkeypatch.setattr(ledger.Ledger, "commit", slow))
        first, other = await stage.play(lambda: store.append_entries("s1", [text("two")]))
        assert (await asyncio.wait_for(first, 10)).last_seq == 1
        assert not other.done()
        gate.set()
        assert (await other).last_seq == 1


async def test_what_was_committed_is_told_before_something_long_is_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, delete = threading.Event(), ledger.Ledger.delete_session

    def slow(self: ledger.Ledger, session_id: str) -> None:
        assert gate.wait(10)
        delete(self, session_id)

    async with many(tmp_path) as (store, _):
        monkeypatch.setattr(ledger.Ledger, "delete_session", slow)
        first, other = await Stage(store, int).play(lambda: store.delete_session("s1"))
        assert (await asyncio.wait_for(first, 10)).last_seq == 1
        assert not other.done()
        gate.set()
        await other


async def test_what_was_committed_is_told_while_another_process_has_the_file(
    tmp_path: Path,
) -> None:
    another = apsw.Connection(str(tmp_path / "s.db"))
    async with many(tmp_path) as (store, _):
        stage = Stage(store, lambda: another.execute("BEGIN IMMEDIATE"))
        first, other = await stage.play(lambda: store.append_entries("s1", [text("two")]))
        assert (await asyncio.wait_for(first, 10)).last_seq == 1
        assert not other.done()
        another.execute("ROLLBACK")
        assert (await other).last_seq == 1
    another.close()


async def test_what_was_committed_is_told_though_the_next_group_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: ledger.Ledger) -> None:
        raise apsw.FullError("no room")

    async with many(tmp_path) as (store, _):
        stage = Stage(store, lambda: monkeypatch.setattr(ledger.Ledger, "begin", broken))
        first, other = await stage.play(lambda: store.append_entries("s1", [text("two")]))
        assert (await asyncio.wait_for(first, 10)).last_seq == 1
        with pytest.raises(Exception, match="is full; nothing was stored"):
            await other


async def test_whoever_left_meanwhile_harms_nobody_who_waits(tmp_path: Path) -> None:
    async with many(tmp_path) as (store, _):
        tasks = [
            asyncio.ensure_future(store.append_entries(each, [text("hi")])) for each in SESSIONS
        ]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        told = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(each, asyncio.CancelledError) for each in told[::2])
        assert all(isinstance(each, Receipt) for each in told[1::2])


async def test_a_listener_of_commits_that_raises_stops_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(size: int, seconds: float) -> None:
        raise ValueError("of somebody else")

    groups: list[int] = []
    store = SqliteStore(tmp_path / "s.db")
    async with asyncio.timeout(10):
        await store.create_session("s0")
        store.observe_commits(lambda size, seconds: groups.append(size))
        stop = store.observe_commits(broken)
        for seq in range(1, 4):
            assert (await store.append_entries("s0", [text("hi")])).last_seq == seq
        stop()
        await store.close()
    assert groups == [1, 1, 1]
    assert [record.message for record in caplog.records] == [
        "a listener of commits raised, and is told of no more"
    ]


async def test_a_writer_at_rest_keeps_nothing_of_what_it_was_asked(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "s.db") as store, asyncio.timeout(10):
        await store.create_session("s")
        told = store.ask_append("s", [seal(text("hi"))])
        await told.future
        kept = weakref.ref(told.future)
        del told
        while kept() is not None:
            await asyncio.sleep(0.01)
            gc.collect()
