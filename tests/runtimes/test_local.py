from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from perdure.runtimes.contract import Runtime
from perdure.runtimes.local import open_local
from perdure.testing import RuntimeContract


class TestLocalRuntime(RuntimeContract):
    @asynccontextmanager
    async def open_runtime(self, workspace: Path) -> AsyncIterator[Runtime]:
        runtime = await open_local(workspace)
        try:
            yield runtime
        finally:
            await runtime.close()
