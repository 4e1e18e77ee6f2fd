"""A session whose header is broken shows as unrecoverable in its place, and hides no other."""

from __future__ import annotations

from pathlib import Path

import apsw

from perdure.entry import text
from perdure.stores.sqlite import SqliteStore
from tests.server.house import House


async def test_a_listing_shows_it_as_unrecoverable_among_the_others(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "s.db") as store:
        for session_id in ("old", "hurt", "new"):
            await store.create_session(session_id, entries=[text("hello")])
    connection = apsw.Connection(str(tmp_path / "s.db"))
    connection.execute("UPDATE sessions SET header = x'7b' WHERE session_id = 'hurt'")
    connection.close()
    async with SqliteStore(tmp_path / "s.db") as store:
        house = House(store)
        looks, more = await house.registry.list()
        assert [look.session_id for look in looks] == ["new", "hurt", "old"]
        assert [look.status == "unrecoverable" for look in looks] == [False, True, False]
        assert "its header" in str(looks[1].cause)
        assert more is None
        await house.registry.close()
