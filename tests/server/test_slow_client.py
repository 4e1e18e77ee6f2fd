"""Clients that send nothing, or never finish, or send without end: each is bounded, and let go."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest

from perdure.server import serve
from perdure.server.http import body, protocol
from tests.server.live import TOKEN, Running, running

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def connected(server: Running) -> AsyncIterator[Connection]:
    reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(server.base).port)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


def head(method: str, path: str, *headers: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", f"Authorization: Bearer {TOKEN}"]
    return "\r\n".join([*lines, *headers, "", ""]).encode()


async def answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, Any]]:
    """The status and the content that came."""
    async with asyncio.timeout(10):
        start = (await reader.readuntil(b"\r\n\r\n")).lower()
        size = int(start.partition(b"content-length:")[2].split()[0])
        content = await reader.readexactly(size)
    return int(start.split()[1]), json.loads(content)


@asynccontextmanager
async def trickling(writer: asyncio.StreamWriter, piece: bytes) -> AsyncIterator[None]:
    """Inside the block a piece is sent every now and then."""

    async def trickle() -> None:
        while not writer.is_closing():
            writer.write(piece)
            await asyncio.sleep(0.05)

    task = asyncio.create_task(trickle())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


@pytest.fixture
def is_impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body, "WAIT_S", 0.3)
    monkeypatch.setattr(protocol, "HEAD_WAIT_S", 0.3)
    monkeypatch.setattr(serve, "KEEP_ALIVE_S", 1)


@pytest.mark.usefixtures("is_impatient")
@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/v1/sessions"), ("POST", "/v1/sessions/s/messages"), ("POST", "/v1/workflows")],
)
async def test_a_body_that_does_not_come_is_refused_and_nothing_is_done(
    method: str, path: str
) -> None:
    async with running() as server, connected(server) as (reader, writer):
        await server.client.post("/v1/sessions", json={"session_id": "s"})
        writer.write(head(method, path, "Content-Length: 100") + b'{"text": "he')
        status, problem = await answer(reader)
        assert (status, problem["code"]) == (408, "too_slow")
        assert (await server.client.get("/v1/sessions/s")).json()["last_seq"] == 0


@pytest.mark.usefixtures("is_impatient")
async def test_a_body_that_trickles_is_refused() -> None:
    async with running() as server, connected(server) as (reader, writer):
        writer.write(head("POST", "/v1/sessions", "Transfer-Encoding: chunked"))
        async with trickling(writer, b"1\r\n \r\n"):
            assert (await answer(reader))[0] == 408


@pytest.mark.usefixtures("is_impatient")
async def test_a_large_body_that_keeps_coming_has_its_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(body, "BYTES_PER_S", 100)
    content = json.dumps({"text": "x" * 1000}).encode()
    async with running() as server, connected(server) as (reader, writer):
        await server.client.post("/v1/sessions", json={"session_id": "s"})
        size = f"Content-Length: {len(content)}"
        writer.write(head("POST", "/v1/sessions/s/messages", size, "Connection: close"))
        for start in range(0, len(content), 100):
            writer.write(content[start : start + 100])
            await asyncio.sleep(0.1)
        assert (await answer(reader))[0] == 202


@pytest.mark.usefixtures("is_impatient")
@pytest.mark.parametrize("sent", [b"", b"\r\n", head("GET", "/v1/health")])
async def test_a_connection_without_a_request_is_closed(sent: bytes) -> None:
    async with running() as server, connected(server) as (reader, writer):
        writer.write(sent)
        async with asyncio.timeout(5):
            while await reader.read(65536):
                pass


async def test_a_connection_at_rest_is_kept_for_longer_than_clients_keep_theirs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(protocol, "HEAD_WAIT_S", 0.1)
    async with running() as server, connected(server) as (reader, writer):
        for _ in range(2):
            writer.write(head("GET", "/v1/health"))
            assert (await answer(reader))[0] == 200
            await asyncio.sleep(6)


@pytest.mark.usefixtures("is_impatient")
@pytest.mark.parametrize("answered", [0, 1])
async def test_a_head_that_trickles_is_refused(answered: int) -> None:
    async with running() as server, connected(server) as (reader, writer):
        for _ in range(answered):
            writer.write(head("GET", "/v1/health"))
            await reader.readuntil(b"}")
        writer.write(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n")
        async with trickling(writer, b"x: y\r\n"):
            assert (await answer(reader))[1]["code"] == "too_slow"


@pytest.mark.parametrize(
    "start",
    [b"GET /", b"GET / HTTP/1.1\r\nx: ", b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nx"],
    ids=["address", "value", "name"],
)
@pytest.mark.parametrize("size", [70_000, 10_000_000])
async def test_a_head_that_is_too_large_is_refused(start: bytes, size: int) -> None:
    async with running() as server, connected(server) as (reader, writer):
        writer.write(start)
        writer.write(b"a" * size)
        assert (await answer(reader))[1]["code"] == "head_too_large"


async def test_many_headers_that_are_too_large_together_are_refused() -> None:
    async with running() as server, connected(server) as (reader, writer):
        writer.write(head("GET", "/v1/health", *(f"x-{n}: {'y' * 60}" for n in range(1000))))
        assert (await answer(reader))[1]["code"] == "head_too_large"


async def test_what_is_no_request_is_refused_in_words() -> None:
    async with running() as server, connected(server) as (reader, writer):
        writer.write(b"\x16\x03\x01 hello\r\n\r\n")
        assert await answer(reader) == (400, ANY_REQUEST)


ANY_REQUEST = {
    "type": "urn:perdure:problem:invalid_request",
    "title": "Bad Request",
    "status": 400,
    "detail": "this is no HTTP request that can be read",
    "code": "invalid_request",
}


@pytest.mark.usefixtures("is_impatient")
async def test_a_stream_and_a_request_that_takes_long_are_left_alone() -> None:
    async with running() as server, connected(server) as (reader, writer):
        await server.client.post("/v1/sessions", json={"session_id": "s"})
        writer.write(head("GET", "/v1/stream?session=s"))
        await asyncio.sleep(0.8)
        await server.send("s", "hello")
        async with asyncio.timeout(5):
            await reader.readuntil(b"event: entry")


async def until_closed(reader: asyncio.StreamReader) -> None:
    while await reader.read(1000):
        pass


@pytest.mark.usefixtures("is_impatient")
@pytest.mark.parametrize("requests_before", [0, 1])
async def test_a_websocket_stays(requests_before: int) -> None:
    async with running() as server, connected(server) as (reader, writer):
        for _ in range(requests_before):
            writer.write(head("GET", "/v1/health"))
            assert (await answer(reader))[0] == 200
        writer.write(
            head(
                "GET",
                f"/v1/runtimes/connect?name=box&life={32 * chr(97)}",
                "Connection: Upgrade",
                "Upgrade: websocket",
                "Sec-WebSocket-Version: 13",
                "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
            )
        )
        async with asyncio.timeout(10):
            assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(until_closed(reader), 1.5)


async def test_a_body_larger_than_a_head_after_a_refusal_is_no_head() -> None:
    async with running() as server, connected(server) as (reader, writer):
        content = b" " * 500_000
        writer.write(head("POST", "/v1/nothing", f"Content-Length: {len(content)}") + content)
        writer.write(head("GET", "/v1/health", "Connection: close"))
        async with asyncio.timeout(5):
            answers = await reader.read()
        assert [line.split()[1] for line in answers.split(b"HTTP/1.1")[1:]] != []
        assert b"404 Not Found" in answers
        assert b'"status":"ok"' in answers.replace(b" ", b"")
