"""A server, runtimes that dial in to it, and a line between them that can go silent."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from perdure.clock import new_id
from perdure.entry import Json, ToolCall, ToolResult
from perdure.runtimes.dial import dial
from perdure.runtimes.late import LateCall
from perdure.runtimes.local import open_local
from perdure.runtimes.serving import Serving
from perdure.server.runtime.look import RuntimeLook
from perdure.server.runtime.runtimes import Runtimes
from perdure.server.runtime.toolbox import Toolbox
from perdure.testing.runtime_cases import until
from tests.server.live import TOKEN, Running, running
from tests.serving import REPO

FAR = "far"
LOST_AFTER_S = 1.0
NOTICED_S = 4 * LOST_AFTER_S
"""What a busy machine may add to the bound."""


def tables(**far: Any) -> dict[str, Any]:
    """Settings with a remote runtime that is lost soon."""
    table = {"kind": "remote", "lost_after_s": LOST_AFTER_S, "attach_within_s": 20, **far}
    return {"tables": {"runtimes": {FAR: table}}}


class Late:
    """Takes late results, as whoever stores them does."""

    def __init__(self) -> None:
        self.calls: list[LateCall] = []

    async def __call__(self, late: LateCall) -> None:
        self.calls.append(late)


@asynccontextmanager
async def serving_far(
    late: Late | None = None, *, hosts: Sequence[str] = (), **far: Any
) -> AsyncIterator[Running]:
    """A server that knows a remote runtime."""
    async with running(settings={**tables(**far), "hosts": tuple(hosts)}) as server:
        server.service.runtimes.on_late = late
        yield server


@asynccontextmanager
async def dialed_in(
    base: str, workspace: Path, *, name: str = FAR, token: str = TOKEN
) -> AsyncIterator[Serving]:
    """A runtime in this process that dials in."""
    life = new_id()
    serving = Serving(await open_local(workspace, name=name, life=life))
    dialing = asyncio.create_task(
        dial(serving, base, token=token, name=name, life=life, workspace=str(workspace))
    )
    try:
        yield serving
    finally:
        dialing.cancel()
        await asyncio.wait([dialing])
        await serving.close()


class RuntimeProcess:
    """`perdure runtime` in a process of its own."""

    def __init__(
        self,
        base: str,
        workspace: Path,
        *,
        name: str = FAR,
        token: str = TOKEN,
        before: Sequence[str] = (),
    ) -> None:
        command = [
            *before,
            sys.executable,
            "-m",
            "perdure",
            "runtime",
            "--connect",
            base,
            "--name",
            name,
        ]
        command += ["--workspace", str(workspace)]
        env = os.environ | {
            "PYTHONPATH": os.pathsep.join((str(REPO / "src"), str(REPO))),
            "PERDURE_TOKEN": token,
        }
        self.log = workspace.parent / f"{workspace.name}-{new_id()}.log"
        with self.log.open("ab") as log:
            self._popen = subprocess.Popen(
                command, env=env, stderr=log, stdout=log, cwd=workspace, start_new_session=True
            )

    def send(self, number: signal.Signals) -> None:
        self._popen.send_signal(number)

    async def end(self) -> int:
        """Ends it for good; its exit status."""
        return await asyncio.to_thread(self.stop)

    def stop(self) -> int:
        """The same, where no event loop is to be kept going."""
        self._popen.send_signal(signal.SIGCONT)
        self._popen.terminate()
        try:
            return self._popen.wait(20)
        finally:
            self._popen.kill()
            self._popen.wait()


@asynccontextmanager
async def runtime_process(
    base: str, workspace: Path, *, before: Sequence[str] = ()
) -> AsyncIterator[RuntimeProcess]:
    process = RuntimeProcess(base, workspace, before=before)
    try:
        yield process
    finally:
        await process.end()


class Proxy:
    """A line to a port of this machine. `silent` keeps it open and carries nothing."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self._target = port
        self._host = host
        self._flows = {"up": asyncio.Event(), "down": asyncio.Event()}
        self._tasks = set[asyncio.Task[None]]()
        self._server: asyncio.Server | None = None
        self.accepted = 0
        self.talk()

    @property
    def base(self) -> str:
        assert self._server is not None
        return f"http://{self._host}:{self._server.sockets[0].getsockname()[1]}"

    def silence(self, *ways: str) -> None:
        for way in ways or self._flows:
            self._flows[way].clear()

    def talk(self) -> None:
        for flow in self._flows.values():
            flow.set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._carry, self._host, 0)

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _carry(self, near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.accepted += 1
        try:
            await self._flows["up"].wait()
            far, forth = await asyncio.open_connection("127.0.0.1", self._target)
        except (OSError, asyncio.CancelledError):
            back.transport.abort()
            self._tasks.discard(task)
            return
        pumps = [
            asyncio.create_task(_pump(near, forth, self._flows["up"])),
            asyncio.create_task(_pump(far, back, self._flows["down"])),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            pass
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            back.transport.abort()
            forth.transport.abort()
            self._tasks.discard(task)


async def _pump(
    source: asyncio.StreamReader, sink: asyncio.StreamWriter, flows: asyncio.Event
) -> None:
    with suppress(OSError):
        while data := await source.read(1 << 16):
            await flows.wait()
            sink.write(data)
            await sink.drain()


@asynccontextmanager
async def proxied(base: str, host: str = "127.0.0.1") -> AsyncIterator[Proxy]:
    proxy = Proxy(int(base.rpartition(":")[2]), host)
    await proxy.start()
    try:
        yield proxy
    finally:
        await proxy.close()


def toolbox(runtimes: Runtimes, name: str = FAR) -> Toolbox:
    """The tools of a runtime for a turn of its own."""
    return runtimes.toolbox(name, session_id="s", turn_id=new_id())


async def ask(box: Toolbox, name: str, *, key: str | None = None, **arguments: Json) -> ToolResult:
    """Calls a tool as a turn does."""
    call = ToolCall(f"call-{key}", name, arguments)
    async with asyncio.timeout(60):
        return await box.call(
            call, arguments, key=new_id() if key is None else key, show=lambda text: None
        )


def look(runtimes: Runtimes, name: str = FAR) -> RuntimeLook:
    """What is shown of a runtime."""
    (found,) = (each for each in runtimes.looks(lambda owner: True) if each.name == name)
    return found


async def until_attached(runtimes: Runtimes, name: str = FAR) -> None:
    await until(lambda: look(runtimes, name).status == "attached", f"{name} is attached")


Tables = Mapping[str, Any]
