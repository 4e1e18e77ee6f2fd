"""Processes on one SQLite store: killed at any moment, or many at once."""

import asyncio
import os
import random
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

import pytest

from perdure.errors import StoreUnavailableError
from perdure.stores.sqlite import SqliteStore
from perdure.testing.store_cases import messages, seqs

CHILD = Path(__file__).with_name("sqlite_child.py")
SOURCE = Path(__file__).parents[2] / "src"


async def start(verb: str, path: Path, name: str) -> Process:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    return await asyncio.create_subprocess_exec(
        sys.executable, CHILD, verb, path, name, stdout=PIPE, env=environment
    )


async def said(child: Process) -> str:
    assert child.stdout is not None
    return (await asyncio.wait_for(child.stdout.readline(), 30)).decode().strip()


async def rest_of(child: Process) -> list[str]:
    assert child.stdout is not None
    lines = (await asyncio.wait_for(child.stdout.read(), 30)).decode().split("\n")
    await child.wait()
    return lines[:-1]


async def test_what_was_acknowledged_survives_kill_9_at_any_moment(tmp_path: Path) -> None:
    chance = random.Random(7)
    acknowledged: list[tuple[str, str, int, int]] = []
    for life in range(8):
        child = await start("write", tmp_path / "s.db", f"life{life}")
        assert await said(child) == "ready"
        await asyncio.sleep(chance.uniform(0.0, 0.25))
        child.kill()
        for line in await rest_of(child):
            session_id, prefix, first, last = line.split()
            acknowledged.append((session_id, prefix, int(first), int(last)))
        async with SqliteStore(tmp_path / "s.db") as store:
            await check_all(store, acknowledged)
    assert len(acknowledged) > 50


async def check_all(store: SqliteStore, acknowledged: list[tuple[str, str, int, int]]) -> None:
    logs = {}
    for session_id in await store.session_ids():
        await store.verify_session(session_id)
        stored = await store.load_entries(session_id)
        assert seqs(stored) == list(range(1, len(stored) + 1))
        logs[session_id] = stored
        counts: dict[str, int] = {}
        for entry in stored:
            prefix = entry.id.rpartition("-")[0]
            counts[prefix] = counts.get(prefix, 0) + 1
        for prefix, count in counts.items():
            assert count == int(prefix.split("-")[1]) % 4 + 1, "half a batch is there"
    for session_id, prefix, first, last in acknowledged:
        entries = [stored.entry for stored in logs[session_id][first - 1 : last]]
        assert entries == messages(len(entries), prefix)
        assert len(entries) == last - first + 1


async def test_a_first_start_survives_a_stampede_of_ten(tmp_path: Path) -> None:
    path = tmp_path / "not" / "there" / "s.db"
    children = [await start("stampede", path, f"child{n}") for n in range(10)]
    outcomes = [await rest_of(child) for child in children]
    assert [child.returncode for child in children] == [0] * 10
    assert sorted(outcomes) == [["lost"]] * 9 + [["won"]]
    async with SqliteStore(path) as store:
        assert set(await store.session_ids()) == {"shared", *(f"child{n}" for n in range(10))}
        for session_id in await store.session_ids():
            await store.verify_session(session_id)
        shared = await store.load_entries("shared")
        assert seqs(shared) == list(range(1, 101))
        for first in range(0, 100, 2):
            pair = [entry.id for entry in shared[first : first + 2]]
            assert pair == [pair[0], pair[0][:-1] + "1"]


async def test_a_process_that_is_killed_owns_nothing_any_more(tmp_path: Path) -> None:
    child = await start("own", tmp_path / "s.db", "the first")
    assert await said(child) == "ready"
    async with SqliteStore(tmp_path / "s.db") as store:
        with pytest.raises(StoreUnavailableError, match="the first"):
            async with store.acquire_ownership("the second"):
                pass
        child.kill()
        await child.wait()
        async with store.acquire_ownership("the second"):
            await store.create_session("s")
