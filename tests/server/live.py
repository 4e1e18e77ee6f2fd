"""A real server inside the test's event loop, and a reader of its streams."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast

import httpx

from perdure.loop import LoopFactory
from perdure.server.config import Settings
from perdure.server.http.app import create_app
from perdure.server.http.auth import Access
from perdure.server.journal import JournalStore
from perdure.server.serve import DEAD_PEER_S, Server, bind
from perdure.server.service import Service
from perdure.server.session.port import Loops
from perdure.stores.memory import MemoryStore
from perdure.testing.scripted_loop import Say, ScriptedLoop

TOKEN = "a-token-for-tests-0123456789"


class OneLoop:
    """The same loop under every name but `missing`."""

    default = "scripted"

    def __init__(self, factory: LoopFactory) -> None:
        self._factory = factory

    async def prepare(self, name: str) -> None:
        pass

    def factory(self, name: str, /) -> LoopFactory:
        return self._factory


@dataclass(frozen=True)
class Event:
    """One event of a stream."""

    name: str
    data: dict[str, Any]
    id: str | None


class EventParser:
    """Bytes to events, by the HTML standard's event-stream section."""

    def __init__(self) -> None:
        self._rest = b""
        self._fields: dict[str, str] = {}
        self.last_id: str | None = None
        self.comments = 0

    def feed(self, data: bytes) -> list[Event]:
        events = []
        *lines, self._rest = (self._rest + data).replace(b"\r\n", b"\n").split(b"\n")
        for line in (part for each in lines for part in each.split(b"\r")):
            if line:
                self._take(line.decode())
            else:
                events += self._dispatch()
        return events

    def _take(self, line: str) -> None:
        if line.startswith(":"):
            self.comments += 1
            return
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "id":
            self.last_id = value
        if name == "data" and "data" in self._fields:
            value = f"{self._fields['data']}\n{value}"
        self._fields[name] = value

    def _dispatch(self) -> list[Event]:
        fields, self._fields = self._fields, {}
        if "data" not in fields:
            return []
        return [Event(fields.get("event", "message"), json.loads(fields["data"]), fields.get("id"))]


class Running:
    """A server that runs, and a client of it."""

    def __init__(
        self, service: Service, base: str, client: httpx.AsyncClient, access: Access
    ) -> None:
        self.service = service
        self.access = access
        self.base = base
        self.client = client

    @asynccontextmanager
    async def raw_stream(
        self, *pairs: tuple[str, str], last_event_id: str | None = None
    ) -> AsyncIterator[AsyncGenerator[bytes, None]]:
        """The bytes of one connection."""
        headers = {} if last_event_id is None else {"Last-Event-ID": last_event_id}
        async with self.client.stream(
            "GET", "/v1/stream", params=httpx.QueryParams(list(pairs)), headers=headers
        ) as response:
            assert response.status_code == 200, await response.aread()
            async with aclosing(_chunks(response)) as chunks:
                yield chunks

    @asynccontextmanager
    async def stream(
        self, *pairs: tuple[str, str], last_event_id: str | None = None
    ) -> AsyncIterator[AsyncIterator[Event]]:
        """The events of one connection."""
        async with (
            self.raw_stream(*pairs, last_event_id=last_event_id) as chunks,
            aclosing(_events(chunks)) as events,
        ):
            yield events

    async def send(self, session_id: str, text: str, **body: Any) -> dict[str, Any]:
        """Sends a message; the answer."""
        answer = await self.client.post(
            f"/v1/sessions/{session_id}/messages", json={"text": text, **body}
        )
        assert answer.status_code == 202, answer.text
        found: dict[str, Any] = answer.json()
        return found


async def _chunks(response: httpx.Response) -> AsyncGenerator[bytes, None]:
    source = cast("AsyncGenerator[bytes, None]", response.aiter_bytes())
    async with aclosing(source):
        async for chunk in source:
            yield chunk


async def _events(chunks: AsyncIterator[bytes]) -> AsyncGenerator[Event, None]:
    parser = EventParser()
    async for chunk in chunks:
        for event in parser.feed(chunk):
            yield event


async def until(events: AsyncIterator[Event], name: str, **fields: Any) -> list[Event]:
    """The events up to the first one of this name whose data has these fields, inclusive."""
    seen = []
    async with asyncio.timeout(20):
        async for event in events:
            seen.append(event)
            if event.name == name and fields.items() <= event.data.items():
                return seen
    raise AssertionError(f"the stream ended before {name} {fields}: {seen}")


@asynccontextmanager
async def running(
    loop: LoopFactory | None = None,
    *,
    store: JournalStore | None = None,
    settings: Mapping[str, Any] | None = None,
    dead_peer_s: float = DEAD_PEER_S,
    loops: Loops | None = None,
) -> AsyncIterator[Running]:
    """A server on a free port of this machine, with its own store in memory."""
    given: dict[str, Any] = {"token": TOKEN, "grace_s": 0, **(settings or {})}
    config = Settings(**given)
    app = create_app(
        config,
        store=MemoryStore() if store is None else store,
        loops=loops or OneLoop(loop or ScriptedLoop([Say("hello")])),
    )
    listener = bind("127.0.0.1", 0, dead_peer_s=dead_peer_s)
    accepts = asyncio.Event()
    server = Server(app, accepts.set, proxies=config.proxies)
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        waiting = asyncio.create_task(accepts.wait())
        await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
        base = f"http://127.0.0.1:{listener.getsockname()[1]}"
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with httpx.AsyncClient(base_url=base, headers=headers, timeout=20) as client:
            yield Running(app.state.service, base, client, app.state.access)
    finally:
        server.should_exit = True
        await task
        listener.close()
