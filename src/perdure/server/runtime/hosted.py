"""A runtime that the server starts when it is first needed, and stops when it has been idle."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from importlib import import_module

from perdure.clock import new_id
from perdure.errors import MissingExtraError, PerdureError, RuntimeLostError
from perdure.runtimes.command_tool import CommandLimits
from perdure.runtimes.contract import Runtime
from perdure.runtimes.local import open_local
from perdure.runtimes.source import sources_of
from perdure.runtimes.table import McpServer, RuntimeTable
from perdure.server.runtime.slot import Slot

log = logging.getLogger(__name__)


def _import_link() -> None:
    """Imports what speaks to a subprocess: it takes too long for the event loop."""
    try:
        import_module("perdure.runtimes.subprocess_runtime")
    except ModuleNotFoundError as error:
        raise MissingExtraError("a runtime in a subprocess", "runtimes") from error


class HostedSlot(Slot):
    """An in-process runtime, or one in a subprocess."""

    def __init__(
        self, name: str, table: RuntimeTable, workspace: str, mcp: Mapping[str, McpServer]
    ) -> None:
        super().__init__(name, table)
        self._folder = os.path.abspath(workspace)
        self._mcp = dict(mcp)
        self._changing = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._resting: asyncio.Task[None] | None = None

    async def close(self) -> None:
        """Ends the life that runs; nothing starts afterwards."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        async with self._changing:
            await self._stop()
        if self._resting is not None:
            await asyncio.wait([self._resting])

    async def _need(self) -> Runtime:
        async with self._changing:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if self._is_closed:
                raise RuntimeLostError(self.name, "the server is shutting down")
            if self._runtime is None:
                try:
                    runtime = await self._start()
                except RuntimeLostError as error:
                    self._become("lost", error.runtime_id, error.cause)
                    raise
                except PerdureError as error:
                    self._become("lost", None, str(error))
                    raise RuntimeLostError(self.name, str(error)) from error
                self._attached(runtime)
            assert self._runtime is not None
            return self._runtime

    async def _start(self) -> Runtime:
        table, life = self.table, new_id()
        limits = CommandLimits(
            timeout_s=table.command_timeout_s, max_output_bytes=table.max_output_bytes
        )
        if table.kind == "in-process":
            return await open_local(
                self._folder,
                name=self.name,
                life=life,
                sources=await asyncio.to_thread(sources_of, self._mcp, self._folder),
                chosen=table.tools,
                limits=limits,
                excerpt_chars=table.excerpt_chars,
            )
        await asyncio.to_thread(_import_link)
        from perdure.runtimes.child import Charge
        from perdure.runtimes.subprocess_runtime import start_subprocess

        charge = Charge(
            workspace=self._folder,
            name=self.name,
            life=life,
            lost_after_s=table.lost_after_s,
            tools=table.tools,
            excerpt_chars=table.excerpt_chars,
            limits=limits,
            mcp=self._mcp,
        )
        return await start_subprocess(charge)

    def _rest(self) -> None:
        if self._runtime is not None and not self._is_closed:
            if self._timer is not None:  # of a need that was cut off before it could start
                self._timer.cancel()
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self.table.idle_after_s, self._begin_to_idle)

    def _begin_to_idle(self) -> None:
        self._timer = None
        self._resting = asyncio.create_task(self._idle())

    async def _idle(self) -> None:
        async with self._changing:
            if not self._users and self._runtime is not None:
                log.info("runtime %s is stopped: nobody uses it", self._runtime.runtime_id)
                await self._stop()

    def _workspace(self) -> str | None:
        return self._folder
