"""Several processes on one folder lose nothing, wait in bounded time, and clean up."""

from __future__ import annotations

import asyncio
import fcntl
import gc
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import perdure
from perdure.entry import text
from perdure.errors import (
    StoreUnavailableError,
)
from perdure.stores import jsonl_file
from perdure.stores.jsonl import JsonlStore
from perdure.testing.store_cases import messages, seqs
from tests.stores.jsonl_file import make

CHILD = """
import asyncio, sys
from perdure.entry import Message, Text
from perdure.errors import SessionExistsError
from perdure.stores.jsonl import JsonlStore

async def main(folder, name):
    async with JsonlStore(folder) as store:
        try:
            await store.create_session("s")
        except SessionExistsError:
            pass
        for n in range(20):
            batch = [Message("user", (Text("x" * 500),), id=f"{name}_{n}_{k}") for k in range(3)]
            await store.append_entries("s", batch)

asyncio.run(main(*sys.argv[1:]))
"""


async def test_processes_that_append_at_once_lose_nothing(tmp_path: Path) -> None:
    source = str(Path(perdure.__file__).parents[1])
    children = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", CHILD, str(tmp_path / "new" / "root"), name),
            env=os.environ | {"PYTHONPATH": source},
            stderr=subprocess.PIPE,
        )
        for name in ("one", "two", "three")
    ]
    outputs = await asyncio.gather(*(child.communicate() for child in children))
    assert [child.returncode for child in children] == [0, 0, 0]
    assert [errors for _, errors in outputs] == [b"", b"", b""]
    async with JsonlStore(tmp_path / "new" / "root") as store:
        await store.verify_session("s")
        stored = await store.load_entries("s")
    assert seqs(stored) == list(range(1, 181))
    ids = [entry.id for entry in stored]
    for name in ("one", "two", "three"):
        expected = [f"{name}_{n}_{k}" for n in range(20) for k in range(3)]
        assert [entry_id for entry_id in ids if entry_id.startswith(f"{name}_")] == expected
    for first in range(0, 180, 3):
        assert len({entry_id.rsplit("_", 1)[0] for entry_id in ids[first : first + 3]}) == 1


async def test_a_writer_that_holds_the_file_blocks_no_reader_and_no_append_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jsonl_file, "LOCK_WAIT_S", 0.1)
    path = await make(tmp_path, messages(2))
    holder = os.open(path, os.O_RDWR)
    fcntl.flock(holder, fcntl.LOCK_EX)
    async with JsonlStore(tmp_path) as store:
        with pytest.raises(StoreUnavailableError, match="locked"):
            await store.append_entries("s", messages(1, "b"))
        assert len(await store.load_entries("s")) == 2
        await store.create_session("t")
        os.close(holder)
        assert (await store.append_entries("s", messages(1, "b"))).first_seq == 3


async def test_more_sessions_than_are_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.stores.jsonl.REMEMBERED", 3)
    async with JsonlStore(tmp_path) as store:
        for n in range(9):
            await store.create_session(f"s{n}")
        for turn in range(3):
            await asyncio.gather(
                *(store.append_entries(f"s{n}", messages(1, f"t{turn}_")) for n in range(9))
            )
            assert len(os.listdir("/proc/self/fd")) < 60
        for n in range(9):
            assert seqs(await store.load_entries(f"s{n}")) == [1, 2, 3]


async def test_a_second_event_loop_is_refused_and_does_not_wait_for_ever(tmp_path: Path) -> None:
    def elsewhere() -> object:
        return asyncio.run(store.append_entries("s", [text("b")]))

    async with JsonlStore(tmp_path) as store:
        await store.create_session("s")
        await store.append_entries("s", [text("a")])
        with pytest.raises(StoreUnavailableError, match="event loop"):
            await asyncio.to_thread(elsewhere)
        await store.append_entries("s", [text("c")])
        assert seqs(await store.load_entries("s")) == [1, 2]


async def test_its_threads_are_few_and_end_with_it(tmp_path: Path) -> None:
    def threads() -> set[str]:
        return {t.name for t in threading.enumerate() if t.name.startswith("perdure-jsonl")}

    def writers() -> int:
        return sum("writer" in name for name in threads())

    async def append(store: JsonlStore, n: int) -> None:
        await store.append_entries(f"s{n}", [text("a")])

    assert threads() == set()
    async with JsonlStore(tmp_path) as store:
        await asyncio.gather(*(store.create_session(f"s{n}") for n in range(40)))
        await append(store, 0)
        await append(store, 1)
        assert writers() == 1
        await asyncio.gather(*(append(store, n) for n in range(40)))
        assert 1 < writers() <= 16
    assert threads() == set()
    store = JsonlStore(tmp_path)
    await append(store, 0)
    del store  # nobody closed it
    gc.collect()
    for _ in range(500):
        if not writers():
            break
        await asyncio.sleep(0.01)
    assert not writers()


async def test_what_a_dead_process_left_half_made_is_taken_away(tmp_path: Path) -> None:
    root = tmp_path / "root"
    async with JsonlStore(root) as store:
        await store.create_session("a", entries=messages(1))
    dead, living = (root / f".b.{digit * 32}.tmp" for digit in "01")
    others = [root / ".b.tmp", root / ".note.tmp", root / "b.torn-1"]
    for path in (dead, living, *others):
        path.write_bytes(b"{")
    os.link(root / "a.jsonl", linked := root / f".a.{'2' * 32}.tmp")
    with living.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        async with JsonlStore(root) as store:
            await store.load_entries("a")
            assert dead.exists()  # looking never writes
            await store.create_session("b")
            await store.append_entries("a", messages(1, "x"))
            await store.verify_session("a")
    assert [dead.exists(), linked.exists(), living.exists()] == [False, False, True]
    assert all(path.exists() for path in others)
