"""What happens around a store: a full disk, one that may not be written, files that are moved."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

import apsw
import pytest

from perdure.codec import Entry
from perdure.errors import AppendUncertainError, SessionNotFoundError, StoreUnavailableError
from perdure.stores.jsonl import JsonlStore
from perdure.stores.sqlite import SqliteStore
from perdure.testing.store_cases import messages, placed, raws
from tests.faults.conftest import Children

Store = JsonlStore | SqliteStore
KINDS = pytest.mark.parametrize("kind", ["jsonl", "sqlite"])


def place_of(kind: str, folder: Path) -> Path:
    return folder / "store" if kind == "jsonl" else folder / "s.db"


def open_at(kind: str, folder: Path) -> Store:
    place = place_of(kind, folder)
    return JsonlStore(place) if kind == "jsonl" else SqliteStore(place)


def remount(disk: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", str(disk)], check=True)


async def check(kind: str, folder: Path, expected: list[Entry]) -> None:
    async with open_at(kind, folder) as store:
        assert raws(await store.load_entries("s")) == raws(expected)
        await store.verify_session("s")
    if kind == "sqlite":
        connection = apsw.Connection(str(place_of(kind, folder)))
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        connection.close()


@pytest.mark.may_block
@KINDS
async def test_a_full_disk_refuses_and_loses_nothing(small_disk: Path, kind: str) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(1 << 20))
    async with open_at(kind, small_disk) as store:
        await store.create_session("s")
        stored = await _fill(store)
        assert len(stored) > 10
        assert raws(await store.load_entries("s")) == raws(stored)
        with pytest.raises((StoreUnavailableError, AppendUncertainError)):
            await store.create_session("t", entries=[placed("big", None, "x" * 3_000_000)])
        ballast.unlink()
        for n in range(3):
            entry = placed(f"after{n}", None, "x" * 10_000)
            await store.append_entries("s", [entry])
            stored.append(entry)
    await check(kind, small_disk, stored)
    await _fill_and_open(kind, small_disk, stored)


async def _fill(store: Store) -> list[Entry]:
    """Appends until the disk is full; what is stored then, whatever the last answer was."""
    stored: list[Entry] = []
    while True:
        entry = placed(f"e{len(stored)}", None, "x" * 10_000)
        try:
            await store.append_entries("s", [entry])
        except (StoreUnavailableError, AppendUncertainError) as error:
            if not re.search("No space|full", str(error)):
                raise
            there = [stored.entry for stored in await store.load_entries("s")]
            may_be_there = isinstance(error, AppendUncertainError)
            assert there == stored or (may_be_there and there == [*stored, entry])
            return there
        stored.append(entry)


async def _fill_and_open(kind: str, folder: Path, stored: list[Entry]) -> None:
    """On a disk without a byte left lines can be read; SQLite needs a little beside its file."""
    with (folder / "ballast").open("wb", buffering=0) as ballast, suppress(OSError):
        while True:
            ballast.write(bytes(4096))
    async with open_at(kind, folder) as store:
        if kind == "jsonl":
            assert raws(await store.load_entries("s")) == raws(stored)
        else:
            with pytest.raises(StoreUnavailableError, match="full"):
                await store.load_entries("s")
    (folder / "ballast").unlink()
    await check(kind, folder, stored)


@pytest.mark.may_block
@KINDS
async def test_a_disk_that_turns_read_only_refuses_and_can_be_read(
    small_disk: Path, kind: str
) -> None:
    async with open_at(kind, small_disk) as store:
        await store.create_session("s", entries=messages(2))
        await store.append_entries("s", messages(1, "a"))
        await store.load_entries("s")
    remount(small_disk, "ro")
    async with open_at(kind, small_disk) as store:
        with pytest.raises(StoreUnavailableError):
            await store.append_entries("s", messages(1, "b"))
        with pytest.raises(StoreUnavailableError):
            await store.create_session("t")
        if kind == "jsonl":
            assert len(await store.load_entries("s")) == 3
    remount(small_disk, "rw")
    async with open_at(kind, small_disk) as store:
        await store.append_entries("s", messages(1, "b"))
    await check(kind, small_disk, [*messages(2), *messages(1, "a"), *messages(1, "b")])


@pytest.mark.may_block
@KINDS
@pytest.mark.parametrize("what", ["file", "folder"])
async def test_a_file_or_folder_that_may_only_be_read(
    tmp_path: Path, children: Children, kind: str, what: str
) -> None:
    async with open_at(kind, tmp_path) as store:
        await store.create_session("s", entries=messages(2))
    place = place_of(kind, tmp_path)
    file = place / "s.jsonl" if kind == "jsonl" else place
    for path in (*tmp_path.parents, tmp_path):
        if path.owner() == file.owner() and str(path).startswith("/tmp/"):
            path.chmod(0o755)
    file.parent.chmod(0o755 if what == "folder" else 0o777)
    file.chmod(0o444)
    child = await children.start("unprivileged", kind, place)
    output, _ = await child.communicate()
    reading, appending, creating = output.decode().split()
    assert reading in {"done", "StoreUnavailableError"}
    assert appending == "StoreUnavailableError"
    assert creating == ("done" if (kind, what) == ("jsonl", "file") else "StoreUnavailableError")
    file.chmod(0o600)
    await check(kind, tmp_path, messages(2))


@KINDS
async def test_a_file_that_is_moved_away_is_not_written_any_more(tmp_path: Path, kind: str) -> None:
    async with open_at(kind, tmp_path) as store:
        await store.create_session("s", entries=messages(2))
        await store.append_entries("s", messages(1, "a"))
        place = place_of(kind, tmp_path)
        file = place / "s.jsonl" if kind == "jsonl" else place
        moved = file.with_name("moved" + file.suffix)
        file.rename(moved)
        before = moved.read_bytes()
        for _ in range(2):
            with pytest.raises((SessionNotFoundError, StoreUnavailableError)):
                await store.append_entries("s", messages(1, "b"))
            with pytest.raises((SessionNotFoundError, StoreUnavailableError)):
                await store.load_entries("s")
        assert moved.read_bytes() == before
        moved.rename(file)
        await store.append_entries("s", messages(1, "b"))
    await check(kind, tmp_path, [*messages(2), *messages(1, "a"), *messages(1, "b")])


async def test_a_database_that_is_replaced_keeps_its_own_log(tmp_path: Path) -> None:
    """What the store does with the file it had open harms nothing of the one in its place."""
    other = tmp_path / "other"
    other.mkdir()
    async with SqliteStore(other / "s.db") as writer:
        await writer.create_session("s", entries=messages(1, "new"))
        await writer.append_entries("s", messages(1, "newer"))
        names = [name for name in os.listdir(other) if not name.endswith("-shm")]
        copies = {name: (other / name).read_bytes() for name in names}
    assert len(copies["s.db-wal"]) > 0
    async with SqliteStore(tmp_path / "s.db") as store:
        await store.create_session("s", entries=messages(2))
        await store.load_entries("s")
        for name in os.listdir(tmp_path):
            if name.startswith("s.db"):
                (tmp_path / name).rename(tmp_path / f"old-{name}")
        for name, data in copies.items():
            (tmp_path / name).write_bytes(data)
        with pytest.raises(StoreUnavailableError, match="replaced"):
            await store.append_entries("s", messages(1, "b"))
        with pytest.raises(StoreUnavailableError, match="replaced"):
            await store.load_entries("s")
    await check("sqlite", tmp_path, [*messages(1, "new"), *messages(1, "newer")])
    shutil.rmtree(other)
