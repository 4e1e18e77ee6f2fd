"""Exports, imports and heads: the same bytes everywhere, and any change of a file is told."""

from __future__ import annotations

import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from perdure.codec import Entry, first_sum, read_entry
from perdure.errors import (
    AppendRejectedError,
    ConfigurationError,
    FormatTooNewError,
    JournalCorruptError,
    SessionExistsError,
    SessionNotFoundError,
    StoreUnavailableError,
)
from perdure.interchange import (
    ReadableStore,
    check_head,
    export_session,
    import_session,
    verify_file,
    write_export,
)
from perdure.store import Head, read_head
from perdure.stores.jsonl import JsonlStore
from perdure.stores.memory import MemoryStore
from perdure.stores.sqlite import SqliteStore
from perdure.testing.store_cases import messages, placed, raws

ODD = read_entry(
    b'{ "id":"odd", "type":"odd","created_at":"2026-01-01T00:00:00Z", "n":NaN, "parent_id": null}'
)


@pytest.fixture(params=["memory", "jsonl", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ReadableStore]:
    opened: MemoryStore | JsonlStore | SqliteStore = MemoryStore()
    if request.param == "jsonl":
        opened = JsonlStore(tmp_path / "lines")
    if request.param == "sqlite":
        opened = SqliteStore(tmp_path / "s.db")
    async with opened:
        yield opened


ENTRIES: list[Entry] = [*messages(3), ODD, placed("big", "m2", "x" * 3_000_000)]


async def export(store: ReadableStore, path: Path) -> Head:
    await store.create_session("s", parent_id="p", entries=ENTRIES[:2])
    await store.append_entries("s", ENTRIES[2:])
    exported = await export_session(store, "s")
    await write_export(exported, path)
    return exported.head


async def test_an_export_is_a_file_of_lines_that_every_store_imports(
    store: ReadableStore, tmp_path: Path
) -> None:
    path = tmp_path / "out.jsonl"
    head = await export(store, path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path).count("out.jsonl") == 1
    assert [name for name in os.listdir(tmp_path) if name.endswith(".tmp")] == []
    checked = await verify_file(path, head=head)
    assert (checked.verified.head, checked.session.id) == (head, "s")
    before = await store.load_session("s")
    for other in (MemoryStore(), JsonlStore(tmp_path / "o"), SqliteStore(tmp_path / "o.db")):
        async with other:
            session = await import_session(other, path, head=head)
            assert (session.id, session.parent_id) == ("s", "p")
            assert session.incarnation != before.incarnation
            assert raws(await other.load_entries("s")) == raws(ENTRIES)
            await other.verify_session("s")


async def test_an_export_in_a_folder_of_a_store_is_that_session(
    store: ReadableStore, tmp_path: Path
) -> None:
    (tmp_path / "root").mkdir()
    head = await export(store, tmp_path / "root" / "s.jsonl")
    async with JsonlStore(tmp_path / "root") as other:
        assert await other.load_session("s") == await store.load_session("s")
        assert (await other.verify_session("s")).head == head
        assert raws(await other.load_entries("s")) == raws(ENTRIES)


async def test_an_import_names_the_session_anew_and_takes_no_id_that_is_taken(
    store: ReadableStore, tmp_path: Path
) -> None:
    await export(store, tmp_path / "f")
    with pytest.raises(SessionExistsError):
        await import_session(store, tmp_path / "f")
    await import_session(store, tmp_path / "f", new_id="t")
    assert raws(await store.load_entries("t")) == raws(ENTRIES)
    assert raws(await store.load_entries("s")) == raws(ENTRIES)


async def test_an_export_replaces_a_file_only_when_told(
    store: ReadableStore, tmp_path: Path
) -> None:
    path = tmp_path / "f"
    path.write_text("precious")
    with pytest.raises(StoreUnavailableError, match="left as it was"):
        await export(store, path)
    assert path.read_text() == "precious"
    exported = await export_session(store, "s")
    await write_export(exported, path, replace=True)
    assert (await verify_file(path)).verified.head == exported.head
    with pytest.raises(StoreUnavailableError, match="cannot be written"):
        await write_export(exported, tmp_path / "none" / "f")
    assert {name for name in os.listdir(tmp_path) if "tmp" in name} == set()


async def test_what_is_not_there_is_said(store: ReadableStore, tmp_path: Path) -> None:
    with pytest.raises(SessionNotFoundError):
        await export_session(store, "none")
    with pytest.raises(StoreUnavailableError, match="there is no file"):
        await import_session(store, tmp_path / "none")
    await store.create_session("empty")
    exported = await export_session(store, "empty")
    assert [line async for line in exported] == [exported.session.header + b"\n"]
    assert exported.head == Head(0, exported.session.first_sum)


async def test_a_log_that_grew_has_its_old_head_still(store: ReadableStore, tmp_path: Path) -> None:
    head = await export(store, tmp_path / "f")
    await store.append_entries("s", messages(2, "later"))
    await check_head(store, "s", head)
    exported = await export_session(store, "s")
    await write_export(exported, tmp_path / "g")
    await verify_file(tmp_path / "g", head=head)
    await verify_file(tmp_path / "g", head=Head(0, first_sum(exported.session.header)))
    with pytest.raises(JournalCorruptError, match="it ends at seq 5"):
        await verify_file(tmp_path / "f", head=exported.head)
    with pytest.raises(JournalCorruptError, match="it ends at seq 7"):
        await check_head(store, "s", Head(8, head.sum))
    with pytest.raises(JournalCorruptError, match="changed"):
        await check_head(store, "s", Head(4, head.sum))


async def test_a_chain_that_was_rewritten_whole_has_another_head(tmp_path: Path) -> None:
    async with MemoryStore() as store, MemoryStore() as forged:
        head = await export(store, tmp_path / "f")
        entries = [placed("m0", None, "something else"), *ENTRIES[1:]]
        await forged.create_session("s", parent_id="p", entries=entries)
        await write_export(await export_session(forged, "s"), tmp_path / "g")
        await verify_file(tmp_path / "g")
        with pytest.raises(JournalCorruptError, match="changed"):
            await verify_file(tmp_path / "g", head=head)
        with pytest.raises(JournalCorruptError, match="changed"):
            await import_session(store, tmp_path / "g", new_id="t", head=head)
        with pytest.raises(SessionNotFoundError):
            await store.load_session("t")


async def test_a_file_that_is_cut_anywhere_is_not_the_one_that_was_exported(
    tmp_path: Path,
) -> None:
    async with MemoryStore() as store:
        await store.create_session("s", entries=messages(2))
        exported = await export_session(store, "s")
        data = b"".join([line async for line in exported])
        for end in range(len(data) - 1):  # without its newline alone it is still whole
            (tmp_path / "f").write_bytes(data[:end])
            with pytest.raises(JournalCorruptError):
                await verify_file(tmp_path / "f", head=exported.head)


async def test_a_torn_end_is_refused_without_a_head_too(tmp_path: Path) -> None:
    async with JsonlStore(tmp_path) as store:
        await store.create_session("s", entries=messages(3))
        data = (tmp_path / "s.jsonl").read_bytes()
        for end in (data.rindex(b"\n", 0, -1) + 1, len(data) - 9):  # in mid-batch, in mid-line
            (tmp_path / "f").write_bytes(data[:end])
            with pytest.raises(JournalCorruptError, match="no whole entries"):
                await import_session(store, tmp_path / "f", new_id="t")


async def test_a_damaged_session_is_not_exported(tmp_path: Path) -> None:
    async with JsonlStore(tmp_path) as store:
        await store.create_session("s", entries=messages(3))
        path = tmp_path / "s.jsonl"
        path.write_bytes(path.read_bytes().replace(b"says 1", b"says 7"))
        with pytest.raises(JournalCorruptError):
            await export_session(store, "s")


async def test_a_file_of_a_newer_format_is_checked_and_not_imported(tmp_path: Path) -> None:
    async with MemoryStore() as store:
        await store.create_session("s")
        exported = await export_session(store, "s")
        line = exported.session.header.replace(b'"format":1', b'"format":2')
        (tmp_path / "f").write_bytes(line + b"\n")
        assert (await verify_file(tmp_path / "f")).session.format == 2
        with pytest.raises(FormatTooNewError):
            await import_session(store, tmp_path / "f", new_id="t")


async def test_bytes_that_are_not_one_line_are_not_exported() -> None:
    async with MemoryStore() as store:
        entry = read_entry(b'{"id":"a","type":"t",\n"created_at":"2026-01-01T00:00:00Z"}')
        await store.create_session("s", entries=[entry])
        exported = await export_session(store, "s")
        with pytest.raises(AppendRejectedError, match="not one line"):
            _ = [line async for line in exported]


def test_a_head_is_its_text() -> None:
    head = Head(12, bytes(range(16)))
    assert read_head(f" {head}\n") == head
    for text in ("", "12", "12 00", f"-1 {'0' * 32}", f"01 {'0' * 32}", f"1 {'g' * 32}"):
        with pytest.raises(ConfigurationError):
            read_head(text)
