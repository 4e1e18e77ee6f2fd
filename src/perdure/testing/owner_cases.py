"""What every JournalStore promises of owners: they follow from the entries, at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.entry import text
from perdure.errors import SessionNotFoundError
from perdure.fact import SessionOwned
from perdure.server.journal import JournalStore
from perdure.testing.journal_cases import JournalCases


async def ids_of(store: JournalStore, owner: str | None, *, limit: int = 50) -> list[str]:
    """The ids that a listing gives, page by page."""
    found: list[str] = []
    after = None
    while True:
        page = await store.list_sessions(limit=limit, after=after, owner=owner)
        assert len(page.sessions) <= limit
        found += [look.session.id for look in page.sessions]
        if (after := page.next) is None:
            return found


class OwnerCases(JournalCases):
    """Whose a session is: one behaviour a case."""

    async def test_an_owner_follows_from_the_first_entries(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            await store.create_session("nobody's")
            await store.create_session("anna's", entries=[SessionOwned("anna"), text("hello")])
            assert await store.load_owner("nobody's") is None
            assert await store.load_owner("anna's") == "anna"
            with pytest.raises(SessionNotFoundError):
                await store.load_owner("not there")

    async def test_a_listing_of_an_owner_has_only_what_is_theirs(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            assert await ids_of(store, "anna") == []
            await store.create_session("free")
            for n in range(7):
                for name in ("anna", "Anna", "bob"):
                    await store.create_session(f"{name} {n}", entries=[SessionOwned(name)])
            await store.append_entries("anna 2", [text("newest")])
            await store.append_entries("bob 0", [text("newer")])
            expected = [f"anna {n}" for n in (2, 6, 5, 4, 3, 1, 0)]
            assert await ids_of(store, "anna") == expected
            assert await ids_of(store, "anna", limit=2) == expected
            assert await ids_of(store, "anna", limit=7) == expected
            assert len(await ids_of(store, "Anna")) == 7
            for other in ("ann", "anna%", "*", "", "\ud800"):
                assert await ids_of(store, other) == []
            assert len(await ids_of(store, None, limit=4)) == 22

    async def test_the_newest_owner_counts(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            await store.create_session("s")
            await store.append_entries("s", [SessionOwned("anna"), text("a")])
            assert await ids_of(store, "anna") == ["s"]
            await store.append_entries("s", [SessionOwned("bob"), SessionOwned("carl")])
            assert await store.load_owner("s") == "carl"
            assert await ids_of(store, "anna") == []
            assert await ids_of(store, "carl") == ["s"]

    async def test_a_deleted_session_is_nobody_s(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            await store.create_session("s", entries=[SessionOwned("anna")])
            await store.delete_session("s")
            assert await ids_of(store, "anna") == []
            with pytest.raises(SessionNotFoundError):
                await store.load_owner("s")
            await store.create_session("s")
            assert await store.load_owner("s") is None
            assert await ids_of(store, "anna") == []

    async def test_an_owner_outlives_a_restart(self, tmp_path: Path) -> None:
        if not self.durable:
            pytest.skip("this store keeps nothing when it is closed")
        async with await self.open_store(tmp_path) as store:
            for n in range(3):
                await store.create_session(f"{n}", entries=[SessionOwned("anna")])
            await store.append_entries("0", [text("x")])
        async with await self.open_store(tmp_path) as store:
            assert await store.load_owner("1") == "anna"
            await store.append_entries("1", [text("x")])
            assert await ids_of(store, "anna", limit=1) == ["1", "0", "2"]
