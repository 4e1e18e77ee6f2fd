"""Streams and whose they are: nothing of others on them, and they end with their token."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from perdure import clock
from perdure.entry import text
from perdure.server.access.token_file import edit_tokens, read_tokens, revoke_tokens
from tests.server.live import Event, EventParser, until
from tests.server.people import VARIES, People, make, people
from tests.server.test_app_refusals import check


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[People]:
    async with people(tmp_path, heartbeat_s=0.5) as found:
        yield found


@asynccontextmanager
async def stream(client: httpx.AsyncClient, query: str) -> AsyncIterator[AsyncIterator[Event]]:
    """The events of one stream; they end when the stream does."""

    async def read(response: httpx.Response) -> Any:
        parser = EventParser()
        try:
            async for chunk in response.aiter_bytes():
                for event in parser.feed(chunk):
                    yield event
        except httpx.RemoteProtocolError:
            return  # it was cut off

    async with client.stream("GET", f"/v1/stream?{query}") as response:
        assert response.status_code == 200, await response.aread()
        async with aclosing(read(response)) as events:
            yield events


async def rest(events: AsyncIterator[Event]) -> list[Event]:
    """What comes before the stream ends, which is soon."""
    async with asyncio.timeout(5):
        return [event async for event in events]


@pytest.mark.parametrize("query", ["session={}", "session=own&session={}", "session={}&after=0",
                                   "session={}&listing=1"])  # fmt: skip
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_a_stream_of_somebody_else_s_session_is_refused_as_of_a_missing_one(
    here: People, query: str, method: str
) -> None:
    anna, bob = await here.come("anna"), await here.come("bob")
    await make(anna, "hers", "a secret")
    await make(bob, "own")
    answers = []
    for session_id in ("hers", "gone"):
        answer = await bob.request(method, f"/v1/stream?{query.format(session_id)}")
        kept = {k: v for k, v in answer.headers.items() if k not in VARIES}
        answers.append((answer.status_code, answer.text.replace(session_id, "ID"), kept))
    assert answers[0] == answers[1]
    assert answers[0][0] == 404


async def test_a_listing_stream_tells_of_one_s_own_sessions_only(here: People) -> None:
    anna, bob = await here.come("anna"), await here.come("bob")
    async with (
        stream(anna, "listing=1") as of_anna,
        stream(bob, "listing=1") as of_bob,
        stream(here.admin, "listing=1") as of_admin,
    ):
        await make(anna, "a", "hello")
        await make(bob, "b", "hello")
        await make(here.admin, "c", "hello")
        await anna.delete("/v1/sessions/a")
        await bob.delete("/v1/sessions/b")
        await here.admin.delete("/v1/sessions/c")
        for events, session_id in ((of_anna, "a"), (of_bob, "b")):
            seen = await until(events, "status", session_id=session_id, status="deleted")
            assert {event.data["session_id"] for event in seen} == {session_id}
            assert {event.data["owner"] for event in seen} == {
                "anna" if session_id == "a" else "bob"
            }
        seen = await until(of_admin, "status", session_id="c", status="deleted")
        assert {event.data["session_id"] for event in seen} == {"a", "b", "c"}


async def test_a_foreign_cursor_gives_nothing(here: People) -> None:
    anna, bob = await here.come("anna"), await here.come("bob")
    await make(anna, "hers", "a secret")
    await make(bob, "his", "hello")
    cursor = (await anna.get("/v1/sessions/hers")).json()["cursor"]
    async with stream(bob, f"session=his&after={cursor}") as events:
        seen = await until(events, "entry", type="turn_ended")
    assert seen[1].name == "void"
    assert {event.data["session_id"] for event in seen} == {"his"}
    assert next(event.data["seq"] for event in seen if event.name == "entry") == 1
    check(await bob.get(f"/v1/sessions/his/entries?after={cursor}"), 422, "invalid_cursor")
    answer = await bob.get(f"/v1/sessions/hers/entries?after={cursor}")
    check(answer, 404, "session_not_found")


async def test_revoking_a_token_ends_its_streams_and_no_others(here: People) -> None:
    anna, bob = await here.come("anna"), await here.come("bob")
    again = await here.come("anna")
    await make(anna, "hers")
    await make(bob, "his")
    async with (
        stream(anna, "session=hers&listing=1") as ends,
        stream(again, "session=hers") as stays,
        stream(bob, "session=his") as others,
    ):
        for events in (ends, stays, others):
            await until(events, "status")
        first = next(each for each in read_tokens(here.path) if each.principal == "anna")
        revoke_tokens(here.path, first.id)
        await rest(ends)
        assert (await anna.get("/v1/sessions")).status_code == 401
        for client, events, session_id in ((again, stays, "hers"), (bob, others, "his")):
            await client.post(f"/v1/sessions/{session_id}/messages", json={"text": "on"})
            await until(events, "entry", type="turn_ended")


async def test_a_viewer_who_does_not_read_is_cut_off_when_the_token_is_revoked(
    tmp_path: Path,
) -> None:
    async with people(tmp_path, heartbeat_s=14) as here:
        anna = await here.come("anna")
        await make(anna, "hers")
        store = here.server.service.store
        for _ in range(40):  # more than the sockets take between them
            await store.append_entries("hers", [text("x" * 50_000) for _ in range(10)])
        port = int(here.server.base.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        request = (
            "GET /v1/stream?session=hers&after=0 HTTP/1.1\r\nHost: localhost\r\n"
            f"Authorization: Bearer {here.tokens['anna']}\r\n\r\n"
        )
        writer.write(request.encode())
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        await _until_count(here, 1)
        await asyncio.sleep(0.5)
        revoke_tokens(here.path, "anna")
        await _until_count(here, 0)
        writer.close()


async def _until_count(here: People, count: int) -> None:
    for _ in range(400):
        if here.server.service.feed.viewer_count == count:
            return
        await asyncio.sleep(0.02)
    raise AssertionError(here.server.service.feed.viewer_count)


async def test_a_token_that_expires_ends_its_streams(here: People) -> None:
    anna = await here.come("anna", expires_at=clock.now() + timedelta(seconds=2))
    await make(anna, "hers")
    async with stream(anna, "session=hers") as events:
        await until(events, "status")
        await rest(events)
    check(await anna.get("/v1/sessions/hers"), 401, "unauthorised")


async def test_a_token_whose_role_changes_begins_anew(here: People) -> None:
    anna = await here.come("anna")
    await make(anna, "hers")
    async with stream(anna, "session=hers") as events:
        await until(events, "status")
        content = here.path.read_text()
        here.path.write_text(content.replace('role = "user"', 'role = "viewer"'))
        await rest(events)
    async with stream(anna, "session=hers") as events:
        await until(events, "status")
    check(await anna.post("/v1/sessions/hers/messages", json={"text": "x"}), 403, "not_allowed")


@pytest.mark.parametrize("verb", ["load_owner", "look"])
async def test_a_token_that_is_revoked_while_its_stream_begins_gets_none(
    here: People, verb: str
) -> None:
    anna = await here.come("anna")
    await make(anna, "hers")
    store, reached, go_on = here.server.service.store, asyncio.Event(), asyncio.Event()
    load = getattr(store, verb)

    async def slowly(session_id: str) -> Any:
        reached.set()
        await go_on.wait()
        return await load(session_id)

    vars(store)[verb] = slowly
    opening = asyncio.create_task(anna.get("/v1/stream?session=hers"))
    await reached.wait()
    edit_tokens(here.path, lambda entries: ())
    await here.server.access.keyring.refresh()
    here.server.access.connections.end_invalid()
    go_on.set()
    async with asyncio.timeout(5):
        assert (await opening).text == ""
    await _until_count(here, 0)


async def test_one_principal_has_so_many_streams_and_another_is_not_harmed(
    tmp_path: Path,
) -> None:
    async with people(tmp_path, max_streams=2) as here:
        anna, bob = await here.come("anna"), await here.come("bob")
        again = await here.come("anna")
        await make(anna, "hers")
        async with stream(anna, "session=hers") as one, stream(again, "listing=1"):
            await until(one, "status")
            refused = await again.get("/v1/stream?session=hers")
            problem = check(refused, 429, "too_many_streams")
            assert "max_streams" in problem["detail"]
            assert int(refused.headers["retry-after"]) >= 1
            async with stream(bob, "listing=1"), stream(bob, "listing=1"):
                check(await bob.get("/v1/stream?listing=1"), 429, "too_many_streams")
        await _until_count(here, 0)
        async with stream(anna, "session=hers") as one:
            await until(one, "status")
    assert vars(here.server.access.connections)["_held"] == {}


async def test_a_stream_that_is_refused_holds_no_place(tmp_path: Path) -> None:
    async with people(tmp_path, max_streams=1) as here:
        anna = await here.come("anna")
        for _ in range(3):
            check(await anna.get("/v1/stream?session=nowhere"), 404, "session_not_found")
            check(await anna.get("/v1/stream"), 422, "no_session")
        async with stream(anna, "listing=1"):
            await _until_count(here, 1)


@pytest.mark.parametrize("path", ["/v1/sessions", "/v1/sessions/hers/messages"])
async def test_a_token_that_is_revoked_while_a_body_comes_does_nothing_any_more(
    tmp_path: Path, path: str
) -> None:
    async with people(tmp_path) as here:
        anna = await here.come("anna")
        await make(anna, "hers")
        begun, go_on = asyncio.Event(), asyncio.Event()

        async def body() -> AsyncIterator[bytes]:
            yield b'{"text": "hi"}' if path.endswith("messages") else b'{"session_id": "late"'
            begun.set()
            await go_on.wait()
            yield b" " if path.endswith("messages") else b"}"

        sending = asyncio.create_task(anna.post(path, content=body()))
        await begun.wait()
        revoke_tokens(here.path, "anna")
        await here.server.access.keyring.refresh()
        go_on.set()
        check(await sending, 401, "unauthorised")
        listed = (await here.admin.get("/v1/sessions")).json()["sessions"]
        assert [(look["session_id"], look["last_seq"]) for look in listed] == [("hers", 1)]
