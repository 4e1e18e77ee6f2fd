from pathlib import Path

from perdure.stores.jsonl import JsonlStore
from perdure.testing import StoreContract


class TestJsonl(StoreContract):
    durable = True

    async def open_store(self, path: Path) -> JsonlStore:
        return JsonlStore(path / "sessions")
