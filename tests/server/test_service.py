"""What a server is made of is closed, each part whatever became of the others."""

from __future__ import annotations

import pytest

from perdure.errors import RuntimeLostError
from perdure.runtimes.contract import Runtime
from perdure.server.config import Settings
from perdure.server.service import open_service
from perdure.server.session.registry import Registry
from perdure.stores.memory import MemoryStore
from perdure.testing.scripted_loop import ScriptedLoop
from tests.server.live import OneLoop


class BrokenError(Exception):
    """A fault of a part that is being closed."""


async def test_what_cannot_be_closed_holds_up_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    close = Registry.close

    async def close_and_fail(registry: Registry) -> None:
        await close(registry)
        raise BrokenError

    monkeypatch.setattr(Registry, "close", close_and_fail)
    used: list[Runtime] = []

    async def serve() -> None:
        loops = OneLoop(ScriptedLoop([]))
        async with (
            open_service(Settings(), MemoryStore(), loops) as service,
            service.runtimes._slots["local"].using("s") as runtime,
        ):
            used.append(runtime)
            await runtime.tools()

    with pytest.raises(BrokenError):
        await serve()
    with pytest.raises(RuntimeLostError):
        await used[0].tools()
