"""A runtime in a subprocess: started, watched and ended by whoever needs it.

It is lost when its process dies, and when it stands still for `lost_after_s`; then its whole
process group is killed, so that nothing of it wakes up later.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from perdure.entry import Json, ToolCall, ToolResult
from perdure.errors import ConfigurationError, RuntimeLostError
from perdure.loop import ToolSpec
from perdure.runtimes.child import READY, Charge
from perdure.runtimes.contract import CallOrigin, Show
from perdure.runtimes.link import Link, WireClosedError
from perdure.runtimes.linked import LinkedRuntime
from perdure.runtimes.socket_wire import SocketWire

log = logging.getLogger(__name__)

GRACE_S = 5.0
"""How long it may take to end by itself."""

_START_S = 30.0


class SubprocessRuntime:
    """One life of a runtime in a subprocess; `start_subprocess` makes one."""

    def __init__(self, popen: subprocess.Popen[bytes], link: Link, runtime_id: str) -> None:
        self._popen = popen
        self._link = link
        self._linked = LinkedRuntime(link, runtime_id)
        self._ending = asyncio.create_task(self._end_when_lost())

    @property
    def runtime_id(self) -> str:
        """The id of this life."""
        return self._linked.runtime_id

    @property
    def pid(self) -> int:
        """The id of its process, which leads a process group."""
        return self._popen.pid

    async def start(self) -> None:
        """Begins the session with the process."""
        await self._linked.start()

    async def tools(self) -> Sequence[ToolSpec]:
        """The tools that it has now."""
        return await self._linked.tools()

    async def call(
        self, call: ToolCall, arguments: Json, origin: CallOrigin, show: Show
    ) -> ToolResult:
        """Runs a tool there."""
        return await self._linked.call(call, arguments, origin, show)

    async def confirm(self, key: str) -> None:
        """Tells it that this result is stored."""
        await self._linked.confirm(key)

    async def until_lost(self) -> str:
        """Waits until it is lost or closed, and says why."""
        return await self._linked.until_lost()

    async def close(self) -> None:
        """Ends the process, its commands first; returns when nothing is left."""
        await self._linked.close()
        await asyncio.shield(self._ending)

    async def _end_when_lost(self) -> None:
        await self._link.until_lost()
        await end_process(self._popen, grace_s=0 if self._link.was_silent else GRACE_S)


async def start_subprocess(charge: Charge) -> SubprocessRuntime:
    """Starts a runtime in a process of its own.

    Raises:
        ConfigurationError: it cannot be what it is asked to be.
        RuntimeLostError: it ended before it was one.

    """
    runtime_id = f"{charge.name}/{charge.life}"
    ours, theirs = socket.socketpair()
    try:
        popen = await _spawn(theirs)
    except OSError as error:
        ours.close()
        raise RuntimeLostError(runtime_id, f"it could not be started: {error}") from error
    finally:
        theirs.close()
    wire: SocketWire | None = None
    try:
        wire = await SocketWire.over(ours)
        async with asyncio.timeout(_START_S):
            await wire.send(msgspec.json.encode(charge).decode())
            answer = await wire.receive()
        if answer != READY:
            raise ConfigurationError(answer)
        link = Link(wire, lost_after_s=charge.lost_after_s)
        link.start()
    except BaseException as error:
        if wire is None:
            ours.close()
        else:
            await wire.close("it did not start")
        await end_process(popen, grace_s=0)
        if isinstance(error, WireClosedError | TimeoutError):
            why = f"it ended as it started, with status {popen.returncode}; the log says more"
            raise RuntimeLostError(runtime_id, why) from error
        raise
    runtime = SubprocessRuntime(popen, link, runtime_id)
    try:
        await runtime.start()
    except BaseException:
        await runtime.close()
        raise
    return runtime


async def _spawn(end: socket.socket) -> subprocess.Popen[bytes]:
    """The process; from this thread, whose death is what a dying parent is taken for."""
    program = [sys.executable, "-m", "perdure.runtimes.child", str(end.fileno()), str(os.getpid())]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return subprocess.Popen(  # noqa: ASYNC220  # it takes milliseconds, and has to be this thread
        program,
        stdin=subprocess.DEVNULL,
        stdout=2,
        pass_fds=(end.fileno(),),
        start_new_session=True,
        env=environment,
    )


async def end_process(popen: subprocess.Popen[bytes], *, grace_s: float) -> None:
    """Waits for a process to end by itself, then kills its group; returns when it is reaped."""
    try:
        with suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(popen.wait, grace_s)
    finally:
        if popen.poll() is None:  # not reaped, so the number is still its own
            os.killpg(popen.pid, signal.SIGKILL)
    await asyncio.to_thread(popen.wait)
