"""A whole server in a process of its own, on one SQLite file, that notes its appends and commits.

`python -m bench.node FILE`: its port on the first line; the loop plays the script that a message
is. A line `forget` drops what was noted, `tell` prints it, `rest` answers when no turn runs.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from contextvars import ContextVar
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Self, TypedDict

from bench.broadcast import TOKEN
from bench.process import Process, raise_limit


class Noted(TypedDict):
    """Times are of one clock, in seconds."""

    appends: list[tuple[float, float, float]]
    """Of each: when it was asked for, when the writer took it, when its turn went on."""
    commits: list[tuple[float, float]]
    """Of each: its begin and its end."""
    sizes: list[int]
    """How many requests shared each commit."""


class Node(Process):
    """The server's process, from outside."""

    def __init__(self, file: Path, *, is_pinned: bool = False) -> None:
        super().__init__([sys.executable, "-m", "bench.node", str(file)], is_pinned=is_pinned)

    def __enter__(self) -> Self:
        super().__enter__()
        self.port = int(self.read_line())
        return self

    def forget(self) -> None:
        """Drops what it has noted so far."""
        self.write_line("forget")
        self.read_line()

    def rest(self) -> None:
        """Returns when no turn runs."""
        self.write_line("rest")
        self.read_line()

    def tell(self) -> Noted:
        """What it has noted."""
        self.write_line("tell")
        noted: Noted = json.loads(self.read_line())
        return noted


class Client:
    """One connection to a server."""

    def __init__(self, port: int) -> None:
        self._connection = HTTPConnection("127.0.0.1", port, timeout=60)

    def ask(self, method: str, path: str, body: object = None) -> bytes:
        """The body of the answer, which is no refusal."""
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body)
        self._connection.request(method, path, data, headers)
        answer = self._connection.getresponse()
        content = answer.read()
        assert answer.status < 300, content
        return content

    def close(self) -> None:
        """Ends the connection."""
        self._connection.close()


async def serve(file: str) -> None:
    """Serves until its standard input ends."""
    from perdure.server import create_app
    from perdure.server.config import Settings
    from perdure.server.serve import Server, bind, settle_collector
    from perdure.stores.sqlite import SqliteStore

    noted = Noted(appends=[], commits=[], sizes=[])

    mine: ContextVar[list[float]] = ContextVar("mine")

    class NotingStore(SqliteStore):
        async def append_entries(self, *args: Any, **options: Any) -> Any:
            times: list[float] = []
            mine.set(times)
            try:
                return await super().append_entries(*args, **options)
            finally:
                if times:
                    noted["appends"].append((times[0], times[1], time.monotonic()))

    def note(size: int, seconds: float) -> None:
        end = time.monotonic()
        noted["commits"].append((end - seconds, end))
        noted["sizes"].append(size)

    async with NotingStore(file) as store:
        submit = store._writer.submit

        def noting_submit(kind: Any, session_id: str, verb: Any, *rest: Any, **options: Any) -> Any:
            times = mine.get([])

            def noting_verb(*arguments: Any) -> Any:
                times.append(time.monotonic())
                return verb(*arguments)

            told = submit(kind, session_id, noting_verb, *rest, **options)
            times.insert(0, time.monotonic())
            return told

        store._writer.submit = noting_submit  # type: ignore[assignment]
        store.observe_commits(note)
        settings = Settings(
            token=TOKEN, loop="perdure.testing:scripted_by_message", grace_s=0, max_live_actors=4000
        )
        app = create_app(settings, store=store)
        listener = bind("127.0.0.1", 0)
        accepts = asyncio.Event()
        server = Server(app, accepts.set)
        running = asyncio.create_task(server.serve(sockets=[listener]))
        await accepts.wait()
        print(listener.getsockname()[1], flush=True)
        settle_collector()
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := (await reader.readline()).strip():
            if line == b"rest":
                await app.state.service.observer.until_rest()
            if line == b"forget":
                for each in noted.values():
                    assert isinstance(each, list)
                    each.clear()
            print(json.dumps(noted) if line == b"tell" else "", flush=True)
        server.should_exit = True
        await running


def main(arguments: Sequence[str]) -> None:
    """The process."""
    from perdure.server.serve import _loop_factory

    raise_limit()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(serve(arguments[0]))


if __name__ == "__main__":
    main(sys.argv[1:])
