"""The file is taken away under an open store, or its disk is full: nothing is stored nowhere."""

import os
from pathlib import Path

import apsw
import pytest

from perdure.entry import text
from perdure.errors import StoreUnavailableError
from perdure.stores.sqlite import SqliteStore
from perdure.stores.sqlite.connection import open_writer
from perdure.testing.store_cases import messages, raws


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "s.db"


def raw_bytes(path: Path) -> bytes:
    return path.read_bytes()


async def test_nothing_is_acknowledged_once_the_file_is_removed(place: Path) -> None:
    async with SqliteStore(place) as store:
        await store.create_session("s", entries=messages(3))
        await store.load_entries("s")
        os.unlink(place)
        for verb in (
            lambda: store.append_entries("s", [text("lost?")]),
            lambda: store.create_session("new"),
            lambda: store.load_entries("s"),
            lambda: store.load_session("s"),
        ):
            with pytest.raises(StoreUnavailableError, match="removed"):
                await verb()
        assert place.name not in os.listdir(place.parent)


async def test_a_file_that_is_put_back_is_gone_on_with(place: Path) -> None:
    async with SqliteStore(place) as store:
        session = await store.create_session("s", entries=messages(3))
        os.rename(place, f"{place}.away")
        with pytest.raises(StoreUnavailableError):
            await store.append_entries("s", [text("refused")])
        os.rename(f"{place}.away", place)
        receipt = await store.append_entries("s", [text("x")], incarnation=session.incarnation)
        assert receipt.last_seq == 4
        assert raws(await store.load_entries("s"))[:3] == raws(messages(3))


async def test_another_file_in_its_place_is_neither_read_nor_written(place: Path) -> None:
    other = place.with_name("other.db")
    async with SqliteStore(other) as store:
        await store.create_session("s", entries=messages(5))
    before = raw_bytes(other)
    async with SqliteStore(place) as store:
        await store.create_session("s", entries=messages(3))
        assert len(await store.load_entries("s")) == 3
        os.rename(other, place)
        for verb in (
            lambda: store.append_entries("s", [text("lost?")]),
            lambda: store.load_entries("s"),
            lambda: store.try_write(),
        ):
            with pytest.raises(StoreUnavailableError, match=r"replaced.*-wal"):
                await verb()
    assert raw_bytes(place) == before
    os.unlink(f"{place}-wal")  # as the error says
    async with SqliteStore(place) as store:
        assert len(await store.load_entries("s")) == 5


async def test_what_is_stored_can_be_read_on_a_full_disk(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SqliteStore(place) as store:
        await store.create_session("s", entries=messages(3))

    def full(connection: apsw.Connection, pragma_text: str) -> object:
        if pragma_text.startswith("wal_checkpoint"):
            raise apsw.FullError("database or disk is full")
        rows = connection.execute(f"PRAGMA {pragma_text}").fetchall()
        return rows[0][0] if rows else None

    monkeypatch.setattr(f"{open_writer.__module__}.pragma", full)
    async with SqliteStore(place) as store:
        assert raws(await store.load_entries("s")) == raws(messages(3))
