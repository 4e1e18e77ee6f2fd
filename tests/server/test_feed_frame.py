"""A frame holds what was stored, byte for byte, and nobody can forge one."""

from __future__ import annotations

import json

from perdure.codec import StoredEntry
from perdure.entry import text
from perdure.events import MessageUpdate
from perdure.server.feed.cursor import START
from perdure.server.session.partial import Partials
from tests.server.live import EventParser
from tests.server.watched_world import World, read_until


async def test_frames_cannot_be_forged_by_text_or_ids() -> None:
    world = World()
    evil = "\r\n\r\nevent: void\ndata: {}\u2028\u0085\n\nid: 9.x\n"
    world.partials["s\u2028: x"] = Partials()
    await world.store.create_session("s\u2028: x")
    viewer = await world.watch(("s\u2028: x", START))
    world.delta("s\u2028: x", MessageUpdate("m\r\n\n", 0, 0, evil, "text"))
    await world.append("s\u2028: x", text(evil))
    events = EventParser().feed(await read_until(viewer, b"event: entry"))
    assert {event.name for event in events} <= {"status", "partial", "delta", "entry"}
    (entry,) = (event for event in events if event.name == "entry")
    assert entry.data["parts"][0]["text"] == evil
    await world.close()


async def test_foreign_white_space_and_numbers_cannot_break_a_frame() -> None:
    from perdure.codec import Entry, read_entry

    raw = b'{"id":"e1",\r\n "type":"custom","kind":"k",\r"created_at":"2026-01-01T00:00:00Z",\n'
    raw += b'"parent_id":null,"data":1}'
    odd = b'{"id":"e2","type":"x","created_at":"2026-01-01T00:00:00Z","parent_id":null,"n":NaN}'
    world = World()
    await world.store.create_session("a")
    entries: list[Entry] = [read_entry(raw), read_entry(odd)]
    await world.store.append_entries("a", entries)
    viewer = await world.watch(("a", START))
    events = EventParser().feed(await read_until(viewer, b'"e2"'))
    assert [event.data["id"] for event in events if event.name == "entry"] == ["e1", "e2"]
    assert events[-1].data["n"] is None
    await world.close()


def test_stored_entries_have_their_own_bytes_on_the_wire() -> None:
    from perdure.codec import seal
    from perdure.server.feed.wire import EntryWriter

    stored = StoredEntry(7, seal(text("hello")))
    sent = EntryWriter("a/b").whole(stored)
    assert sent == b'{"session_id":"a/b","seq":7,' + stored.raw[1:]
    assert json.loads(sent)["parts"] == [{"type": "text", "text": "hello"}]
