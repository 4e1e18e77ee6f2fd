from pathlib import Path

from perdure.stores.memory import MemoryStore
from perdure.testing import JournalContract


class TestMemory(JournalContract):
    async def open_store(self, path: Path) -> MemoryStore:
        return MemoryStore()
