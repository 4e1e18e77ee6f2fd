from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from perdure.server.journal import JournalStore
from perdure.stores.memory import MemoryStore
from perdure.stores.sqlite import SqliteStore
from tests.server.house import House

pytest.register_assert_rewrite("tests.server.feed_watcher", "tests.server.feed_world")


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[JournalStore]:
    made = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "sessions.db")
    async with made as store:
        yield store


@pytest.fixture
async def house(store: JournalStore) -> AsyncIterator[House]:
    house = House(store)
    await house.create()
    yield house
    await house.close()
