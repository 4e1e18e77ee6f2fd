"""What every group of a JournalStore's cases needs: how to open one."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path

import pytest

from perdure.server.journal import JournalStore
from perdure.testing.store_cases import StoreCases


class JournalCases(StoreCases):
    """The root of these groups."""

    @abstractmethod
    async def open_store(self, path: Path) -> JournalStore:
        """Opens the store that lives under `path`, an empty folder at first."""

    async def open_again(self, path: Path) -> JournalStore:
        """Opens a store that was closed once more; skips the case where nothing outlives it."""
        if not self.durable:
            pytest.skip("this store keeps nothing when it is closed")
        return await self.open_store(path)
