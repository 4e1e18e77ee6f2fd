"""The JSON-lines store: its files, and those that other programs wrote."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import stat
from pathlib import Path

import pytest

import perdure
from perdure.codec import next_sum
from perdure.entry import text
from perdure.errors import (
    FormatTooNewError,
    JournalCorruptError,
)
from perdure.stores.jsonl import JsonlStore
from perdure.testing.nasty import DISTINCT_SESSION_IDS
from perdure.testing.store_cases import messages, placed, raws, seqs
from tests.stores.jsonl_file import HEADER, foreign, make, write


async def test_a_file_is_a_header_and_a_line_for_each_entry(tmp_path: Path) -> None:
    async with JsonlStore(tmp_path) as store:
        session = await store.create_session("s", parent_id="p", entries=messages(1))
        await store.append_entries("s", messages(2, "b"))
    header, *lines = (tmp_path / "s.jsonl").read_bytes().removesuffix(b"\n").split(b"\n")
    assert header == session.header
    assert list(json.loads(header)) == [
        *("type", "id", "parent_id", "created_at", "incarnation", "format")
    ]
    running_sum = hashlib.sha256(header).digest()[:16]
    expected = [(1, None), (2, [1, 2]), (3, [2, 2])]
    entries = [*messages(1), *messages(2, "b")]
    for line, entry, (seq, batch) in zip(lines, entries, expected, strict=True):
        running_sum = next_sum(running_sum, entry.raw)
        fields = json.loads(line)
        assert (fields.pop("seq"), fields.pop("sum")) == (seq, running_sum.hex())
        assert fields.pop("batch", None) == batch
        assert fields == json.loads(entry.raw)
        assert line.startswith(entry.raw[:-1])


async def test_appends_that_one_sync_covers_are_one_batch(tmp_path: Path) -> None:
    async with JsonlStore(tmp_path) as store:
        await store.create_session("s")
        receipts = await asyncio.gather(
            *(store.append_entries("s", messages(2, f"t{n}_")) for n in range(4))
        )
        assert [receipt.first_seq for receipt in receipts] == [1, 3, 5, 7]
    lines = (tmp_path / "s.jsonl").read_bytes().splitlines()[1:]
    frames = [json.loads(line)["batch"] for line in lines]
    assert frames == [[1, 2], [2, 2], *([k, 6] for k in range(1, 7))]


@pytest.mark.parametrize("session_id", ["a", "a1", "a-b_c.d", "0", "x" * 100])
async def test_a_plain_id_is_its_own_name(tmp_path: Path, session_id: str) -> None:
    async with JsonlStore(tmp_path) as store:
        await store.create_session(session_id)
    assert os.listdir(tmp_path) == [f"{session_id}.jsonl"]


@pytest.mark.parametrize(
    "session_id", ["A", "-a", "a-", ".a", "a.", "_a", "a b", "é", "a/b", "%", "x" * 101, "١"]
)
async def test_any_other_id_is_named_by_its_hash(tmp_path: Path, session_id: str) -> None:
    async with JsonlStore(tmp_path) as store:
        await store.create_session(session_id)
    digest = hashlib.sha256(session_id.encode()).hexdigest()
    assert os.listdir(tmp_path) == [f"%{digest}.jsonl"]


async def test_a_listing_gives_back_the_exact_ids(tmp_path: Path) -> None:
    async with JsonlStore(tmp_path / "made" / "later") as store:
        assert list(await store.session_ids()) == []
        for session_id in DISTINCT_SESSION_IDS:
            await store.create_session(session_id)
        (tmp_path / "made" / "later" / "Foreign.jsonl").touch()
        (tmp_path / "made" / "later" / "notes.txt").touch()
        assert sorted(await store.session_ids()) == sorted(DISTINCT_SESSION_IDS)


async def test_files_are_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o277)
    try:
        async with JsonlStore(tmp_path / "a" / "b") as store:
            await store.create_session("s", entries=messages(1))
            path = tmp_path / "a" / "b" / "s.jsonl"
            with path.open("ab") as file:
                file.write(b"torn")
            await store.append_entries("s", messages(1, "b"))
    finally:
        os.umask(before)
    found = [tmp_path / "a", tmp_path / "a" / "b", *os.scandir(tmp_path / "a" / "b")]
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in found}
    assert modes == {"a": 0o700, "b": 0o700, "s.jsonl": 0o600, "s.torn-1": 0o600}


async def test_links_are_not_followed(tmp_path: Path) -> None:
    elsewhere = await make(tmp_path / "elsewhere", messages(1))
    root = tmp_path / "root"
    root.mkdir()
    (root / "s.jsonl").symlink_to(elsewhere)
    (root / "d.jsonl").symlink_to(root / "nothing")
    (root / "dir.jsonl").mkdir()
    os.mkfifo(root / "fifo.jsonl")
    before = elsewhere.read_bytes()
    async with JsonlStore(root) as store:
        for session_id in ("s", "d", "dir", "fifo"):
            with pytest.raises(JournalCorruptError):
                await store.load_entries(session_id)
            with pytest.raises(JournalCorruptError):
                await store.append_entries(session_id, [text("x")])
            with pytest.raises(perdure.errors.SessionExistsError):
                await store.create_session(session_id)
    assert elsewhere.read_bytes() == before
    assert not (root / "nothing").exists()


async def test_lines_without_seq_sum_or_batch_are_read_in_order(tmp_path: Path) -> None:
    data = HEADER + foreign("a", ',"parent_id":null') + foreign("b").replace(b"\n", b" \r\n")
    data += foreign("c", ',"x":NaN')
    path = write(tmp_path, data)
    async with JsonlStore(tmp_path) as store:
        stored = await store.load_entries("s")
        assert [(entry.seq, entry.id) for entry in stored] == [(1, "a"), (2, "b"), (3, "c")]
        assert stored[2].raw == foreign("c", ',"x":NaN').strip()
        receipt = await store.append_entries("s", messages(2), expected_seq=3)
        assert seqs(receipt.entries) == [4, 5]
        assert await store.append_entries("s", [entry.entry for entry in stored[:2]]) is not None
        assert seqs(await store.load_entries("s", after=2)) == [3, 4, 5]
        await store.verify_session("s")
    assert path.read_bytes().startswith(data)
    async with JsonlStore(tmp_path) as store:
        assert seqs((await store.append_entries("s", messages(2))).entries) == [4, 5]


async def test_unknown_fields_of_a_header_stay(tmp_path: Path) -> None:
    header = HEADER.replace(b'"format":1', b'"format":1,"by":{"other":[ 1 ]}')
    path = write(tmp_path, header)
    async with JsonlStore(tmp_path) as store:
        assert (await store.load_session("s")).header == header.strip()
        await store.append_entries("s", messages(1))
        await store.verify_session("s")
    assert path.read_bytes().startswith(header)


async def test_a_newer_format_can_be_read_and_not_written(tmp_path: Path) -> None:
    data = HEADER.replace(b'"format":1', b'"format":2') + foreign("a") + b"torn"
    path = write(tmp_path, data)
    async with JsonlStore(tmp_path) as store:
        assert (await store.load_session("s")).format == 2
        assert [stored.id for stored in await store.load_entries("s")] == ["a"]
        with pytest.raises(FormatTooNewError):
            await store.append_entries("s", messages(1))
    assert path.read_bytes() == data


async def test_lines_end_at_0x0a_and_nowhere_else(tmp_path: Path) -> None:
    entries = [placed("a", None, "\u2028\u2029\x85\r\n\x0b\x0c\x1e"), placed("b", "a", "\r")]
    path = await make(tmp_path, entries)
    assert path.read_bytes().count(b"\n") == 3
    async with JsonlStore(tmp_path) as store:
        assert raws(await store.load_entries("s")) == raws(entries)
