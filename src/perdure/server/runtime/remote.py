"""A runtime that dials in, from this machine or another; the server waits for it, a while."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from perdure.errors import RuntimeLostError
from perdure.runtimes.contract import Runtime
from perdure.runtimes.table import RuntimeTable
from perdure.server.runtime.slot import Slot


class NameTakenError(Exception):
    """Another runtime is attached by this name, and is well."""


class RemoteSlot(Slot):
    """A runtime elsewhere. `owner` is whose it is, unless `is_shared`: any session may use it."""

    def __init__(
        self, name: str, table: RuntimeTable, owner: str | None = None, *, is_shared: bool = False
    ) -> None:
        super().__init__(name, table)
        self.owner = owner
        self.is_shared = is_shared
        self.workspace: str | None = None
        self._arrived = asyncio.Event()

    def check_free(self, runtime_id: str) -> None:
        """Returns if this life may attach: the one that runs is none, or is itself, come again.

        Raises:
            NameTakenError: another one is attached. If it is dead it is lost in bounded time.

        """
        if self._runtime is not None and self._runtime.runtime_id != runtime_id:
            raise NameTakenError(self._runtime.runtime_id)

    async def attach(self, runtime: Runtime, workspace: str | None) -> None:
        """Takes a life that dialed in; an older link of the same life is lost by that.

        Raises:
            NameTakenError: another one was quicker.

        """
        self.check_free(runtime.runtime_id)
        before = self._runtime
        if before is not None:
            watching = self._watching
            await before.close()
            if watching is not None:
                await asyncio.wait([watching])  # until it is noted as lost
            self.check_free(runtime.runtime_id)
        self.workspace = workspace
        self._attached(runtime)
        self._arrived.set()

    async def close(self) -> None:
        """Lets the life go that is attached; who waits for one waits no longer."""
        self._is_closed = True
        self._arrived.set()
        await self._stop()

    async def _need(self) -> Runtime:
        if self._runtime is None:
            self._arrived.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(self.table.attach_within_s):
                    await self._arrived.wait()
        if self._runtime is None:
            why = "it is not attached: start it with perdure runtime --connect, where it should run"
            raise RuntimeLostError(self._runtime_id or self.name, self._cause or why)
        return self._runtime

    def _rest(self) -> None:
        """It is not the server's to stop."""

    def _workspace(self) -> str | None:
        return self.workspace
