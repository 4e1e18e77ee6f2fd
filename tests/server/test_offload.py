"""Idle actors leave memory; what comes meanwhile is neither lost nor run twice; looking is free."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from perdure import clock
from perdure.codec import seal
from perdure.entry import Message, Text, text
from perdure.errors import SessionNotFoundError, StoreUnavailableError
from perdure.fact import Claimed, TurnEnded, TurnStarted
from perdure.server.feed.cursor import START
from perdure.server.feed.feed import Feed
from perdure.server.journal import JournalStore
from perdure.server.session.command import Sent
from perdure.server.session.limit import Limits
from perdure.server.session.registry import Registry
from perdure.server.session.state import State, encode_state, fold, place
from perdure.stores.memory import MemoryStore
from perdure.testing import ManualClock, Say, scripted_by_message, write_script
from tests.server.house import ID, Gate, House, Loops

HANG = write_script(Say("w", cut="hang"))
LIMITS = Limits(idle_after_s=60, max_live_actors=3)


@pytest.fixture
def manual() -> Iterator[ManualClock]:
    manual = ManualClock()
    with clock.use(manual):
        yield manual


class Slow:
    """A store whose snapshots wait to be let through."""

    def __init__(self, store: JournalStore) -> None:
        self._store = store
        self.asked = asyncio.Event()
        self.let = asyncio.Event()
        self.fails = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def put_snapshot(self, *args: Any, **options: Any) -> Any:
        self.asked.set()
        await self.let.wait()
        if self.fails:
            raise StoreUnavailableError("the disk is full")
        return await self._store.put_snapshot(*args, **options)


async def talk(house: House, session_id: str, content: str = "hello") -> None:
    await house.registry.send(session_id, [Text(content)])
    await house.until(lambda look: look.turn is None and not look.queued, session_id)
    await house.until(lambda _: is_at_rest(house, session_id), session_id)


def is_at_rest(house: House, session_id: str) -> bool:
    """Whether the actor knows too what its last append said."""
    actor = house.registry._roster.get(session_id)
    return actor is None or actor.is_at_rest or not actor.is_awake


async def epochs(store: JournalStore, session_id: str = ID) -> int:
    """How often the session was woken."""
    return sum(isinstance(stored.view, Claimed) for stored in await store.load_entries(session_id))


async def until_live(house: House, count: int) -> None:
    for _ in range(5000):
        if house.registry.live_actors == count:
            return
        await asyncio.sleep(0.001)
    raise AssertionError(house.registry.live_actors)


@pytest.fixture
async def house(store: JournalStore, manual: ManualClock) -> AsyncIterator[House]:
    house = House(store, limits=LIMITS)
    await house.create()
    yield house
    await house.close()


async def test_an_idle_session_leaves_memory_and_its_journal_stays(
    house: House, manual: ManualClock
) -> None:
    await talk(house, ID)
    before = list(await house.log())
    await manual.advance(59)
    assert house.registry.live_actors == 1
    await manual.advance(20)
    await until_live(house, 0)
    assert list(await house.log()) == before
    snapshot = await house.store.load_snapshot(ID)
    assert snapshot is not None
    assert snapshot.seq == len(before)
    await manual.advance(1000)
    assert manual.sleeping == 0
    await talk(house, ID)
    assert await epochs(house.store) == 2
    assert await house.texts() == ["hello"] * 4


async def test_use_keeps_a_session_and_looking_does_not(house: House, manual: ManualClock) -> None:
    for _ in range(4):
        await talk(house, ID)
        await manual.advance(40)
    assert await epochs(house.store) == 1
    await manual.advance(30)
    for _ in range(3):
        await house.look()
        await house.registry.list()
        await house.registry.entries(ID)
        await house.registry.transcript(ID)
        house.registry.partials(ID)
        await manual.advance(10)
    await until_live(house, 0)


async def test_a_turn_keeps_its_session(house: House, manual: ManualClock) -> None:
    await house.send(HANG)
    await house.until_partial("w")
    await manual.advance(10_000)
    assert (house.registry.live_actors, (await house.look()).status) == (1, "running")
    await house.registry.stop(ID)
    await manual.advance(50)
    assert house.registry.live_actors == 1
    await manual.advance(20)
    await until_live(house, 0)
    assert await house.ends() == [((await house.ends())[0][0], "stopped")]


async def test_a_held_queue_survives_an_offload(house: House, manual: ManualClock) -> None:
    await house.send(HANG)
    waiting = await house.send("later", key="k")
    await house.registry.stop(ID)
    shown = await house.look()
    await manual.advance(100)
    await until_live(house, 0)
    assert await house.look() == shown
    assert (await house.send("later", key="k")).message_id == waiting.message_id
    await house.registry.go_on(ID)
    await house.rest()
    assert (await house.texts())[-2:] == ["later", "later"]


async def test_at_most_so_many_are_live_and_the_least_recently_used_leave(
    house: House, store: JournalStore
) -> None:
    names = [f"s{n}" for n in range(6)]
    for name in names:
        await house.registry.create(name)
        await talk(house, name)
        assert house.registry.live_actors <= 3
    await talk(house, "s3")
    await talk(house, "s0")
    for name, woken in (("s3", 1), ("s5", 1), ("s0", 2), ("s4", 2)):
        await talk(house, name)
        assert house.registry.live_actors <= 3
        assert await epochs(store, name) == woken


async def test_one_with_a_turn_does_not_make_room(house: House, store: JournalStore) -> None:
    gates = {name: Gate() for name in ("s0", "s1")}
    busy = house.restart(Loops(scripted_by_message, **gates))
    for name in gates:
        await busy.registry.create(name, loop=name)
        await busy.registry.send(name, [Text("hello")])
    for n in range(2, 6):
        await busy.registry.create(f"s{n}")
        await talk(busy, f"s{n}")
        assert busy.registry.live_actors <= 3
        assert (await busy.registry.look("s0")).status == "running"
    for name, gate in gates.items():
        gate.open()
        await busy.until(lambda look: look.turn is None, name)
        assert await epochs(store, name) == 1


async def test_more_at_once_than_may_be_live_all_run_and_then_leave(
    house: House, store: JournalStore
) -> None:
    names = [f"s{n}" for n in range(20)]
    for name in names:
        await house.registry.create(name)
    await asyncio.gather(*(talk(house, name) for name in names))
    for name in names:
        views = [stored.view for stored in await store.load_entries(name)]
        assert [v.reason for v in views if isinstance(v, TurnEnded)] == ["completed"]
    await until_live(house, 3)


@pytest.mark.parametrize("leaves", [False, True])
async def test_a_message_that_meets_an_offload_is_run_once(
    store: JournalStore, manual: ManualClock, leaves: bool
) -> None:
    slow = Slow(store)
    house = House(slow, limits=LIMITS)
    await house.create()
    await talk(house, ID)
    await manual.advance(70)
    await slow.asked.wait()
    sending = asyncio.create_task(house.send("meets it", key="k"))
    await asyncio.sleep(0)
    if leaves:
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
    slow.let.set()
    if not leaves:
        await sending
    await house.until(lambda look: look.last_seq > 6 and look.turn is None)
    await asyncio.gather(*(house.send("meets it", key="k") for _ in range(3)))
    await house.rest()
    assert await house.texts() == ["hello", "hello", "meets it", "meets it"]
    assert await epochs(store) == 1
    assert house.registry.live_actors == 1
    await house.close()


async def test_an_offload_that_keeps_no_snapshot_loses_nothing(
    store: JournalStore, manual: ManualClock
) -> None:
    slow = Slow(store)
    slow.fails = True
    slow.let.set()
    house = House(slow, limits=LIMITS)
    await house.create()
    await talk(house, ID)
    await manual.advance(100)
    await until_live(house, 0)
    await talk(house, ID)
    assert await house.texts() == ["hello"] * 4
    await house.close()


async def test_waking_after_an_offload_is_single_flight(house: House, manual: ManualClock) -> None:
    await talk(house, ID)
    await manual.advance(100)
    await until_live(house, 0)
    await asyncio.gather(*(house.send(str(n)) for n in range(8)), house.registry.stop(ID, "no"))
    await house.until(lambda look: look.turn is None and not look.queued)
    assert await epochs(house.store) == 2
    assert sorted(set(await house.texts())) == sorted({"hello", *map(str, range(8))})


async def test_a_compaction_keeps_its_session(store: JournalStore, manual: ManualClock) -> None:
    gate = Gate()
    house = House(store, limits=LIMITS)
    await house.create()
    for _ in range(3):
        await talk(house, ID)
    await house.close()
    house = house.restart(Loops(gate))
    compacting = asyncio.create_task(house.registry.compact(ID, keep_turns=1))
    await manual.advance(200)
    assert house.registry.live_actors == 1
    gate.open()
    assert (await compacting).entry is not None
    assert await epochs(store) == 2
    await house.close()


async def test_what_names_no_session_leaves_no_actor(house: House) -> None:
    for n in range(5):
        with pytest.raises(SessionNotFoundError):
            await house.registry.send(f"none {n}", [Text("x")])
        with pytest.raises(SessionNotFoundError):
            await house.registry.delete(f"none {n}")
    assert house.registry.live_actors == 0


@pytest.mark.parametrize("seed", range(12))
async def test_no_interleaving_loses_a_message_or_runs_it_twice(
    manual: ManualClock, seed: int
) -> None:
    chance = random.Random(seed)
    store = MemoryStore()
    house = House(store, limits=Limits(idle_after_s=10, max_live_actors=2, snapshot_every=3))
    names = ["a", "b", "c", "d"]
    for name in names:
        await house.registry.create(name)
    tasks: list[asyncio.Task[Any]] = []
    for n in range(60):
        name = chance.choice(names)
        sending = house.registry.send(name, [Text(str(n))], idempotency_key=str(n))
        tasks.append(asyncio.create_task(sending))
        for _ in range(chance.randrange(12)):
            await asyncio.sleep(0)
        if chance.random() < 0.2:
            chance.choice(tasks).cancel()
        if chance.random() < 0.3:
            await manual.advance(chance.randrange(15))
    done = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(not isinstance(each, Exception) for each in done)
    for name in names:
        await house.until(lambda look: look.turn is None and not look.queued, name)
        log = list(await store.load_entries(name))
        asked = [s.view for s in log if isinstance(s.view, Message) and s.view.role == "user"]
        assert len({view.text for view in asked}) == len(asked)
        started = [s.view.turn_id for s in log if isinstance(s.view, TurnStarted)]
        ended = [s.view for s in log if isinstance(s.view, TurnEnded)]
        assert started == [view.turn_id for view in ended]
        assert {view.reason for view in ended} <= {"completed"}
        assert encode_state(fold(State(), log)) == (await store.look(name)).summary
    stored = {s.id for name in names for s in await store.load_entries(name)}
    assert {each.message_id for each in done if isinstance(each, Sent)} <= stored
    await manual.advance(100)
    await until_live(house, 0)
    await house.close()


class Watching(MemoryStore):
    """Counts what is written."""

    writes = 0

    async def append_entries(self, *args: Any, **options: Any) -> Any:
        self.writes += 1
        return await super().append_entries(*args, **options)

    async def put_snapshot(self, *args: Any, **options: Any) -> Any:
        self.writes += 1
        return await super().put_snapshot(*args, **options)


async def test_looking_at_ten_thousand_idle_sessions_wakes_and_writes_nothing() -> None:
    store = Watching()
    names = [f"s{n}" for n in range(10_000)]
    for n, name in enumerate(names):
        await asyncio.sleep(0)
        entries = place(State(), [seal(text(str(n)))])
        summary = encode_state(fold(State(), entries)) if n % 2 else None
        await store.create_session(name, entries=[s.entry for s in entries], summary=summary)
    made = []
    loops = Loops(lambda: made.append(1))  # type: ignore[arg-type, return-value]
    feed = Feed(store)
    registry = Registry(store, loops, feed)
    listed, after = await registry.list(limit=500)
    while after is not None:
        await asyncio.sleep(0)
        page, after = await registry.list(limit=500, after=after)
        listed = [*listed, *page]
    assert {look.session_id for look in listed} == set(names)
    for name in names:
        await asyncio.sleep(0)
        assert (await registry.look(name)).status == "idle"
        assert len((await registry.entries(name)).entries) == 1
        assert len((await registry.transcript(name)).entries) == 1
        assert registry.partials(name) == ()
    for first in range(0, len(names), 200):
        await asyncio.sleep(0)
        wanted = [(name, START) for name in names[first : first + 200]]
        viewer = await feed.watch(wanted, look=registry.look, partials=registry.partials)
        shown = await viewer.next()
        assert shown is not None
        feed.leave(viewer)
    await asyncio.sleep(0)
    assert (registry.live_actors, store.writes, made) == (0, 0, [])
    await registry.close()
    await feed.close()
