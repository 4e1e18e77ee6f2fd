"""A log of any size is read in chunks: each entry once, whatever happens to the log meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from perdure.errors import JournalCorruptError, SessionDeletedError, SessionNotFoundError
from perdure.stores.jsonl import JsonlStore
from perdure.stores.sqlite import SqliteStore, ledger
from perdure.testing.store_cases import messages, placed, raws

ENTRIES = [placed(f"e{n}", f"e{n - 1}" if n else None, "x" * 9000) for n in range(400)]
BIG = placed("big", None, "y" * 5_000_000)


@pytest.fixture(params=["lines", "indexed", "in the tail"])
def store(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> JsonlStore | SqliteStore:
    if request.param == "lines":
        return JsonlStore(tmp_path / "l")
    monkeypatch.setattr(ledger, "TAIL_LENGTH", 100 if request.param == "indexed" else 2048)
    return SqliteStore(tmp_path / "s.db")


async def test_chunks_are_about_a_mib_and_have_every_entry_once(
    store: JsonlStore | SqliteStore,
) -> None:
    async with store:
        await store.create_session("s", entries=ENTRIES[:3])
        await store.append_entries("s", ENTRIES[3:300])  # one batch of several chunks
        for entry in ENTRIES[300:330]:
            await store.append_entries("s", [entry])
        await store.append_entries("s", [BIG, *ENTRIES[330:]])
        for after in (0, 1, 299, 330, 331, 400):
            chunks = [chunk async for chunk in store.stream_entries("s", after=after)]
            found = [stored for chunk in chunks for stored in chunk]
            assert [stored.seq for stored in found] == list(range(after + 1, 402))
            assert raws(found) == raws([*ENTRIES[:330], BIG, *ENTRIES[330:]][after:])
        assert [chunk async for chunk in store.stream_entries("s", after=401)] == []
        if isinstance(store, SqliteStore):
            sizes = [
                sum(len(stored.raw) for stored in chunk if stored.id != "big")
                async for chunk in store.stream_entries("s")
            ]
            assert max(sizes) < 1_200_000


async def test_what_is_appended_meanwhile_is_read_too(store: JsonlStore | SqliteStore) -> None:
    async with store:
        await store.create_session("s", entries=ENTRIES)
        seqs: list[int] = []
        async for chunk in store.stream_entries("s"):
            if not seqs:
                await asyncio.gather(
                    *(store.append_entries("s", messages(2, f"t{n}")) for n in range(8))
                )
            seqs += [stored.seq for stored in chunk]
        assert seqs == list(range(1, 417))


async def drain(
    store: JsonlStore | SqliteStore, meanwhile: Callable[[], Awaitable[object]] | None = None
) -> list[int]:
    """Reads the stream to its end, doing something after each chunk; the seqs that were read."""
    seqs: list[int] = []
    try:
        async for chunk in store.stream_entries("s"):
            seqs += [stored.seq for stored in chunk]
            if meanwhile is not None:
                await meanwhile()
    finally:
        assert seqs == list(range(1, len(seqs) + 1))
    return seqs


async def lines(folder: Path, store: JsonlStore) -> Path:
    await store.create_session("s")
    for start in range(0, 400, 50):
        await store.append_entries("s", ENTRIES[start : start + 50])
    return folder / "s.jsonl"


async def test_damage_ends_a_stream_with_an_error(tmp_path: Path) -> None:
    async with JsonlStore(tmp_path) as store:
        path = await lines(tmp_path, store)
        path.write_bytes(path.read_bytes().replace(b'"id":"e300"', b'"id"!"e300"'))
        with pytest.raises(JournalCorruptError) as found:
            await drain(store)
        assert found.value.seq == 301


@pytest.mark.parametrize("size", [60, 5000, 500_000, 4_000_000])
@pytest.mark.parametrize("is_other", [False, True])
async def test_a_file_that_is_replaced_is_no_shorter_log(
    tmp_path: Path, size: int, is_other: bool
) -> None:
    async with JsonlStore(tmp_path) as store:
        path = await lines(tmp_path, store)
        whole = path.read_bytes()

        async def replace() -> None:
            path.unlink()
            data = whole.replace(b'"parent_id":null', b'"parent_id":"p"') if is_other else whole
            path.write_bytes(data[:size])

        if not is_other and size == 4_000_000:
            assert len(await drain(store, replace)) == 400  # put back as it was
            return
        with pytest.raises(JournalCorruptError):
            await drain(store, replace)


async def test_a_session_that_is_deleted_ends_a_stream(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "s.db") as store:

        async def create_again() -> None:
            await store.delete_session("s")
            await store.create_session("s", entries=ENTRIES[:100])

        await store.create_session("s", entries=ENTRIES)
        with pytest.raises(SessionDeletedError):
            await drain(store, create_again)
        with pytest.raises(SessionNotFoundError):
            await drain(store, lambda: store.delete_session("s"))


async def test_what_is_not_there_is_said_at_once(store: JsonlStore | SqliteStore) -> None:
    async with store:
        with pytest.raises(SessionNotFoundError):
            _ = [chunk async for chunk in store.stream_entries("none")]
