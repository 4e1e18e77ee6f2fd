"""Three servers that tell many viewers the same bytes: Perdure, a bare endpoint, nginx with nchan.

Each listens on a port of its own, streams at `/v1/stream`, and sends an entry of so many bytes when
it is asked to. `python -m bench.broadcast ours` is the process of one of them; nginx is its own.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Awaitable, Callable
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Self

import uvicorn

from bench.process import Process, raise_limit

TOKEN = "a-token-for-benchmarks-0123456789"
MARK = b"event: entry\n"
NCHAN = (
    Path("/usr/lib/nginx/modules/ngx_nchan_module.so"),
    Path("/usr/lib64/nginx/modules/ngx_nchan_module.so"),
)


class Hub:
    """The bare endpoint: shared bytes, sent to each viewer as they come."""

    def __init__(self) -> None:
        self._frames: list[bytes] = []
        self._waiting: list[asyncio.Future[None]] = []

    def push(self, frame: bytes) -> None:
        self._frames.append(frame)
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.done():
                each.set_result(None)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b":\n\n", "more_body": True})
        position = len(self._frames)
        while True:
            while position < len(self._frames):
                body = self._frames[position]
                position += 1
                await send({"type": "http.response.body", "body": body, "more_body": True})
            future = asyncio.get_running_loop().create_future()
            self._waiting.append(future)
            await future


async def serve_bare(listener: socket.socket) -> None:
    hub = Hub()
    config = uvicorn.Config(
        hub,
        http="httptools",
        ws="none",
        loop="none",
        lifespan="off",
        log_config=None,
        proxy_headers=False,
    )
    running = asyncio.create_task(uvicorn.Server(config).serve(sockets=[listener]))
    assert not running.done()

    async def append(size: int) -> None:
        hub.push(b"id: 1.0123456789abcdef\n" + MARK + b"data: {%b}\n\n" % (b"x" * size))

    await _obey(append)
    os._exit(0)


async def serve_ours(listener: socket.socket) -> None:
    """The whole server, with its store in memory."""
    from perdure.entry import text
    from perdure.server import create_app
    from perdure.server.config import Settings
    from perdure.server.serve import Server, settle_collector
    from perdure.stores.memory import MemoryStore

    store = MemoryStore()
    await store.create_session("s")
    app = create_app(
        Settings(
            token=TOKEN, loop="shell", grace_s=0, max_streams=1_000_000, requests_per_s=1_000_000
        ),
        store=store,
    )
    server = Server(app, lambda: None)
    running = asyncio.create_task(server.serve(sockets=[listener]))

    async def append(size: int) -> None:
        await store.append_entries("s", [text("x" * size)])

    settle_collector()
    await _obey(append)
    server.should_exit = True
    await running


async def _obey(append: Callable[[int], Awaitable[None]]) -> None:
    """Appends an entry for each line: the line is its size."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := (await reader.readline()).strip():
        await append(int(line))


def main(kind: str) -> None:
    """The process of one server: its port on the first line."""
    from perdure.server.serve import _loop_factory, bind

    raise_limit()
    listener = bind("127.0.0.1", 0)
    print(listener.getsockname()[1], flush=True)
    serve = serve_ours if kind == "ours" else serve_bare
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(serve(listener))


class OwnServer(Process):
    """Perdure ("ours") or the bare endpoint ("bare")."""

    def __init__(self, kind: str) -> None:
        super().__init__([sys.executable, "-m", "bench.broadcast", kind])

    def __enter__(self) -> Self:
        super().__enter__()
        self.port = int(self.read_line())
        return self

    def append(self, size: int) -> None:
        """Lets it tell its viewers of an entry whose text has this size."""
        self.write_line(str(size))


def missing_nchan() -> str | None:
    """What has to be installed before `Nchan` can run; None: nothing."""
    if shutil.which("nginx") is None:
        return "nginx is not installed"
    if not any(each.exists() for each in NCHAN):
        return "nginx has no nchan module"
    return None


class Nchan(Process):
    """nginx with nchan: one worker, one channel in memory, event streams."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        module = next(each for each in NCHAN if each.exists())
        folder.mkdir()
        (folder / "nginx.conf").write_text(
            textwrap.dedent(f"""\
            {"user root;" if os.geteuid() == 0 else ""}
            load_module {module};
            daemon off;
            worker_processes 1;
            worker_rlimit_nofile 16384;
            pid nginx.pid;
            error_log error.log crit;
            events {{ worker_connections 16384; }}
            http {{
                access_log off;
                client_body_temp_path body;
                proxy_temp_path proxy;
                fastcgi_temp_path fastcgi;
                uwsgi_temp_path uwsgi;
                scgi_temp_path scgi;
                server {{
                    listen 127.0.0.1:{self.port} backlog=4096;
                    location = /append {{
                        client_max_body_size 1m;
                        client_body_buffer_size 64k;
                        nchan_publisher http;
                        nchan_channel_id s;
                        nchan_message_buffer_length 10;
                    }}
                    location = /v1/stream {{
                        nchan_subscriber eventsource;
                        nchan_channel_id s;
                        nchan_subscriber_first_message newest;
                        nchan_eventsource_ping_interval 0;
                    }}
                }}
            }}
            """)
        )
        command = ["nginx", "-p", str(folder), "-c", "nginx.conf", "-e", "error.log"]
        super().__init__(command, folder=folder, ends_with_input=False)

    def __enter__(self) -> Self:
        super().__enter__()
        while True:
            try:
                self._client = HTTPConnection("127.0.0.1", self.port)
                self._client.connect()
            except ConnectionRefusedError:
                time.sleep(0.01)
            else:
                break
        self.version = subprocess.run(["nginx", "-v"], capture_output=True, text=True).stderr
        return self

    def append(self, size: int) -> None:
        """Lets it tell its viewers of a message of this size."""
        headers = {"content-type": "application/json", "x-eventsource-event": "entry"}
        self._client.request("POST", "/append", b"{%b}" % (b"x" * size), headers)
        answer = self._client.getresponse()
        answer.read()
        assert answer.status in {200, 201, 202}, answer.status

    def __exit__(self, *error: object) -> None:
        self._client.close()
        super().__exit__(*error)


if __name__ == "__main__":
    main(sys.argv[1])
