"""The feed by itself: whatever the timing, each seq once, in order, without a gap."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from perdure.entry import Message, Text, text
from perdure.errors import JournalCorruptError, StoreUnavailableError
from perdure.events import MessageUpdate
from perdure.fact import TurnEnded, TurnStarted
from perdure.server.feed.cursor import START, Cursor, parse_cursor
from perdure.server.feed.write import MAX_WRITE_BYTES
from perdure.server.session.look import SessionLook
from perdure.store import Page
from perdure.stores.memory import MemoryStore
from tests.server.live import Event, EventParser
from tests.server.watched_world import World, read_until


class Reader:
    """What one viewer was shown, over all its connections, checked as it comes."""

    def __init__(self) -> None:
        self.entries: dict[str, list[str]] = {"a": [], "b": []}
        self.texts: dict[str, dict[int, str]] = {}
        self.cursors: dict[str, Cursor] = {"a": START, "b": START}
        self.is_whole = True

    def begin(self) -> None:
        self.texts = {}
        self._parser = EventParser()

    def take(self, data: bytes) -> None:
        for event in self._parser.feed(data):
            self._take(event)

    def _take(self, event: Event) -> None:
        data = event.data
        if event.name == "entry":
            shown = self.entries[data["session_id"]]
            assert data["seq"] == len(shown) + 1
            shown.append(data["id"])
            if data["id"] in self.texts:
                whole = {n: part["text"] for n, part in enumerate(data["parts"])}
                for part, said in self.texts.pop(data["id"]).items():
                    assert whole[part].startswith(said)
                    self.is_whole &= whole[part] == said
            assert event.id is not None
            for session_id, cursor in zip(("a", "b"), event.id.split(","), strict=True):
                self.cursors[session_id] = parse_cursor(cursor)
                assert self.cursors[session_id].seq == len(self.entries[session_id])
        elif event.name in {"delta", "partial"}:
            assert data["message_id"] not in self.entries[data["session_id"]]
            parts = self.texts.setdefault(data["message_id"], {})
            known = "" if event.name == "partial" else parts.get(data["part"], "")
            assert len(known) == data["offset"]
            parts[data["part"]] = known + data["text"]
        else:
            assert event.name == "status"


class SlowStore(MemoryStore):
    """Pages come late, by chance."""

    def __init__(self, dice: random.Random) -> None:
        super().__init__()
        self._dice = dice

    async def page_entries(
        self,
        session_id: str,
        *,
        before: int | None = None,
        after: int | None = None,
        limit: int = 50,
    ) -> Page:
        for _ in range(self._dice.randrange(4)):
            await asyncio.sleep(0)
        page = await super().page_entries(
            session_id, before=before, after=after, limit=self._dice.choice((1, 2, limit))
        )
        for _ in range(self._dice.randrange(4)):
            await asyncio.sleep(0)
        return page


async def write(world: World, session_id: str, dice: random.Random, turns: int) -> None:
    for turn in range(turns):
        turn_id = world.turns[session_id] = f"turn {turn}"
        await world.append(
            session_id, TurnStarted(turn_id=turn_id, message_id="m"), text("question")
        )
        world.feed.status(await world.look(session_id))
        message = Message("assistant", [Text(f"é{dice.random()}" * 3), Text("tail")])
        for n, part in enumerate(message.parts):
            assert isinstance(part, Text)
            for at in range(0, len(part.text), 7):
                piece = part.text[at : at + 7]
                world.delta(session_id, MessageUpdate(message.id, n, at, piece, "text"))
                for _ in range(dice.randrange(3)):
                    await asyncio.sleep(0)
        await world.append(session_id, message)
        if dice.random() < 0.5:
            await world.append(session_id, TurnEnded(turn_id=turn_id, reason="completed"))
        await asyncio.sleep(dice.random() * 0.002)


async def view(world: World, reader: Reader, dice: random.Random, goal: asyncio.Event) -> None:
    """Connects, reads for a while, and connects again with the cursors that it has."""
    last = False
    while not last:
        last = goal.is_set()
        viewer = await world.watch(("a", reader.cursors["a"]), ("b", reader.cursors["b"]))
        reader.begin()
        ends = {each: (await world.store.look(each)).last_seq for each in ("a", "b")}
        for _ in range(dice.randrange(1, 12)) if not last else iter(int, 1):
            data = await viewer.next()
            assert data is not None
            reader.take(data)
            if dice.random() < 0.2:
                await asyncio.sleep(dice.random() * 0.004)
            if last and all(len(reader.entries[each]) >= ends[each] for each in ends):
                break
        world.feed.leave(viewer)


@pytest.mark.parametrize("seed", range(12))
async def test_reconnecting_at_any_moment_leaves_no_hole_and_doubles_nothing(seed: int) -> None:
    dice = random.Random(seed)
    ring_bytes = 2**20 if seed % 2 else dice.choice((300, 5_000))
    world = World(SlowStore(dice), ring_bytes=ring_bytes)
    for session_id in ("a", "b"):
        await world.store.create_session(session_id)
    goal = asyncio.Event()
    readers = [Reader() for _ in range(3)]
    async with asyncio.timeout(30):
        viewing = [
            asyncio.create_task(view(world, reader, random.Random(f"{seed} {n}"), goal))
            for n, reader in enumerate(readers)
        ]
        await asyncio.gather(*(write(world, each, dice, 15) for each in ("a", "b")))
        goal.set()
        await asyncio.gather(*viewing)
    for session_id in ("a", "b"):
        stored = [each.id for each in await world.store.load_entries(session_id)]
        assert all(reader.entries[session_id] == stored for reader in readers)
    if ring_bytes == 2**20:
        assert all(reader.is_whole for reader in readers)
    assert world.feed.watched == frozenset()
    await world.close()


async def test_an_entry_is_encoded_once_and_its_bytes_are_shared() -> None:
    world = World()
    await world.store.create_session("a")
    viewers = [await world.watch(("a", START)) for _ in range(3)]
    for viewer in viewers:
        await read_until(viewer, b"status")
    reading = [asyncio.create_task(viewer.next()) for viewer in viewers]
    for _ in range(20):  # they join
        await asyncio.sleep(0)
    await world.append("a", text("hello"))
    got = await asyncio.gather(*reading)
    assert got[0] is got[1] is got[2]
    await world.close()


async def test_a_session_that_nobody_watches_holds_nothing() -> None:
    world = World()
    await world.store.create_session("a")
    viewer = await world.watch(("a", START))
    assert world.feed.watched == {"a"}
    world.feed.leave(viewer)
    assert world.feed.watched == frozenset()
    world.delta("a", MessageUpdate("m", 0, 0, "x", "text"))
    assert world.feed.watched == frozenset()
    await world.close()


async def test_a_tools_output_names_its_call_for_early_and_late_viewers() -> None:
    world = World()
    await world.store.create_session("a")
    early = await world.watch(("a", START))
    await read_until(early, b"status")
    reading = asyncio.create_task(read_until(early, b"delta"))
    for _ in range(20):  # it joins
        await asyncio.sleep(0)
    world.delta("a", MessageUpdate("m", 0, 0, "line", "output", "call-1"))
    assert b'"kind":"output","call_id":"call-1"' in await reading
    late = await world.watch(("a", START))
    assert b'"kind":"output","call_id":"call-1"' in await read_until(late, b"partial")
    await world.close()


async def test_what_no_hint_told_comes_with_the_next_beat(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    monkeypatch.setattr(world.store, "_hint", lambda session_id: None)
    await world.store.create_session("a")
    viewer = await world.watch(("a", START))
    await read_until(viewer, b"status")
    await world.append("a", text("hello"))
    assert b"event: entry" in await read_until(viewer, b"hello")
    await world.close()


async def test_a_text_comes_after_the_start_of_its_turn_and_the_message_that_it_answers() -> None:
    world = World()
    await world.store.create_session("a")
    viewer = await world.watch(("a", START))
    await read_until(viewer, b"status")
    reading = asyncio.create_task(read_until(viewer, b"event: delta"))
    for _ in range(20):  # it joins
        await asyncio.sleep(0)
    started = TurnStarted(id="turn", turn_id="turn", message_id="m")  # as a server's has it
    await world.append("a", started, text("question"))
    world.feed.notice("a", "turn", "asking")
    world.delta("a", MessageUpdate("answer", 0, 0, "the", "text"))
    events = EventParser().feed(await reading)
    assert [event.data.get("type", event.name) for event in events] == [
        "turn_started",
        "message",
        "notice",
        "delta",
    ]
    await world.close()


async def test_a_text_whose_message_was_stored_just_before_is_not_told_again() -> None:
    world = World()
    await world.store.create_session("a")
    message = Message("assistant", [Text("whole")])
    world.delta("a", MessageUpdate(message.id, 0, 0, "who", "text"))
    await world.store.append_entries("a", [message])  # the actor has not heard of it yet
    viewer = await world.watch(("a", None))
    await world.append("a", text("next"))
    got = await read_until(viewer, b"next")
    assert b"partial" not in got
    await world.close()


@pytest.mark.parametrize("cursor", [None, START])
async def test_a_status_that_changes_while_a_viewer_comes_is_told(cursor: Cursor | None) -> None:
    world = World()
    await world.store.create_session("a", entries=[TurnStarted(turn_id="turn", message_id="m")])
    looks = 0

    async def look(session_id: str) -> SessionLook:
        nonlocal looks
        looks += 1
        before = await world.look(session_id)
        if looks == 1:
            await world.append("a", TurnEnded(turn_id="turn", reason="completed"))
            world.feed.status(await world.look(session_id))
        return before

    viewer = await world.feed.watch([("a", cursor)], look=look, partials=world._partials)
    parser, statuses = EventParser(), [""]
    async with asyncio.timeout(5):
        while statuses[-1] != "idle":
            events = parser.feed(await viewer.next() or b"")
            statuses += [event.data["status"] for event in events if event.name == "status"]
    assert statuses[1:] == ["interrupted", "idle"]
    world.feed.leave(viewer)
    await world.close()


async def test_a_status_never_comes_before_the_entries_that_it_follows() -> None:
    world = World()
    await world.store.create_session("a")
    viewer = await world.watch(("a", START))
    await read_until(viewer, b"status")
    for n in range(20):
        await world.append("a", text(f"message {n}"))
        world.feed.status(await world.look("a"))
    got = await read_until(viewer, b'"last_seq":20')
    events = EventParser().feed(got)
    seen = 0
    for event in events:
        if event.name == "entry":
            seen = event.data["seq"]
        else:
            assert event.data["last_seq"] <= seen
    await world.close()


class DamagedStore(MemoryStore):
    """From `damaged_from` on the journal of session a cannot be read."""

    damaged_from = 10**9

    async def page_entries(
        self,
        session_id: str,
        *,
        before: int | None = None,
        after: int | None = None,
        limit: int = 50,
    ) -> Page:
        page = await super().page_entries(session_id, before=before, after=after, limit=limit)
        if session_id == "a" and any(x.seq >= self.damaged_from for x in page.entries):
            raise JournalCorruptError(session_id, self.damaged_from, "here", "it is torn")
        return page


@pytest.mark.parametrize("first", [1, 3])
async def test_damage_is_told_as_a_status_and_never_as_a_shorter_conversation(first: int) -> None:
    store = DamagedStore()
    world = World(store)
    for session_id in ("a", "b"):
        await store.create_session(session_id)
    await world.append("a", text("one"), text("two"))
    viewer = await world.watch(("a", START), ("b", START))
    if first == 3:
        await read_until(viewer, b"two")
    store.damaged_from = first
    await world.append("a", text("three"))
    got = await read_until(viewer, b"unrecoverable")
    told = [event.data for event in EventParser().feed(got) if event.name == "status"][-1]
    assert told["session_id"] == "a"
    assert "torn" in told["cause"]
    await world.append("b", text("the other goes on"))
    await read_until(viewer, b"the other goes on")
    await world.close()


async def test_a_store_that_cannot_be_read_for_a_while_ends_no_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    await world.store.create_session("a", entries=[text("one")])
    first = await world.watch(("a", None))
    read, failures = world.store.page_entries, 2

    async def page_entries(*args: Any, **options: Any) -> Page:
        nonlocal failures
        if options.get("before") is not None:  # what a viewer reads that is caught up
            failures -= 1
            if failures >= 0:
                raise StoreUnavailableError("locked")
        return await read(*args, **options)

    monkeypatch.setattr(world.store, "page_entries", page_entries)
    viewer = await world.watch(("a", START))
    shown = b""
    async with asyncio.timeout(5):
        while b"event: entry" not in shown:
            shown += await viewer.next() or b""
    assert failures < 0
    for each in (first, viewer):
        world.feed.leave(each)
    await world.close()


async def test_a_viewer_that_takes_no_write_for_some_beats_is_cut_off() -> None:
    world = World()
    await world.store.create_session("a")
    viewer = await world.watch(("a", START))
    cut = asyncio.Event()
    viewer.on_cut = cut.set
    assert await viewer.next() is not None
    async with asyncio.timeout(20):
        await cut.wait()
    assert viewer.is_cut
    assert await viewer.next() is None
    await world.close()


async def test_a_session_made_anew_under_a_watched_id_ends_the_old_one_s_stream() -> None:
    world = World()
    await world.store.create_session("a")
    viewer = await world.watch(("a", START))
    await world.append("a", text("old"))
    await read_until(viewer, b"old")
    await world.store.delete_session("a")
    await world.store.create_session("a", entries=[text("new 1"), text("new 2")])
    got = await read_until(viewer, b"deleted")
    assert b"new" not in got
    assert await viewer.next() is None
    again = await world.watch(("a", START))
    assert b"new 1" in await read_until(again, b"new 2")
    await world.close()


@pytest.mark.parametrize("where", ["behind", "live"])
async def test_a_write_is_bounded_over_all_its_sessions_and_each_gets_its_turn(where: str) -> None:
    world = World()
    ids = ["a", "b", "c", "d"]
    entries = {each: [text("x" * 30_000) for _ in range(40)] for each in ids}
    if where == "behind":
        for each in ids:
            await world.store.create_session(each, entries=entries[each])
    else:
        for each in ids:
            await world.store.create_session(each)
    viewer = await world.feed.watch(
        [(each, START) for each in ids], look=world.look, partials=lambda _: ()
    )
    if where == "live":
        assert (await viewer.next() or b"").count(b"event: status") == len(ids)
        for each in ids:
            await world.store.append_entries(each, entries[each])
    parser, seen, turns = EventParser(), dict.fromkeys(ids, 0), []
    async with asyncio.timeout(20):
        while sum(seen.values()) < 160:
            data = await viewer.next() or b""
            assert len(data) <= MAX_WRITE_BYTES
            told = [event.data for event in parser.feed(data) if event.name == "entry"]
            turns += [{entry["session_id"] for entry in told}] if told else []
            for entry in told:
                seen[entry["session_id"]] += 1
                assert entry["seq"] == seen[entry["session_id"]]
    assert set().union(*turns[: len(ids) + 1]) == set(ids)
    world.feed.leave(viewer)
    await world.close()
