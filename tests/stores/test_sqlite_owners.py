"""How a SQLite file keeps whose its sessions are: beside them, in step with them, and checked."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import apsw
import pytest

from perdure.entry import text
from perdure.errors import JournalCorruptError
from perdure.fact import SessionOwned
from perdure.stores.sqlite import SqliteStore
from perdure.stores.sqlite.schema import has_owners
from perdure.testing.owner_cases import ids_of


def run(path: Path, *statements: str) -> list[Any]:
    """What another program that opens the file does to it; the rows of the last statement."""
    connection = apsw.Connection(str(path))
    try:
        return [connection.execute(each).fetchall() for each in statements][-1]
    finally:
        connection.close()


async def make(path: Path, owners: Iterable[str | None]) -> None:
    async with SqliteStore(path) as store:
        for n, owner in enumerate(owners):
            owned = [] if owner is None else [SessionOwned(owner)]
            await store.create_session(f"{n}", entries=[*owned, text("hello")])


async def test_a_file_without_owners_has_no_table_of_them(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    await make(path, [None, None])
    connection = apsw.Connection(str(path))
    assert not has_owners(connection)
    connection.close()
    async with SqliteStore(path) as store:
        assert await ids_of(store, "anna") == []
        assert await store.load_owner("0") is None
        await store.create_session("new", entries=[SessionOwned("anna")])
        assert await ids_of(store, "anna") == ["new"]


async def test_a_version_that_does_not_know_the_table_keeps_it_true(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    await make(path, ["anna", "anna", "anna"])
    moved = "UPDATE sessions SET last_pos = 100 WHERE session_id = '0'"
    deleted = "UPDATE sessions SET deleted = 1, header = x'' WHERE session_id = '1'"
    run(path, moved, deleted, "UPDATE meta SET value = 100 WHERE name = 'last_pos'")
    async with SqliteStore(path) as store:
        assert await ids_of(store, "anna") == ["0", "2"]


async def test_a_page_of_an_owner_touches_no_session_of_others(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    await make(path, ["anna"])
    plan = run(
        path,
        "EXPLAIN QUERY PLAN SELECT number FROM owners AS o JOIN sessions ON number = o.session "
        "WHERE kind = 'session' AND deleted = 0 AND o.last_pos < 9 AND o.owner = 'anna' "
        "ORDER BY o.last_pos DESC LIMIT 51",
    )
    steps = [str(row[3]) for row in plan]
    assert "newest_of (owner=? AND last_pos<?)" in steps[0]
    assert "USING INTEGER PRIMARY KEY" in steps[1]
    assert len(steps) == 2  # and nothing is sorted


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE owners SET owner = 'bob' WHERE session = 1",
        "DELETE FROM owners WHERE session = 1",
        "UPDATE owners SET last_pos = 1 WHERE session = 1",
        "INSERT INTO owners VALUES (2, 'bob', 3)",
    ],
)
async def test_an_owner_that_is_not_what_the_entries_say_is_damage(
    tmp_path: Path, change: str
) -> None:
    path = tmp_path / "s.db"
    await make(path, ["anna", None])
    async with SqliteStore(path) as store:
        for session_id in "01":
            await store.verify_session(session_id)
    run(path, change)
    async with SqliteStore(path) as store:
        hurt = "1" if "VALUES" in change else "0"
        with pytest.raises(JournalCorruptError, match="table owners"):
            await store.verify_session(hurt)


async def test_an_owner_of_no_session_is_damage_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    await make(path, ["anna"])
    run(path, "INSERT INTO owners VALUES (77, 'bob', 3)")
    async with SqliteStore(path) as store:
        (damage,) = await store.verify_store()
    assert "owners has rows of session number 77" in str(damage)
