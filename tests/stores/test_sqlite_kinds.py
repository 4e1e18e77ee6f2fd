"""Journals of other kinds in the file of a SQLite store: verified with it, and found when hurt."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from perdure.stores.sqlite import SqliteStore
from perdure.testing.store_cases import messages


async def test_verify_reads_the_journals_of_other_kinds(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with SqliteStore(path) as store:
        await store.create_session("x", entries=messages(3))
        await store.of_kind("routine").create_session("x", entries=messages(3))
        assert await store.verify_store() == []
        assert await store.session_ids() == ("x",)
    connection = apsw.Connection(str(path))
    connection.execute(
        "UPDATE entries SET sum = zeroblob(16) WHERE seq = 2 AND session = "
        "(SELECT number FROM sessions WHERE kind = 'routine')"
    )
    connection.close()
    async with SqliteStore(path) as store:
        await store.verify_session("x")
        (damage,) = await store.verify_store()
        assert (damage.session_id, damage.seq) == ("x", 2)


async def test_a_kind_that_nobody_knows_is_refused_and_found(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with SqliteStore(path) as store:
        await store.create_session("x", entries=messages(1))
        with pytest.raises(ValueError, match="routine"):
            store.of_kind("other")  # type: ignore[arg-type]  # as a caller without types
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE sessions SET kind = 'other'")
    connection.close()
    async with SqliteStore(path) as store:
        (damage,) = await store.verify_store()
        assert "which this version does not know" in str(damage)


async def test_a_view_keeps_its_store_alive(tmp_path: Path) -> None:
    routines = SqliteStore(tmp_path / "s.db").of_kind("routine")
    await routines.create_session("r")
    assert (await routines.look("r")).last_seq == 0
    await routines.close()
