"""Big parts: elided in pages and streams, whole at their own address, and by range."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from perdure.entry import Compaction, File, Message, Text, ToolCall, ToolResult
from perdure.fact import ToolDispatched
from perdure.server.config import Settings
from perdure.server.feed.cursor import START
from perdure.server.feed.wire import MAX_INLINE_BYTES
from perdure.server.http.app import create_app
from perdure.stores.memory import MemoryStore
from perdure.testing.scripted_loop import Say, ScriptedLoop, scripted_by_message
from tests.server.live import TOKEN, OneLoop, running
from tests.server.test_app_refusals import check, serving

BIG = "é🧭\r\n" * 30_000
PNG = b"\x89PNG\r\n" + bytes(100_000)

MESSAGE = Message(
    "assistant",
    [
        Text("small"),
        Text(BIG, provider={"signature": "s"}),
        ToolCall("c1", "write", {"content": BIG}),
        File("image/png", data=PNG, name="a/ü.png"),
        File("text/html", data=b"<script>alert(1)</script>" * 5000),
        Text("x" * (MAX_INLINE_BYTES - 100)),
    ],
)
RESULTS = Message(
    "tool",
    [
        ToolResult("c1", [Text(BIG)], name="write", is_error=True),
        ToolResult("c2", [Text("small"), File("image/png", data=PNG)], name="shot"),
        ToolResult("c3", [Text("x" * 1000) for _ in range(100)]),
    ],
)


async def parts_of(client: Any, seq: int) -> list[dict[str, Any]]:
    page = (await client.get("/v1/sessions/a%2Fb/entries")).json()
    found: list[dict[str, Any]] = page["entries"][seq - 1]["parts"]
    return found


async def test_a_text_is_elided_when_it_is_longer_than_64_kib_itself() -> None:
    texts = [Text("x" * 65_536), Text("x" * 65_537), Text("\n" * 65_536)]
    texts += [Text("x" * 65_536, provider="y" * 2000)]
    async with serving() as (client, service):
        await service.store.create_session("a/b", entries=[Message("user", texts)])
        parts = await parts_of(client, 1)
        assert [part.get("elided", False) for part in parts] == [False, True, True, True]
        assert parts[1]["bytes"] == 65_537


async def test_parts_above_the_bound_are_elided_and_whole_at_their_address() -> None:
    async with serving() as (client, service):
        await service.store.create_session("a/b", entries=[MESSAGE, RESULTS])
        parts = await parts_of(client, 1)
        assert [part.get("elided", False) for part in parts] == [
            False,
            True,
            True,
            True,
            True,
            False,
        ]
        assert parts[0] == {"type": "text", "text": "small"}
        base = "/v1/sessions/a%2Fb/entries/1/parts"
        assert parts[1] == {
            "type": "text",
            "provider": {"signature": "s"},
            "elided": True,
            "bytes": len(BIG.encode()),
            "href": f"{base}/1",
        }
        assert (parts[2]["call_id"], parts[2]["name"], parts[2]["href"]) == (
            "c1",
            "write",
            f"{base}/2",
        )
        whole = [await client.get(part["href"]) for part in parts if "href" in part]
        assert whole[0].content == BIG.encode()
        assert whole[0].headers["content-type"] == "text/plain; charset=utf-8"
        assert whole[1].json() == {"content": BIG}
        assert whole[2].content == PNG
        assert [len(each.content) for each in whole] == [p["bytes"] for p in parts if "href" in p]
        entry = (await client.get("/v1/sessions/a%2Fb/entries/1")).json()
        assert entry["parts"][1]["text"] == BIG
        assert entry["seq"] == 1


async def test_results_keep_what_says_whose_they_are_and_their_small_parts() -> None:
    async with serving() as (client, service):
        await service.store.create_session("a/b", entries=[MESSAGE, RESULTS])
        parts = await parts_of(client, 2)
        assert all(part["elided"] for part in parts)
        assert (parts[0]["call_id"], parts[0]["name"], parts[0]["is_error"]) == (
            "c1",
            "write",
            True,
        )
        assert (await client.get(parts[0]["href"])).content == BIG.encode()
        inner = parts[0]["parts"]
        assert inner[0]["elided"]
        assert (await client.get(inner[0]["href"])).content == BIG.encode()
        assert parts[1]["parts"][0] == {"type": "text", "text": "small"}
        assert (await client.get(parts[1]["parts"][1]["href"])).content == PNG
        assert [part["type"] for part in (await client.get(parts[1]["href"])).json()] == [
            "text",
            "file",
        ]
        assert "parts" not in parts[2]
        assert parts[2]["bytes"] == 100_000
        check(await client.get(f"{parts[0]['href']}/1"), 404, "entry_not_found")


async def test_what_a_browser_could_run_is_a_download() -> None:
    async with serving() as (client, service):
        await service.store.create_session("a/b", entries=[MESSAGE])
        image = await client.get("/v1/sessions/a%2Fb/entries/1/parts/3")
        assert image.headers["content-type"] == "image/png"
        assert image.headers["content-disposition"] == "inline; filename*=UTF-8''a_%C3%BC.png"
        page = await client.get("/v1/sessions/a%2Fb/entries/1/parts/4")
        assert page.headers["content-disposition"] == "attachment"
        for each in (image, page):
            assert each.headers["x-content-type-options"] == "nosniff"
            assert "sandbox" in each.headers["content-security-policy"]


@pytest.mark.parametrize(
    ("wanted", "status", "first", "last"),
    [
        ("bytes=0-0", 206, 0, 0),
        ("bytes=10-19", 206, 10, 19),
        ("bytes=10-", 206, 10, -1),
        ("bytes=-7", 206, -7, -1),
        ("bytes=0-99999999", 206, 0, -1),
        ("bytes=-99999999", 206, 0, -1),
        ("bytes=5-2", 200, 0, -1),
        ("bytes=0-1,3-4", 200, 0, -1),
        ("lines=0-1", 200, 0, -1),
        ("bytes=", 200, 0, -1),
        ("bytes=-", 200, 0, -1),
    ],
)
async def test_a_part_is_given_by_range(wanted: str, status: int, first: int, last: int) -> None:
    async with serving() as (client, service):
        await service.store.create_session("s", entries=[Message("user", [Text(BIG)])])
        data = BIG.encode()
        answer = await client.get("/v1/sessions/s/entries/1/parts/0", headers={"Range": wanted})
        start, end = first % len(data), last % len(data)
        assert answer.status_code == status
        assert answer.content == data[start : end + 1]
        assert answer.headers["accept-ranges"] == "bytes"
        if status == 206:
            assert answer.headers["content-range"] == f"bytes {start}-{end}/{len(data)}"


@pytest.mark.parametrize("wanted", ["bytes=999999999-", "bytes=-0"])
async def test_a_range_behind_the_end_is_416(wanted: str) -> None:
    async with serving() as (client, service):
        await service.store.create_session("s", entries=[Message("user", [Text("abc")])])
        answer = await client.get("/v1/sessions/s/entries/1/parts/0", headers={"Range": wanted})
        check(answer, 416, "range_not_satisfiable")
        assert answer.headers["content-range"] == "bytes */3"


async def test_a_part_that_is_not_there_is_404() -> None:
    async with serving() as (client, service):
        await service.store.create_session("s", entries=[Message("user", [Text("abc")])])
        for path in ("entries/2", "entries/1/parts/1", "entries/1/parts/0/0", "entries/0"):
            check(await client.get(f"/v1/sessions/s/{path}"), 404, "entry_not_found")
        for path in ("entries/x", "entries/1/parts/-1", "entries/1/parts/x"):
            check(await client.get(f"/v1/sessions/s/{path}"), 422, "invalid_number")


async def test_a_large_body_comes_through_real_http_whole() -> None:
    async with running() as server:
        await server.client.post("/v1/sessions", json={"session_id": "s"})
        sent = await server.send("s", BIG * 20)
        assert sent["turn_id"]
        page = (await server.client.get("/v1/sessions/s/entries")).json()["entries"]
        (said,) = (each for each in page if each.get("role") == "user")
        whole = await server.client.get(said["parts"][0]["href"])
        assert whole.content == (BIG * 20).encode()


DISPATCHED = ToolDispatched(
    turn_id="t", call_id="c1", name="write", arguments={"content": BIG}, idempotency_key="k"
)


async def test_other_fields_above_the_bound_are_elided_and_whole_at_their_address() -> None:
    async with serving() as (client, service):
        compaction = Compaction(summary=BIG, first_kept_id=None)
        await service.store.create_session("a/b", entries=[DISPATCHED, compaction])
        for page in ("entries", "transcript"):
            shown = (await client.get(f"/v1/sessions/a%2Fb/{page}")).json()["entries"]
            assert all(len(str(entry)) < MAX_INLINE_BYTES for entry in shown)
        dispatched, compacted = (await client.get("/v1/sessions/a%2Fb/entries")).json()["entries"]
        assert (dispatched["name"], dispatched["call_id"]) == ("write", "c1")
        base = "/v1/sessions/a%2Fb/entries"
        assert dispatched["arguments"]["href"] == f"{base}/1/fields/arguments"
        assert (await client.get(dispatched["arguments"]["href"])).json() == {"content": BIG}
        summary = compacted["summary"]
        size = len(BIG.encode())
        assert summary == {"elided": True, "bytes": size, "href": f"{base}/2/fields/summary"}
        whole = await client.get(summary["href"])
        assert (whole.content, whole.headers["content-type"]) == (
            BIG.encode(),
            "text/plain; charset=utf-8",
        )
        piece = await client.get(summary["href"], headers={"Range": "bytes=0-8"})
        assert (piece.status_code, piece.content) == (206, BIG.encode()[:9])
        check(await client.get(f"{base}/2/fields/no such"), 404, "entry_not_found")


async def test_what_waits_is_elided_in_looks_and_whole_at_its_address() -> None:
    hang = '[{"do": "say", "text": "shown", "cut": "hang"}]'
    async with running(scripted_by_message) as server:
        await server.client.post("/v1/sessions", json={"session_id": "a/b"})
        await server.send("a%2Fb", hang)
        await server.send("a%2Fb", BIG)
        looks = [
            (await server.client.get("/v1/sessions/a%2Fb")).json(),
            (await server.client.get("/v1/sessions")).json()["sessions"][0],
        ]
        async with server.stream(("session", "a/b")) as events:
            looks.append((await anext(events)).data)
        for look in looks:
            (part,) = look["queued"][0]["parts"]
            assert part["elided"]
            assert (await server.client.get(part["href"])).content == BIG.encode()


@pytest.mark.parametrize("prefix", ["/sub", "/under a/ü"])
async def test_addresses_begin_where_the_server_is_mounted(prefix: str) -> None:
    app = create_app(
        Settings(token=TOKEN), store=MemoryStore(), loops=OneLoop(ScriptedLoop([Say("hello")]))
    )
    outer = httpx.ASGITransport(Starlette(routes=[Mount(prefix, app)]))
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(
            transport=outer,
            base_url="http://localhost",
            headers={"Authorization": f"Bearer {TOKEN}"},
        ) as client,
    ):
        service = app.state.service
        await service.store.create_session("a/b", entries=[MESSAGE, DISPATCHED])
        base = f"{prefix}/v1/sessions/a%2Fb"
        message, dispatched = (await client.get(f"{base}/entries")).json()["entries"]
        assert (await client.get(message["parts"][1]["href"])).content == BIG.encode()
        assert (await client.get(dispatched["arguments"]["href"])).json() == {"content": BIG}
        viewer = await service.feed.watch(
            [("a/b", START)],
            look=service.registry.look,
            partials=service.registry.partials,
            root=quote(prefix),
        )
        told = b""
        while b"tool_dispatched" not in told:
            told += await viewer.next() or b""
        assert f'"href":"{quote(prefix)}/v1/sessions/a%2Fb/entries/1/parts/1"'.encode() in told
        service.feed.leave(viewer)
