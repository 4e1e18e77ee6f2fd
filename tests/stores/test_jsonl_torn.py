"""A torn tail is cut off, kept beside the log, and nothing before it is lost."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perdure.stores.jsonl import JsonlStore
from perdure.testing.store_cases import messages, placed, raws, seqs
from tests.stores.jsonl_file import make, write


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
