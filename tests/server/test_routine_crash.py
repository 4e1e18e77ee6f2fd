"""The process ends at every single step of a routine, and each due time starts at most once.

The store counts its writes and ends the process at the n-th: before it, or after it was stored and
before anybody was told. Then a new process takes up the same store. It is done for every n until a
scenario runs through; and again while the process that comes after dies at every step, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, Literal

import pytest

from perdure.errors import AppendUncertainError, StoreUnavailableError
from perdure.fact import RoutineFired, RoutineRunEnded, RoutineRunStarted, TurnStarted
from perdure.server.journal import JournalStore
from perdure.server.session.registry import Registry
from perdure.stores.memory import MemoryStore
from tests.server.routine_house import SAY, RoutineHouse, living, move, timed

When = Literal["before", "after"]
WRITES = frozenset({"create_session", "append_entries"})


class Mortal:
    """A store as one process sees it: that ends at its n-th write, and then nothing works."""

    def __init__(
        self, store: JournalStore, at: int, when: When, life: Mortal | None = None
    ) -> None:
        self._store = store
        self._at = at
        self._when = when
        self._life = life or self
        self._kinds: dict[Any, Mortal] = {}
        self.writes = 0
        self.is_dead = False

    def of_kind(self, kind: Any) -> Mortal:
        if kind not in self._kinds:
            self._kinds[kind] = Mortal(self._store.of_kind(kind), 0, self._when, self._life)
        return self._kinds[kind]

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._store, name)
        if name == "subscribe":
            return verb

        async def run(*given: Any, **options: Any) -> Any:
            life = self._life
            if life.is_dead:
                raise StoreUnavailableError("this process has ended")
            if name in WRITES:
                life.writes += 1
                if life.writes == life._at:
                    life.is_dead = True
                    if life._when == "before":
                        raise StoreUnavailableError("this process has ended")
                    await verb(*given, **options)
                    raise AppendUncertainError("this process has ended")
            return await verb(*given, **options)

        return run


async def check(store: MemoryStore, sessions: list[str]) -> None:
    """No due time was claimed twice or started two turns, and every claim came to an end."""
    fired: Counter[str] = Counter()
    started: dict[str, str] = {}
    ended: Counter[str] = Counter()
    for stored in await store.of_kind("routine").load_entries("r"):
        match stored.view:
            case RoutineFired(due_at=due):
                fired[due] += 1
            case RoutineRunStarted(run_id=run_id, message_id=message_id):
                assert started.setdefault(run_id, message_id) == message_id
            case RoutineRunEnded(run_id=run_id):
                ended[run_id] += 1
    assert set(fired.values()) <= {1}
    assert set(ended.values()) <= {1}
    assert ended.keys() == fired.keys(), "a claim has no end"
    turns: Counter[str] = Counter()
    for session_id in sessions:
        for stored in await store.load_entries(session_id):
            if isinstance(view := stored.view, TurnStarted) and view.source == "routine":
                turns[view.message_id] += 1
    assert set(turns.values()) <= {1}, "a due time started two turns"
    assert turns.keys() == set(started.values()), "a turn is in no run history, or the other way"


Work = Callable[[RoutineHouse, Any], Coroutine[Any, Any, None]]


async def two_hours(house: RoutineHouse, clock: Any) -> None:
    for _ in range(11):
        await move(house, clock, 720)
        if getattr(house.store, "is_dead", False):
            return


async def live(store: Any, work: Work, clock: Any) -> None:
    """One process, until it ends by itself or is dead; after its death nobody is there a while."""
    house = RoutineHouse(store)
    try:
        await house.keeper.load()
        async with house.keeper.keeping():
            await house.rest()
            await work(house, clock)
    except (StoreUnavailableError, AppendUncertainError):
        assert store.is_dead
    finally:
        await house.house.close()
    if store.is_dead:
        await clock.advance(3000)


async def play(at: int, when: When, **wanted: Any) -> int:
    """Dies at this write, comes back, goes on; how many writes there were."""
    store = MemoryStore()
    async with timed() as clock:
        async with living(store) as house:
            await house.make(SAY, **wanted)
        mortal = Mortal(store, at, when)
        await live(mortal, two_hours, clock)
        assert mortal.is_dead == (at <= mortal.writes)
        async with living(store) as house:
            await move(house, clock, 3600)
            runs = await house.runs()
            assert {run.status for run in runs} <= {
                "succeeded",
                "missed",
                "interrupted",
                "skipped",
            }, runs
            sessions = [str(run.session_id) for run in runs if run.session_id]
        await check(store, sorted(set(sessions)))
        return mortal.writes


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    "wanted",
    [
        {},
        {"after_outage": "skip"},
        {"deadline_s": 60},
        {"overlap": "queue"},
        {"overlap": "interrupt"},
        {"new_session": True},
    ],
    ids=str,
)
async def test_a_process_that_ends_at_any_write_starts_nothing_twice(
    when: When, wanted: dict[str, Any]
) -> None:
    n = 1
    while await play(n, when, **wanted) >= n:
        n += 1
    assert n > 12


@pytest.mark.parametrize("when", ["before", "after"])
async def test_nor_do_two_that_end_one_after_the_other(when: When) -> None:
    deepest = 0
    for first in range(1, 7):
        for second in range(1, 7):
            store = MemoryStore()
            async with timed() as clock:
                async with living(store) as house:
                    await house.make(SAY)
                for at in (first, second):
                    mortal = Mortal(store, at, when)
                    await live(mortal, two_hours, clock)
                    deepest = max(deepest, mortal.writes)
                async with living(store) as house:
                    await move(house, clock, 3600)
                await check(store, ["r"])
    assert deepest >= 6


async def test_the_message_of_a_claim_that_was_left_behind_is_sent() -> None:
    """The claim is stored, the process ends, and the next one sends what was claimed: once."""
    store = MemoryStore()
    async with timed() as clock:
        async with living(store) as house:
            await house.make(SAY)
        mortal = Mortal(store, 1, "after")
        await live(mortal, two_hours, clock)
        assert [type(each.view).__name__ for each in await claims(store)] == ["RoutineFired"]
        await clock.advance(2 * 3600)
        async with living(store) as house:
            await house.rest()
            (run, *missed) = await house.runs()
            assert (run.status, run.due_at.hour) == ("succeeded", 9)
            # It is the one that runs after the outage: what was due meanwhile was missed.
            assert [each.status for each in missed] == ["missed"]
            assert await house.starts() == 1


async def claims(store: MemoryStore) -> list[Any]:
    entries = await store.of_kind("routine").load_entries("r")
    return [each for each in entries if isinstance(each.view, RoutineFired)]


async def test_two_nodes_on_one_store_start_each_due_time_once() -> None:
    """Whoever claims a due time first has it; the other one sees that it did."""
    store = MemoryStore()
    async with timed() as clock, living(store) as one, living(store) as two:
        await one.make(SAY)
        await two.rest()
        assert two.routines.look("r").status == "enabled"
        for _ in range(12):
            await move(one, clock, 1800)
            await two.rest()
        runs = await one.runs()
        assert [run.due_at.hour for run in runs] == list(range(9, 15))
        assert await two.runs() == runs
        await check_once(store)
        await two.routines.delete("r")
        await one.rest()
        assert one.routines.list() == ([], None)


async def check_once(store: MemoryStore) -> None:
    turns = [each.view for each in await store.load_entries("r")]
    messages = [view.message_id for view in turns if isinstance(view, TurnStarted)]
    assert len(messages) == len(set(messages)) == 6


def test_the_registry_is_all_that_routines_need_of_sessions() -> None:
    from perdure.server.keeping.port import Sessions

    verbs = {name for name in vars(Sessions) if not name.startswith("_")}
    assert verbs <= set(dir(Registry))
