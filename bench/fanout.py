"""What it costs to tell many viewers of an entry, and to have a viewer who is told nothing.

A server on one core, with its store in memory, and all its viewers on one session, over real
connections. An entry of about 1 KiB is appended when all viewers have the one before. The CPU time
of the server's process for each delivery is held against a bare endpoint that does nothing but
send the same shared bytes to all (ASGI on the same HTTP server), measured in the same run and in
turns. Memory for each idle viewer is what the server's process grows by when they connect.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import selectors
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import uvicorn

from bench import report
from bench.report import Figure, Measured

TOKEN = "a-token-for-benchmarks-0123456789"
VIEWERS = (500, 2000)
ENTRIES = 30
CONTENT = "x" * 880
MARK = b"event: entry\n"
MOST_BYTES = 30 * 1024


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


async def _lines() -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return reader


def say(line: object) -> None:
    print(line, flush=True)


async def serve_bare(listener: socket.socket) -> None:
    """Appends on each line of standard input; says the CPU time used so far on `cpu`."""
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
    server = uvicorn.Server(config)
    running = asyncio.create_task(server.serve(sockets=[listener]))
    assert not running.done()
    frame = b"id: 1.0123456789abcdef\n" + MARK + b"data: {%b}\n\n" % CONTENT.encode()

    async def append() -> None:
        hub.push(frame)

    await _obey(append)
    os._exit(0)


async def serve_ours(listener: socket.socket) -> None:
    """The same with the whole server."""
    from perdure.entry import text
    from perdure.server import create_app
    from perdure.server.config import Settings
    from perdure.server.serve import Server
    from perdure.stores.memory import MemoryStore

    store = MemoryStore()
    await store.create_session("s")
    app = create_app(Settings(token=TOKEN, loop="shell", grace_s=0), store=store)
    server = Server(app, lambda: None)
    running = asyncio.create_task(server.serve(sockets=[listener]))

    async def append() -> None:
        await store.append_entries("s", [text(CONTENT)])

    await _obey(append)
    server.should_exit = True
    await running


async def _obey(append: Any) -> None:
    lines = await _lines()
    while line := (await lines.readline()).strip():
        if line == b"append":
            await append()
        else:
            say(time.process_time())


def run_server(kind: str) -> None:
    """The process of one server: its port on the first line."""
    from perdure.server.serve import _loop_factory, bind

    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    _raise_limit()
    listener = bind("127.0.0.1", 0)
    say(listener.getsockname()[1])
    serve = serve_ours if kind == "ours" else serve_bare
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(serve(listener))


def _raise_limit() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class Served:
    """A server in a process of its own."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "bench.fanout", "--serve", self.kind]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[1],
            text=True,
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())
        return self

    def ask(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    @property
    def cpu_s(self) -> float:
        self.ask("cpu")
        assert self._process.stdout is not None
        return float(self._process.stdout.readline())

    @property
    def resident_bytes(self) -> int:
        pages = Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]
        return int(pages) * resource.getpagesize()

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()


class Viewers:
    """So many connections; each counts the entries that it has got."""

    def __init__(self, port: int, count: int) -> None:
        self._selector = selectors.DefaultSelector()
        self._sockets = []
        request = "GET /v1/stream?session=s HTTP/1.1\r\nHost: localhost\r\n"
        request += f"Authorization: Bearer {TOKEN}\r\n\r\n"
        for _ in range(count):
            each = socket.create_connection(("127.0.0.1", port))
            each.sendall(request.encode())
            self._sockets.append(each)
        for each in self._sockets:
            head = b""
            while b"\n\n" not in head:  # its first event, or comment
                head += each.recv(65536)
            each.setblocking(False)
            self._selector.register(each, selectors.EVENT_READ, bytearray())

    def wait(self) -> None:
        """Until each has one more entry."""
        left = len(self._sockets)
        while left:
            for key, _ in self._selector.select(20):
                assert isinstance(key.fileobj, socket.socket)
                key.data.extend(key.fileobj.recv(65536))
                if (at := key.data.find(MARK)) >= 0:
                    left -= 1
                    del key.data[: at + len(MARK)]

    def close(self) -> None:
        self._selector.close()
        for each in self._sockets:
            each.close()


@contextmanager
def watching(served: Served, count: int) -> Iterator[tuple[Viewers, float]]:
    """Viewers, and the bytes of memory that each one of them took."""
    with contextlib.closing(Viewers(served.port, 10)) as few:
        served.ask("append")
        few.wait()
    before = served.resident_bytes
    viewers = Viewers(served.port, count)
    time.sleep(0.5)
    try:
        yield viewers, (served.resident_bytes - before) / count
    finally:
        viewers.close()


def deliver(served: Served, viewers: Viewers, count: int) -> float:
    """The CPU time of the server for each delivery, in seconds."""
    before = served.cpu_s
    for _ in range(ENTRIES):
        served.ask("append")
        viewers.wait()
    return (served.cpu_s - before) / (ENTRIES * count)


async def measure(folder: Path, rounds: int) -> Measured:
    """Both servers in turns, with few viewers and many."""
    _raise_limit()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    figures = []
    for count in VIEWERS:
        with (
            Served("ours") as ours,
            Served("bare") as bare,
            watching(ours, count) as (to_us, memory),
            watching(bare, count) as (to_bare, floor),
        ):
            ratios, mine, theirs = [], [], []
            for _ in range(rounds):
                mine.append(deliver(ours, to_us, count) * 1e6)
                theirs.append(deliver(bare, to_bare, count) * 1e6)
                ratios.append(mine[-1] / theirs[-1])
        figures.append(
            Figure(
                f"CPU per delivery, {count:,} viewers",
                statistics.median(mine),
                "µs",
                "bare endpoint, shared bytes",
                statistics.median(theirs),
                statistics.median(ratios),
            )
        )
        figures.append(
            Figure(
                f"memory per idle viewer, {count:,} viewers",
                memory / 1024,
                "KiB",
                "the target",
                MOST_BYTES / 1024,
                memory / MOST_BYTES,
                at_most=1.0,
            )
        )
        notes = [f"a viewer of the bare endpoint takes {floor / 1024:.1f} KiB"]
    notes.append("the viewers run on the other core; nginx with nchan is not measured here")
    return figures, notes


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        run_server(sys.argv[2])
    else:
        assert __doc__ is not None
        report.run("fanout", __doc__, measure)
