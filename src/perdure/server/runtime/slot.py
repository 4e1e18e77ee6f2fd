"""One named runtime of the server, whichever of its lives runs: where turns come to use it."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from perdure.clock import now
from perdure.errors import RuntimeLostError
from perdure.runtimes.contract import Runtime
from perdure.runtimes.local import LocalRuntime
from perdure.runtimes.table import RuntimeTable
from perdure.server.runtime.look import RuntimeLook, RuntimeStatus

log = logging.getLogger(__name__)

_REMEMBERED = 64
_SESSIONS = 10_000


class Slot(ABC):
    """What the kinds share: who uses it, which life runs, and which ones were lost."""

    def __init__(self, name: str, table: RuntimeTable) -> None:
        self.name = name
        self.table = table
        self._runtime: Runtime | None = None
        self._watching: asyncio.Task[None] | None = None
        self._status: RuntimeStatus = "idle"
        self._since = now()
        self._runtime_id: str | None = None
        self._cause: str | None = None
        self._lost: dict[str, str] = {}
        self._sessions: dict[str, None] = {}
        self._users = 0
        self._is_closed = False
        self.on_change: Callable[[Slot], object] | None = None
        """Hears of a look that is not what it was."""

    @asynccontextmanager
    async def using(self, session_id: str) -> AsyncIterator[Runtime]:
        """The life that runs, for as long as the block takes; it is started if it has to be.

        Raises:
            RuntimeLostError: there is none, and none can be had.

        """
        self._users += 1
        self._tell()
        try:
            if self._is_closed:
                raise RuntimeLostError(self.name, "the server is shutting down")
            runtime = await self._need()
            if session_id not in self._sessions and len(self._sessions) < _SESSIONS:
                self._sessions[session_id] = None
            yield runtime
        finally:
            self._users -= 1
            self._tell()
            if not self._users:
                self._rest()

    @property
    def current(self) -> Runtime | None:
        """The life that runs, if there is one; asking starts none, and is no use of it."""
        return self._runtime

    def lost_cause(self, runtime_id: str) -> str | None:
        """Why this life was lost; None if it was not: it runs, or was stopped when it was idle."""
        return self._lost.get(runtime_id)

    def look(self) -> RuntimeLook:
        """The runtime as it is now."""
        runtime = self._runtime
        return RuntimeLook(
            name=self.name,
            kind=self.table.kind,
            status=self._status,
            since=self._since,
            runtime_id=self._runtime_id,
            workspace=self._workspace(),
            sessions=len(self._sessions),
            calls=self._users,
            cause=self._cause,
            troubles=runtime.troubles if isinstance(runtime, LocalRuntime) else {},
        )

    async def close(self) -> None:
        """Ends the life that runs; nothing starts afterwards."""
        self._is_closed = True
        await self._stop()

    @abstractmethod
    async def _need(self) -> Runtime:
        """The life that runs; RuntimeLostError where there is none to be had."""

    @abstractmethod
    def _rest(self) -> None:
        """Nobody uses it any more."""

    @abstractmethod
    def _workspace(self) -> str | None:
        """Where its workspace is, where that is known."""

    def _attached(self, runtime: Runtime) -> None:
        """A life runs."""
        if runtime.runtime_id != self._runtime_id:
            self._sessions = {}
        self._runtime = runtime
        self._become("attached", runtime.runtime_id, None)
        self._lost.pop(runtime.runtime_id, None)
        self._watching = asyncio.create_task(self._watch(runtime))
        log.info("runtime %s is attached", runtime.runtime_id)

    async def _watch(self, runtime: Runtime) -> None:
        cause = await runtime.until_lost()
        if self._runtime is not runtime:
            return
        self._runtime = None
        self._lost[runtime.runtime_id] = cause
        while len(self._lost) > _REMEMBERED:
            del self._lost[next(iter(self._lost))]
        self._become("lost", runtime.runtime_id, cause)
        log.warning("runtime %s was lost: %s", runtime.runtime_id, cause)
        await runtime.close()

    async def _stop(self) -> None:
        """Ends the life that runs, on purpose."""
        runtime, watching = self._runtime, self._watching
        self._runtime = None
        if runtime is not None:
            self._become("idle", None, None)
            await runtime.close()
        if watching is not None:
            await asyncio.wait([watching])

    def _become(self, status: RuntimeStatus, runtime_id: str | None, cause: str | None) -> None:
        self._status, self._since = status, now()
        self._runtime_id, self._cause = runtime_id, cause
        self._tell()

    def _tell(self) -> None:
        if self.on_change is not None:
            self.on_change(self)
