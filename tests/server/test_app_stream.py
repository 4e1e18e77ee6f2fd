"""The stream over real HTTP: order, cursors, partial texts, ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import pytest

from perdure.entry import Text, text
from perdure.loop import LoopContext, LoopEvent, LoopFactory, MessageEnded, Notice
from perdure.server.http.direct import DirectWriter
from perdure.stores.memory import MemoryStore
from perdure.testing.scripted_loop import Call, Say, ScriptedLoop
from tests.server.live import Event, EventParser, Running, running, until


async def until_rest(events: AsyncIterator[Event]) -> list[Event]:
    """The events up to the end of a turn and the status after it."""
    seen = await until(events, "entry", type="turn_ended")
    return seen + await until(events, "status", status="idle")


def seqs(events: list[Event], session_id: str = "s") -> list[int]:
    return [
        event.data["seq"]
        for event in events
        if event.name == "entry" and event.data["session_id"] == session_id
    ]


async def create(server: Running, *session_ids: str) -> None:
    for session_id in session_ids:
        answer = await server.client.post("/v1/sessions", json={"session_id": session_id})
        assert answer.status_code == 201, answer.text


async def test_a_turn_is_streamed_whole_and_in_order() -> None:
    async with running(ScriptedLoop([Say("hello world", calls=[Call("t")]), Say("bye")])) as server:
        await create(server, "s")
        async with server.stream(("session", "s"), ("after", "0")) as events:
            first = await anext(events)
            assert (first.name, first.id, first.data["status"]) == ("status", None, "idle")
            await server.send("s", "hi")
            seen = await until_rest(events)
        journal = (await server.client.get("/v1/sessions/s/entries")).json()
        assert seqs(seen) == list(range(1, journal["last_seq"] + 1))
        assert [e.data for e in seen if e.name == "entry"] == journal["entries"]
        assert [e.data["status"] for e in seen if e.name == "status"] == ["running", "idle"]
        incarnation = (await server.client.get("/v1/sessions/s")).json()["cursor"].split(".")[1]
        assert all(
            e.id == f"{e.data['seq']}.{incarnation}" if e.name == "entry" else e.id is None
            for e in seen
        )


async def test_a_notice_is_told_in_its_place_and_is_no_entry_and_no_text() -> None:
    async def loop(context: LoopContext) -> AsyncGenerator[LoopEvent, None]:
        yield Notice("asking again\nin 1 s\ud800")
        yield MessageEnded((Text("there"),))

    async with running(lambda: loop) as server:
        await create(server, "s")
        async with server.stream(("session", "s"), ("after", "0")) as events:
            await server.send("s", "hi")
            seen = await until_rest(events)
        (notice,) = [event for event in seen if event.name == "notice"]
        turn_id = next(e.data["turn_id"] for e in seen if e.data.get("type") == "turn_started")
        said = {"session_id": "s", "turn_id": turn_id, "text": "asking again\nin 1 s\ufffd"}
        assert (notice.id, notice.data) == (None, said)
        journal = await server.client.get("/v1/sessions/s/entries")
        assert "asking again" not in journal.text
        assert not [event for event in seen if event.name == "delta"]


async def test_texts_come_before_their_entry_and_add_up_to_it() -> None:
    loop = ScriptedLoop([Say("one two three four", delta_chars=3, delay_s=0.001, reasoning="hm")])
    async with running(loop) as server:
        await create(server, "s")
        async with server.stream(("session", "s"), ("after", "0")) as events:
            await server.send("s", "hi")
            seen = await until_rest(events)
        check_texts(seen)
        (message,) = (e.data for e in seen if e.data.get("role") == "assistant")
        assert shown(seen, message["id"]) == {
            n: part["text"] for n, part in enumerate(message["parts"])
        }


def shown(events: list[Event], message_id: str) -> dict[int, str]:
    """What a viewer has on its screen of a message, by part."""
    parts: dict[int, str] = {}
    for event in events:
        if event.name in {"delta", "partial"} and event.data["message_id"] == message_id:
            data = event.data
            known = "" if event.name == "partial" else parts.get(data["part"], "")
            assert len(known) == data["offset"], (known, data)
            parts[data["part"]] = known + data["text"]
    return parts


def check_texts(events: list[Event]) -> None:
    """No text comes after the entry that it was going to be."""
    stored: set[str] = set()
    for event in events:
        if event.name == "entry":
            stored.add(event.data["id"])
        elif event.name in {"delta", "partial"}:
            assert event.data["message_id"] not in stored


async def test_a_late_joiner_gets_the_text_so_far_and_what_follows() -> None:
    words = "".join(f"word {n} é🧭 " for n in range(60))
    loop = ScriptedLoop([Say(words, delta_chars=5, delay_s=0.002)])
    async with running(loop) as server:
        await create(server, "s")
        async with server.stream(("session", "s"), ("after", "0")) as early:
            await server.send("s", "hi")
            await until(early, "delta")
            await asyncio.sleep(0.05)
            async with server.stream(("session", "s"), ("after", "0")) as late:
                seen = await until_rest(late)
            await until_rest(early)
        (message,) = (e.data for e in seen if e.data.get("role") == "assistant")
        assert [e.name for e in seen].count("partial") == 1
        assert shown(seen, message["id"]) == {0: words}
        check_texts(seen)


async def test_a_first_viewer_in_the_middle_of_a_message_gets_the_text_so_far_too() -> None:
    words = "".join(f"word {n} " for n in range(60))
    async with running(ScriptedLoop([Say(words, delta_chars=5, delay_s=0.002)])) as server:
        await create(server, "s")
        await server.send("s", "hi")
        await asyncio.sleep(0.05)
        async with server.stream(("session", "s")) as events:
            seen = await until_rest(events)
        (message,) = (e.data for e in seen if e.data.get("role") == "assistant")
        assert shown(seen, message["id"]) == {0: words}


async def test_two_sessions_share_a_stream_and_resume_from_both_cursors() -> None:
    async with running() as server:
        await create(server, "a", "b")
        async with server.stream(
            ("session", "a"), ("session", "b"), ("after", "0"), ("after", "0")
        ) as events:
            await server.send("a", "hi")
            seen = await until(events, "status", session_id="a", status="idle", last_seq=5)
            await server.send("b", "hi")
            seen += await until(events, "status", session_id="b", status="idle", last_seq=5)
        last = [e.id for e in seen if e.name == "entry"][-1]
        assert last is not None
        assert [cursor.split(".")[0] for cursor in last.split(",")] == ["5", "5"]
        await server.send("a", "again")
        async with server.stream(
            ("session", "a"), ("session", "b"), ("after", "0"), ("after", "0"), last_event_id=last
        ) as events:
            more = await until(events, "entry", session_id="a", type="turn_ended")
        assert seqs(seen, "a") == seqs(seen, "b") == [1, 2, 3, 4, 5]
        assert seqs(more, "b") == []
        assert seqs(more, "a")[0] == 6


async def test_without_cursors_a_stream_begins_now_and_can_be_resumed() -> None:
    async with running() as server:
        await create(server, "s")
        await server.send("s", "before")
        await settle(server)
        look = (await server.client.get("/v1/sessions/s")).json()
        async with server.raw_stream(("session", "s")) as chunks:
            data = b""
            while b"id: " not in data:
                data += await anext(chunks)
            assert f"id: {look['cursor']}\n".encode() in data
            assert b"event: entry" not in data
        async with server.stream(("session", "s")) as events:
            await server.send("s", "after")
            seen = await until(events, "status", status="idle", last_seq=look["last_seq"] + 4)
        assert seqs(seen) == [look["last_seq"] + n for n in (1, 2, 3, 4)]


async def settle(server: Running, session_id: str = "s") -> dict[str, Any]:
    """Waits until no turn runs."""
    async with asyncio.timeout(20):
        while True:
            look: dict[str, Any] = (await server.client.get(f"/v1/sessions/{session_id}")).json()
            if look["status"] != "running":
                return look
            await asyncio.sleep(0.005)


async def test_a_cursor_of_another_incarnation_is_void_and_reading_starts_again() -> None:
    async with running() as server:
        await create(server, "s")
        old = (await server.client.get("/v1/sessions/s")).json()["cursor"].split(".")[1]
        assert (await server.client.delete("/v1/sessions/s")).status_code == 204
        await create(server, "s")
        await server.send("s", "hi")
        await settle(server)
        for cursor in (f"3.{old}", f"0.{old}", "900.0000"):
            async with server.stream(("session", "s"), ("after", cursor)) as events:
                seen = await until(events, "entry", seq=5)
            assert [e.name for e in seen][:2] == ["status", "void"]
            assert seen[1].data == {"session_id": "s"}
            assert seqs(seen) == [1, 2, 3, 4, 5]


async def test_deleting_a_session_ends_its_streams_with_a_last_status() -> None:
    async with running(settings={"heartbeat_s": 600}) as server, asyncio.timeout(20):
        await create(server, "s", "other")
        async with (
            server.stream(("session", "s"), ("after", "0")) as alone,
            server.stream(("session", "s"), ("session", "other")) as both,
        ):
            await anext(alone)
            assert (await server.client.delete("/v1/sessions/s")).status_code == 204
            seen = [event async for event in alone]
            assert seen[-1].data["status"] == "deleted"
            await until(both, "status", session_id="s", status="deleted")
            await server.send("other", "hi")
            await until(both, "status", session_id="other", status="idle", last_seq=5)
            await server.client.delete("/v1/sessions/other")
            seen = [event async for event in both]
            assert seen[-1].data["status"] == "deleted"
        answer = await server.client.get("/v1/stream", params={"session": "s"})
        assert (answer.status_code, answer.json()["code"]) == (404, "session_not_found")


async def test_a_listing_stream_tells_the_status_of_all_sessions() -> None:
    async with running() as server, server.stream(("listing", "1")) as events:
        await create(server, "s")
        await server.send("s", "hi")
        seen = await until(events, "status", session_id="s", status="idle", last_seq=5)
        await server.client.delete("/v1/sessions/s")
        seen += await until(events, "status", session_id="s", status="deleted")
        assert [e.name for e in seen] == ["status"] * len(seen)
        assert "running" in {e.data["status"] for e in seen}


async def test_a_session_of_a_listing_stream_that_is_watched_too_is_told_once() -> None:
    async with running() as server:
        await create(server, "s")
        async with server.stream(("session", "s"), ("listing", "1")) as events:
            await server.send("s", "hi")
            seen = await until(events, "status", status="idle", last_seq=5)
        looks = [str(e.data) for e in seen if e.name == "status"]
        assert len(looks) == len(set(looks))


async def test_heartbeats_come_while_nothing_happens() -> None:
    async with running(settings={"heartbeat_s": 0.02}) as server:
        await create(server, "s")
        async with server.raw_stream(("session", "s")) as chunks, asyncio.timeout(20):
            data = b""
            while not data.endswith(b":\n\n:\n\n:\n\n"):
                data += await anext(chunks)


async def rest() -> bool:
    """Lets others go on for a moment; always true."""
    await asyncio.sleep(0.005)
    return True


async def test_live_viewers_of_a_session_are_written_to_directly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written: list[bytes] = []
    write = DirectWriter.write

    def spy(writer: DirectWriter, data: bytes) -> None:
        written.append(data)
        write(writer, data)

    monkeypatch.setattr(DirectWriter, "write", spy)
    store = MemoryStore()
    async with running(store=store) as server:
        await create(server, "s")
        async with (
            server.stream(("session", "s"), ("after", "0")) as one,
            server.stream(("session", "s"), ("after", "0")) as another,
        ):
            await until(one, "status")
            await until(another, "status")
            for n in range(3):
                await store.append_entries("s", [text(f"{n}" * 70_000)])
                for events in (one, another):
                    await until(events, "entry", seq=n + 1)
    assert len(written) >= 4  # the first one may come while the streams begin
    assert all(ours is theirs for ours, theirs in zip(written[-4::2], written[-3::2], strict=True))


async def test_a_viewer_that_leaves_is_let_go_and_stops_nothing() -> None:
    async with running(ScriptedLoop([Say("x" * 400, delta_chars=4, delay_s=0.001)])) as server:
        await create(server, "s")
        async with server.stream(("session", "s"), ("after", "0")) as events:
            await server.send("s", "hi")
            await until(events, "delta")
        feed = server.service.feed
        async with asyncio.timeout(20):
            while await rest() and feed.viewer_count:
                pass
        assert feed.watched == frozenset()
        assert (await settle(server))["last_turn"]["reason"] == "completed"


async def test_a_viewer_that_does_not_read_is_cut_off_and_resumes_by_cursor() -> None:
    store = MemoryStore()
    async with running(store=store, settings={"backlog_bytes": 200_000}) as server:
        await create(server, "s")
        port = int(server.base.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**18)
        request = "GET /v1/stream?session=s&after=0 HTTP/1.1\r\nHost: localhost\r\n"
        bearer = server.client.headers["authorization"]
        writer.write(f"{request}Authorization: {bearer}\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        feed = server.service.feed
        async with asyncio.timeout(20):
            while feed.viewer_count:
                await store.append_entries("s", [text("x" * 50_000)])
                await asyncio.sleep(0)
        got = await read_all(reader)
        writer.close()
        frames = [frame for frame in EventParser().feed(got) if frame.name == "entry"]
        last = frames[-1].id or ""
        await store.append_entries("s", [text("the last one")])
        end = (await store.look("s")).last_seq
        async with server.stream(("session", "s"), ("after", "0"), last_event_id=last) as events:
            seen = await until(events, "entry", seq=end)
        assert seqs(seen) == list(range(int(last.split(".")[0]) + 1, end + 1))


async def read_all(reader: asyncio.StreamReader) -> bytes:
    """What was sent before the connection was cut, the chunks' framing taken out."""
    got = b""
    try:
        while data := await reader.read(2**16):
            got += data
    except ConnectionResetError:
        pass
    chunks, at = [], 0
    while (end := got.find(b"\r\n", at)) > 0:
        size = int(got[at:end], 16)
        chunks.append(got[end + 2 : end + 2 + size])
        at = end + 2 + size + 2
    return b"".join(chunks)


@pytest.mark.parametrize("loop", [ScriptedLoop([Say("hang", cut="hang")])])
async def test_a_server_that_stops_ends_its_streams(loop: LoopFactory) -> None:
    async with running(loop) as server:
        await create(server, "s")
        async with server.stream(("session", "s"), ("after", "0")) as events:
            await server.send("s", "hi")
            await until(events, "delta")
            server.service.feed.end_streams()
            async with asyncio.timeout(20):
                seen = [event async for event in events]
    assert all(event.name in {"delta", "entry", "status"} for event in seen)
