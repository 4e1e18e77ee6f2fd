"""What a stream leaves behind when it ends, in whatever way: nothing."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import socket
import struct
import sys
import time
from typing import Any

import pytest

from perdure.entry import text
from perdure.server.config import Settings
from perdure.server.http.app import create_app
from perdure.server.serve import bind
from perdure.stores.memory import MemoryStore
from perdure.testing.scripted_loop import Say, ScriptedLoop
from tests.server.live import TOKEN, OneLoop, running

CONNECTS = 10_000
QUERY = b"session=a&after=0&session=b&after=0&listing=1"


class Connection:
    """One connection of a browser, without a network: it goes once it was sent something."""

    def __init__(self) -> None:
        self._got = asyncio.Event()
        self.sent: list[Any] = []

    async def receive(self) -> dict[str, Any]:
        await self._got.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.sent.append(message)
        if message.get("body"):
            self._got.set()


def scope_of(app: Any) -> dict[str, Any]:
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": "/v1/stream",
        "raw_path": b"/v1/stream",
        "query_string": QUERY,
        "root_path": "",
        "headers": [(b"host", b"localhost"), (b"authorization", b"Bearer " + TOKEN.encode())],
        "state": {},
        "app": app,
    }


@pytest.mark.may_block
async def test_ten_thousand_viewers_that_came_and_went_leave_nothing_behind() -> None:
    store = MemoryStore()
    app = create_app(
        Settings(token=TOKEN, requests_per_s=1e6),
        store=store,
        loops=OneLoop(ScriptedLoop([Say("hello")])),
    )
    async with app.router.lifespan_context(app):
        feed = app.state.service.feed
        for each in ("a", "b"):
            await store.create_session(each, entries=[text("hello")])

        async def connect(count: int) -> None:
            for _ in range(count):
                connection = Connection()
                await app(scope_of(app), connection.receive, connection.send)
                assert connection.sent[0]["status"] == 200

        async def held(count: int) -> tuple[int, int]:
            await connect(count)
            gc.collect()
            return len(gc.get_objects()), sys.getallocatedblocks()

        tasks = len(asyncio.all_tasks())
        # Timers that were cancelled stay with the loop until they are many: the least counts.
        rounds = [await held(CONNECTS // 20) for _ in range(20)]
        objects, blocks = (min(each) for each in zip(*rounds[:10], strict=True))
        objects_now, blocks_now = (min(each) for each in zip(*rounds[10:], strict=True))
        assert (feed.viewer_count, feed.watched) == (0, frozenset())
        assert objects_now - objects < CONNECTS / 100
        assert blocks_now - blocks < CONNECTS / 20
        assert len(asyncio.all_tasks()) <= tasks


async def test_a_stream_is_not_compressed_nor_cached_nor_buffered() -> None:
    async with running() as server:
        await server.client.post("/v1/sessions", json={"session_id": "s"})
        headers = {"Accept-Encoding": "gzip, br, zstd"}
        async with server.client.stream(
            "GET", "/v1/stream", params={"session": "s"}, headers=headers
        ) as answer:
            assert "content-encoding" not in answer.headers
            assert answer.headers["cache-control"] == "no-store, no-transform"
            assert answer.headers["x-accel-buffering"] == "no"


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="a system without it")
async def test_a_peer_that_is_gone_without_a_word_is_given_up_after_a_heartbeat() -> None:
    listener = bind("127.0.0.1", 0, dead_peer_s=7)
    with listener, socket.create_connection(listener.getsockname()):
        listener.setblocking(True)
        accepted, _ = listener.accept()
        with accepted:
            timeout = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
    assert timeout == 7000


NOTHING_COMES_IN = struct.pack("HBBI", 0x06, 0, 0, 0)  # a socket filter of one step: keep 0 bytes
SO_ATTACH_FILTER = 26


@pytest.mark.skipif(sys.platform != "linux", reason="sockets that go silent are Linux's")
async def test_a_peer_whose_machine_vanished_is_let_go_within_two_heartbeats() -> None:
    heartbeat_s = 0.5
    async with running(settings={"heartbeat_s": heartbeat_s}, dead_peer_s=heartbeat_s) as server:
        await server.client.post("/v1/sessions", json={"session_id": "s"})
        port, feed = int(server.base.rpartition(":")[2]), server.service.feed
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        request = "GET /v1/stream?session=s&after=0 HTTP/1.1\r\nHost: localhost\r\n"
        writer.write(f"{request}Authorization: Bearer {TOKEN}\r\n\r\n".encode())
        await reader.readuntil(b"event: status")
        assert feed.viewer_count == 1
        silent = writer.get_extra_info("socket")
        step = ctypes.create_string_buffer(NOTHING_COMES_IN)
        program = struct.pack("HL", 1, ctypes.addressof(step))
        silent.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)
        start = time.monotonic()
        async with asyncio.timeout(20):
            while feed.viewer_count:  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0.01)
        taken = time.monotonic() - start
        assert heartbeat_s <= taken < 4 * heartbeat_s + 2  # two, and what a busy machine adds
        assert feed.watched == frozenset()
        writer.transport.abort()


async def test_a_connection_that_is_reset_is_let_go_at_once() -> None:
    async with running() as server:
        await server.client.post("/v1/sessions", json={"session_id": "s"})
        port = int(server.base.rpartition(":")[2])
        feed = server.service.feed
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        request = "GET /v1/stream?session=s&after=0 HTTP/1.1\r\nHost: localhost\r\n"
        writer.write(f"{request}Authorization: Bearer {TOKEN}\r\n\r\n".encode())
        await reader.readuntil(b"event: status")
        assert feed.viewer_count == 1
        writer.transport.abort()
        async with asyncio.timeout(5):  # heartbeats come every 10 seconds
            while feed.viewer_count:  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0.001)
        assert feed.watched == frozenset()
