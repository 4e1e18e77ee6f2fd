from pathlib import Path

from perdure.stores.sqlite import SqliteStore
from perdure.testing import JournalContract


class TestSqlite(JournalContract):
    durable = True

    async def open_store(self, path: Path) -> SqliteStore:
        return SqliteStore(path / "sessions.db")
