"""A runtime that dials in, over a real server's WebSocket."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from perdure.runtimes.contract import Runtime
from perdure.testing import RuntimeContract
from tests.runtimes.world import FAR, dialed_in, serving_far


class TestRemoteRuntime(RuntimeContract):
    ends_on_close = False  # the runtime is not the server's to end: it goes on, and dials in again

    @asynccontextmanager
    async def open_runtime(self, workspace: Path) -> AsyncIterator[Runtime]:
        async with (
            serving_far(lost_after_s=15) as server,
            dialed_in(server.base, workspace),
        ):
            slot = server.service.runtimes.guest(FAR, None)
            async with slot.using("session") as runtime:
                yield runtime
