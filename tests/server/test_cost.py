"""What a command reads and writes does not grow with the session."""

from __future__ import annotations

from typing import Any

from perdure.codec import seal
from perdure.entry import Message, Text
from perdure.server.journal import JournalStore
from perdure.stores.memory import MemoryStore
from perdure.testing import Say, write_script
from tests.server.house import ID, House

HANG = write_script(Say("w", cut="hang"))


class Counting:
    """A store that counts the entries it hands out and the bytes it is given."""

    def __init__(self, store: JournalStore) -> None:
        self._store = store
        self.cost = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def append_entries(self, *args: Any, **options: Any) -> Any:
        self.cost += len(options["summary"])
        return await self._store.append_entries(*args, **options)

    async def load_entries(self, *args: Any, **options: Any) -> Any:
        raise AssertionError("a server never loads a whole log")

    async def page_entries(self, *args: Any, **options: Any) -> Any:
        return self._counted(await self._store.page_entries(*args, **options))

    async def load_path(self, *args: Any, **options: Any) -> Any:
        return self._counted(await self._store.load_path(*args, **options))

    def _counted(self, page: Any) -> Any:
        self.cost += 1000 * len(page.entries)
        return page


async def test_send_stop_branch_and_look_cost_the_same_in_a_long_session() -> None:
    costs: list[list[int]] = []
    for turns in (10, 2000):
        inner = MemoryStore()
        parent_id: str | None = None
        entries = []
        for _ in range(turns):
            for role in ("user", "assistant"):
                entry = seal(Message(role, (Text("x"),)), parent_id)
                parent_id = entry.id
                entries.append(entry)
        await inner.create_session(ID, entries=entries)
        counting = Counting(inner)
        house = House(counting)
        await house.send("first")
        await house.rest()
        found = []
        for _ in range(2):
            counting.cost = 0
            await house.send(HANG)
            await house.until_partial("w")
            found.append(counting.cost)
            await house.registry.stop(ID)
            found.append(counting.cost)
            await house.registry.branch(ID, entries[5].id)
            found.append(counting.cost)
            await house.look()
            await house.registry.transcript(ID, limit=10, leaf=entries[9].id)
            found.append(counting.cost)
        costs.append(found)
        await house.close()
    short, long = costs
    assert all(abs(a - b) < 100 for a, b in zip(short, long, strict=True)), costs
