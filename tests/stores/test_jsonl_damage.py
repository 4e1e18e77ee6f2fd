"""Damage anywhere but at the end is an error that names the place."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perdure.entry import text
from perdure.errors import (
    JournalCorruptError,
    SessionNotFoundError,
)
from perdure.stores.jsonl import JsonlStore
from perdure.testing.store_cases import messages
from tests.stores.jsonl_file import HEADER, foreign, make, write


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
