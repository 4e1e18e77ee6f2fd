"""Ten thousand routines cost nothing between due times: no question to the store, no write."""

from __future__ import annotations

from collections import Counter
from typing import Any

from perdure.entry import Text
from perdure.server.keeping.timer import GLANCE_S
from perdure.server.routine.definition import Definition
from perdure.server.routine.routine import create_routine
from perdure.stores.memory import MemoryStore
from tests.server.routine_house import SAY, START, living, timed

COUNT = 10_000


class CountingStore:
    """Counts what a store is asked."""

    def __init__(self, store: MemoryStore, asked: Counter[str]) -> None:
        self._store = store
        self._asked = asked

    def of_kind(self, kind: Any) -> CountingStore:
        return CountingStore(self._store.of_kind(kind), self._asked)

    def __getattr__(self, name: str) -> Any:
        self._asked[name] += 1
        return getattr(self._store, name)


async def test_ten_thousand_routines_cost_nothing_between_due_times() -> None:
    store, asked = MemoryStore(), Counter[str]()
    async with timed() as clock:
        session = await store.create_session("s")
        for n in range(COUNT):
            definition = Definition(
                parts=(Text(SAY),),
                cron=f"{n % 60} 9 {n % 28 + 1} * *",
                session_id="s",
                incarnation=session.incarnation,
                overlap="queue",
            )
            await create_routine(store.of_kind("routine"), f"r{n}", [definition.as_fact(START)])
        counting: Any = CountingStore(store, asked)
        async with living(counting) as house:
            assert len(house.keeper) == COUNT
            assert asked["page_entries"] == 0, "a journal was read, although there is a summary"
            asked.clear()
            glances = house.keeper.timer.glances
            await clock.advance(3590)
            assert asked == {}
            assert house.keeper.timer.glances - glances <= 3600 / GLANCE_S + 1
            await clock.advance(20)
            await house.rest()
            due = [n for n in range(COUNT) if n % 60 == 0 and n % 28 + 1 == 5]
            ran = [f"r{n}" for n in range(COUNT) if house.keeper.get(f"r{n}").state.last_seq > 1]
            assert ran == [f"r{n}" for n in due]
            assert len(due) > 5
