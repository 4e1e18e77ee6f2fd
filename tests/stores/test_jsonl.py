from __future__ import annotations

import asyncio
import fcntl
import gc
import hashlib
import json
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import perdure
from perdure.codec import Entry, next_sum
from perdure.entry import text
from perdure.errors import (
    FormatTooNewError,
    JournalCorruptError,
    SessionNotFoundError,
    StoreUnavailableError,
)
from perdure.stores import jsonl_file
from perdure.stores.jsonl import JsonlStore
from perdure.testing.nasty import DISTINCT_SESSION_IDS
from perdure.testing.store_cases import messages, placed, raws, seqs

HEADER = (
    b'{"type":"session_init","id":"s","parent_id":null,'
    b'"created_at":"2026-01-01T00:00:00Z","incarnation":"%s","format":1}\n' % (b"0" * 32)
)


def foreign(entry_id: str, rest: str = "") -> bytes:
    line = f'{{"type":"odd", "id": "{entry_id}","created_at":"2026-01-01T00:00:00Z"{rest}}}\n'
    return line.encode()


def write(folder: Path, data: bytes) -> Path:
    path = folder / "s.jsonl"
    path.write_bytes(data)
    return path


async def make(folder: Path, *batches: list[Entry]) -> Path:
    async with JsonlStore(folder) as store:
        await store.create_session("s")
        for batch in batches:
            await store.append_entries("s", batch)
    return folder / "s.jsonl"


# The format


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


# Torn tails


async def test_a_tail_torn_at_any_byte_is_cut_and_kept_beside(tmp_path: Path) -> None:
    path = await make(tmp_path / "whole", messages(2), messages(3, "last"))
    whole = path.read_bytes()
    sound = len(b"".join(whole.splitlines(keepends=True)[:3]))
    for cut in range(sound + 1, len(whole) - 1):
        folder = tmp_path / f"{cut}"
        folder.mkdir()
        torn = write(folder, whole[:cut])
        async with JsonlStore(folder, durable=False) as store:
            assert raws(await store.load_entries("s")) == raws(messages(2))
            await store.verify_session("s")
            assert torn.read_bytes() == whole[:cut]
            assert os.listdir(folder) == ["s.jsonl"]
            receipt = await store.append_entries("s", messages(1, "new"), expected_seq=2)
            assert seqs(receipt.entries) == [3]
            assert raws(await store.load_entries("s")) == raws([*messages(2), *messages(1, "new")])
            await store.verify_session("s")
        assert (folder / "s.torn-1").read_bytes() == whole[sound:cut]


@pytest.mark.parametrize("count", [1, 3])
async def test_whichever_pages_of_the_last_write_a_disk_has_kept(
    tmp_path: Path, count: int
) -> None:
    last = [placed(f"last{n}", None, "x" * 300) for n in range(count)]
    path = await make(tmp_path, messages(2))
    acknowledged = path.read_bytes()
    async with JsonlStore(tmp_path) as store:
        await store.append_entries("s", last)
        whole = path.read_bytes()
        written = whole[len(acknowledged) :]
        size = len(written) // 7 + 1
        for kept in range(2**7):
            pages = [
                written[n * size : (n + 1) * size] if kept >> n & 1 else b"\x00" * size
                for n in range(7)
            ]
            folder = tmp_path / f"k{kept}"
            folder.mkdir()
            write(folder, acknowledged + b"".join(pages)[: len(written)])
            async with JsonlStore(folder, durable=False) as other:
                stored = await other.load_entries("s")
                assert raws(stored) == raws([*messages(2), *(last if kept == 2**7 - 1 else [])])
                await other.append_entries("s", last)
                assert raws(await other.load_entries("s")) == raws([*messages(2), *last])


async def test_a_last_entry_that_misses_only_its_newline_is_kept(tmp_path: Path) -> None:
    whole = (await make(tmp_path / "whole", messages(2), messages(3, "last"))).read_bytes()
    for lines in range(1, 7, 2):
        data = b"\n".join(whole.splitlines()[:lines])
        if lines == 5:
            data = whole[:-1]
        folder = tmp_path / f"{lines}"
        folder.mkdir()
        path = write(folder, data)
        async with JsonlStore(folder) as store:
            before = raws(await store.load_entries("s"))
            assert len(before) == {1: 0, 3: 2, 5: 5}[lines]
            await store.verify_session("s")
            await store.append_entries("s", messages(2, "new"))
            await store.append_entries("s", messages(1, "newer"))
            after = raws(await store.load_entries("s"))
            assert after == [*before, *raws(messages(2, "new")), *raws(messages(1, "newer"))]
            assert raws(await store.load_entries("s", after=1)) == after[1:]
            await store.verify_session("s")
        assert os.listdir(folder) == ["s.jsonl"]
        assert path.read_bytes().startswith(data + b"\n")


async def test_a_torn_tail_may_be_any_bytes_that_are_no_entry(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tails = [
        b"\x00" * 5000,
        b"\n",
        b"{}\n[]\nnull\n",
        b"\xff\xfe\n\n\n",
        b'{"id":"x"}\n',
        b"x" * 70_000,
    ]
    for n, tail in enumerate(tails):
        folder = tmp_path / f"{n}"
        path = await make(folder, messages(2))
        whole = path.read_bytes()
        write(folder, whole + tail)
        caplog.clear()
        async with JsonlStore(folder) as store:
            assert raws(await store.load_entries("s")) == raws(messages(2))
            await store.append_entries("s", messages(2))
            assert caplog.records == []
            await store.append_entries("s", messages(1, "new"))
        assert path.read_bytes().startswith(whole)
        assert (folder / "s.torn-1").read_bytes() == tail
        assert "s.torn-1" in caplog.text


async def test_each_torn_tail_is_kept_in_a_file_of_its_own(tmp_path: Path) -> None:
    path = await make(tmp_path, messages(1))
    async with JsonlStore(tmp_path) as store:
        for n in range(1, 4):
            with path.open("ab") as file:
                file.write(b"torn %d" % n)
            await store.append_entries("s", messages(1, f"b{n}"))
        assert len(await store.load_entries("s")) == 4
    for n in range(1, 4):
        assert (tmp_path / f"s.torn-{n}").read_bytes() == b"torn %d" % n


# Damage


async def test_damage_before_the_end_is_an_error_that_names_the_place(tmp_path: Path) -> None:
    path = await make(tmp_path, messages(1), messages(2, "b"), messages(1, "c"))
    lines = path.read_bytes().splitlines(keepends=True)
    damaged = {
        2: b"".join([lines[0], lines[1][:40] + b"\n", *lines[2:]]),
        3: b"".join([*lines[:2], lines[2][:30] + b"\x00" + lines[2][31:], *lines[3:]]),
        4: b"".join([*lines[:3], lines[4]]),
    }
    offsets = {2: len(lines[0]), 3: len(lines[0] + lines[1]), 4: len(b"".join(lines[:3]))}
    for line, data in damaged.items():
        write(tmp_path, data)
        async with JsonlStore(tmp_path) as store:
            for _ in range(2):
                for verb in (
                    store.load_entries("s"),
                    store.load_entries("s", after=3),
                    store.append_entries("s", [text("x")]),
                    store.verify_session("s"),
                ):
                    with pytest.raises(JournalCorruptError) as damage:
                        await verb
                    assert damage.value.place == f"{path}, line {line}, byte {offsets[line]}"
        assert path.read_bytes() == data
        assert os.listdir(tmp_path) == ["s.jsonl"]


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: [*lines, lines[1]],
        lambda lines: [lines[0], lines[2], lines[1], *lines[3:]],
        lambda lines: [*lines[:3], *lines[4:]],
        lambda lines: [*lines[:1], b"\n", *lines[1:]],
        lambda lines: [*lines[:3], lines[4]],
        lambda lines: [*lines[:4], lines[4].replace(b"[3,3]", b"[3,4]")],
        lambda lines: [*lines, foreign("b0")],
        lambda lines: [*lines[:3], foreign("x"), *lines[4:]],
        lambda lines: [lines[0], *lines],
        lambda lines: [*lines[1:]],
        lambda lines: [b"not a journal\n"],
        lambda lines: [lines[0].replace(b'"id":"s"', b'"id":"t"'), *lines[1:]],
    ],
)
async def test_lines_that_are_not_the_next_entry_are_damage(tmp_path: Path, change: object) -> None:
    path = await make(tmp_path, messages(1), messages(3, "b"))
    assert callable(change)
    data = b"".join(change(path.read_bytes().splitlines(keepends=True)))
    write(tmp_path, data)
    async with JsonlStore(tmp_path) as store:
        for verb in (
            store.load_entries("s"),
            store.append_entries("s", [text("x")]),
            store.verify_session("s"),
        ):
            with pytest.raises(JournalCorruptError, match="line"):
                await verb
    assert path.read_bytes() == data


@pytest.mark.parametrize("data", [b"", b"\n", b"{}\n", b"\x00" * 99, b"PK\x03\x04", HEADER[:-20]])
async def test_a_file_that_is_not_a_journal_is_damage_at_line_1(
    tmp_path: Path, data: bytes
) -> None:
    write(tmp_path, data)
    async with JsonlStore(tmp_path) as store:
        for verb in (
            store.load_session("s"),
            store.load_entries("s"),
            store.append_entries("s", [text("x")]),
            store.verify_session("s"),
        ):
            with pytest.raises(JournalCorruptError, match="line 1"):
                await verb
        assert list(await store.session_ids()) == ["s"]


async def test_verify_finds_what_reading_does_not_look_for(tmp_path: Path) -> None:
    path = await make(tmp_path, messages(1), messages(3, "b"), messages(1, "c"))
    whole = path.read_bytes()
    async with JsonlStore(tmp_path) as store:
        await store.verify_session("s")
        for old, new in ((b"m says 0", b"m says 9"), (b"b says 2", b"b says 1")):
            path.write_bytes(whole.replace(old, new))
            assert len(await store.load_entries("s")) == 5
            with pytest.raises(JournalCorruptError, match="line"):
                await store.verify_session("s")
        path.write_bytes(whole.replace(b"c says 0", b"c says 9"))
        for verb in (store.load_entries("s"), store.append_entries("s", messages(1, "d"))):
            with pytest.raises(JournalCorruptError, match="line 6, byte"):
                await verb
        path.write_bytes(whole)
        await store.verify_session("s")


async def test_a_file_that_became_shorter_than_it_was_is_damage(tmp_path: Path) -> None:
    path = await make(tmp_path)
    async with JsonlStore(tmp_path) as store:
        await store.append_entries("s", messages(1))
        size = path.stat().st_size
        await store.append_entries("s", messages(1, "b"))
        os.truncate(path, size)
        for _ in range(2):
            with pytest.raises(JournalCorruptError):
                await store.append_entries("s", messages(1, "c"))
            with pytest.raises(JournalCorruptError):
                await store.load_entries("s")


async def test_a_file_that_was_removed_or_replaced_is_read_anew(tmp_path: Path) -> None:
    path = await make(tmp_path, messages(2))
    whole = path.read_bytes()
    async with JsonlStore(tmp_path) as store:
        await store.load_entries("s")
        (tmp_path / "copy").write_bytes(whole)
        os.replace(tmp_path / "copy", path)
        assert len(await store.load_entries("s", after=1)) == 1
        await store.append_entries("s", messages(1, "c"), expected_seq=2)
        assert [stored.id for stored in await store.load_entries("s")] == ["m0", "m1", "c0"]
        path.unlink()
        with pytest.raises(SessionNotFoundError):
            await store.append_entries("s", messages(1, "d"))
        with pytest.raises(SessionNotFoundError):
            await store.load_entries("s", after=1)


async def test_an_older_copy_in_the_place_of_a_file_is_damage_to_who_wrote_that(
    tmp_path: Path,
) -> None:
    path = await make(tmp_path, messages(2))
    older = path.read_bytes()
    async with JsonlStore(tmp_path) as store:
        await store.append_entries("s", messages(1, "b"))
        newer = path.read_bytes()
        (tmp_path / "copy").write_bytes(older)
        os.replace(tmp_path / "copy", path)
        for after in (0, 1):
            with pytest.raises(JournalCorruptError, match="older copy"):
                await store.load_entries("s", after=after)
        for _ in range(2):
            with pytest.raises(JournalCorruptError, match="older copy"):
                await store.append_entries("s", messages(1, "c"))
        assert path.read_bytes() == older
        (tmp_path / "copy").write_bytes(newer)
        os.replace(tmp_path / "copy", path)
        await store.append_entries("s", messages(1, "c"))
        assert [stored.id for stored in await store.load_entries("s")] == ["m0", "m1", "b0", "c0"]
    path.write_bytes(older)
    async with JsonlStore(tmp_path) as store:
        assert (await store.append_entries("s", messages(1, "d"))).last_seq == 3


# Foreign files


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


# Several processes

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


# Files whose maker died


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
