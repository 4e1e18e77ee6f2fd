"""Appends that come while the writer is busy share its next commit, whatever their loop is at."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from perdure.entry import text
from perdure.stores.sqlite import SqliteStore


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
