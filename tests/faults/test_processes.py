"""Several processes on one store: they wait for each other, and none loses anything."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import perdure
from perdure.errors import StoreUnavailableError
from perdure.stores import jsonl_file
from perdure.stores.jsonl import JsonlStore
from perdure.stores.sqlite import SqliteStore, connection
from perdure.testing.store_cases import messages, raws, seqs
from tests.faults.conftest import Children

pytestmark = pytest.mark.parametrize("kind", ["jsonl", "sqlite"])


def place_of(kind: str, folder: Path) -> Path:
    return folder / "store" if kind == "jsonl" else folder / "s.db"


def opened(url: str) -> JsonlStore | SqliteStore:
    store = perdure.open_store(url)
    assert isinstance(store, JsonlStore | SqliteStore)
    return store


async def line_of(child: asyncio.subprocess.Process) -> str:
    assert child.stdout is not None
    return (await asyncio.wait_for(child.stdout.readline(), 60)).decode().strip()


@pytest.mark.parametrize(("verb", "count"), [("write", 10), ("compete", 4)])
async def test_ten_that_start_at_once_on_nothing_lose_nothing(
    tmp_path: Path, children: Children, kind: str, verb: str, count: int
) -> None:
    """Without `expected_seq` every batch is stored; with it too, and whoever lost was told."""
    url = f"{kind}:///{place_of(kind, tmp_path / 'not' / 'there')}"
    writers = [await children.start(verb, url, f"w{n}") for n in range(count)]
    lost = [int(await line_of(writer)) for writer in writers]
    assert [await writer.wait() for writer in writers] == [0] * count
    assert verb == "compete" or sum(lost) == 0
    async with opened(url) as store:
        stored = await store.load_entries("s")
        await store.verify_session("s")
    assert seqs(stored) == list(range(1, 20 * count + 1))
    ids = [entry.id for entry in stored]
    for n in range(count):
        expected = [entry.id for k in range(10) for entry in messages(2, f"w{n}-{k}-")]
        assert [entry_id for entry_id in ids if entry_id.startswith(f"w{n}-")] == expected
    for first in range(0, 20 * count, 2):
        assert ids[first].removesuffix("0") == ids[first + 1].removesuffix("1")


async def test_of_two_with_the_same_expected_seq_exactly_one_is_refused(
    tmp_path: Path, children: Children, kind: str
) -> None:
    url = f"{kind}:///{place_of(kind, tmp_path)}"
    async with perdure.open_store(url) as store:
        await store.create_session("s", entries=messages(2))
        both = [await children.start("race", url, name) for name in ("a", "b")]
        assert [await line_of(child) for child in both] == ["ready"] * 2
        for child in both:
            assert child.stdin is not None
            child.stdin.write(b"go\n")
        assert sorted([await line_of(child) for child in both]) == ["lost", "won"]
        assert len(await store.load_entries("s")) == 4


async def test_no_reader_waits_for_a_writer_and_no_writer_for_ever(
    tmp_path: Path, children: Children, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """A writer that holds its lock and is killed then leaves nothing that anybody minds."""
    monkeypatch.setattr(jsonl_file, "LOCK_WAIT_S", 0.2)
    monkeypatch.setattr(connection, "BUSY_TIMEOUT_S", 0.2)
    place = place_of(kind, tmp_path)
    async with opened(f"{kind}:///{place}") as store:
        await store.create_session("s", entries=messages(2))
        await store.append_entries("s", messages(1, "a"))
        holder = await children.start("hold", kind, place)
        assert await line_of(holder) == "ready"
        async with perdure.open_store(f"{kind}:///{place}") as other:
            for reader in (store, other):
                assert seqs(await reader.load_entries("s")) == [1, 2, 3]
                assert (await reader.load_session("s")).id == "s"
                with pytest.raises(StoreUnavailableError, match="locked by another process"):
                    await reader.append_entries("s", messages(1, "b"))
            assert holder.returncode is None
            holder.kill()
            await holder.wait()
            assert (await other.append_entries("s", messages(1, "b"))).first_seq == 4
        assert (await store.append_entries("s", messages(1, "c"))).first_seq == 5
        expected = [*messages(2), *messages(1, "a"), *messages(1, "b"), *messages(1, "c")]
        assert raws(await store.load_entries("s")) == raws(expected)
        await store.verify_session("s")
