from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from perdure.clock import new_id
from perdure.runtimes.child import Charge
from perdure.runtimes.contract import Runtime
from perdure.runtimes.subprocess_runtime import start_subprocess
from perdure.testing import RuntimeContract


def charge(workspace: Path, *, lost_after_s: float = 15.0) -> Charge:
    return Charge(str(workspace), "sub", new_id(), lost_after_s)


class TestSubprocessRuntime(RuntimeContract):
    @asynccontextmanager
    async def open_runtime(self, workspace: Path) -> AsyncIterator[Runtime]:
        runtime = await start_subprocess(charge(workspace))
        try:
            yield runtime
        finally:
            await runtime.close()
