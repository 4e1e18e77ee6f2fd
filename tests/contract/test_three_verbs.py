"""The suite asks nothing of a store that is not in the contract: three verbs, and to be left."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from perdure import Entry, Receipt, Session, StoredEntry
from perdure.codec import Draft
from perdure.stores.memory import MemoryStore
from perdure.testing import StoreContract


class ThreeVerbs:
    """A store in memory that shows nothing of itself but the contract."""

    def __init__(self) -> None:
        self._store = MemoryStore()

    async def create_session(
        self,
        session_id: str,
        *,
        parent_id: str | None = None,
        entries: Sequence[Draft | Entry] = (),
    ) -> Session:
        return await self._store.create_session(session_id, parent_id=parent_id, entries=entries)

    async def load_entries(self, session_id: str, *, after: int = 0) -> Sequence[StoredEntry]:
        return await self._store.load_entries(session_id, after=after)

    async def append_entries(
        self,
        session_id: str,
        entries: Sequence[Draft | Entry],
        *,
        expected_seq: int | None = None,
        incarnation: str | None = None,
    ) -> Receipt:
        return await self._store.append_entries(
            session_id, entries, expected_seq=expected_seq, incarnation=incarnation
        )

    async def __aenter__(self) -> ThreeVerbs:
        return self

    async def __aexit__(self, *left: object) -> None:
        await self._store.close()


class TestThreeVerbs(StoreContract):
    async def open_store(self, path: Path) -> ThreeVerbs:
        return ThreeVerbs()
