"""An append that is cancelled: what the agent says is in the store, whenever that happens."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.codec import Draft, Entry
from perdure.store import Receipt, SessionStore
from perdure.stores.memory import MemoryStore
from perdure.stores.sqlite import SqliteStore
from tests.unit.checks import check_agrees
from tests.unit.looping import SlowStore


def opened(kind: str, folder: Path) -> SessionStore:
    return SqliteStore(folder / "store.db") if kind == "sqlite" else SlowStore()


@pytest.mark.parametrize("passes", range(8))
@pytest.mark.parametrize("kind", ["sqlite", "slow"])
async def test_a_cancelled_append_is_what_the_store_says(
    kind: str, passes: int, tmp_path: Path
) -> None:
    async with opened(kind, tmp_path) as store:
        agent = await perdure.open("s", store=store)
        await agent.append("before")
        append = asyncio.create_task(agent.append("cancelled"))
        for _ in range(passes):
            await asyncio.sleep(0)
        append.cancel()
        with suppress(asyncio.CancelledError):
            await append
        assert append.done()
        await check_agrees(agent, store)
        await agent.append("after")
        await check_agrees(agent, store)
        texts = [message.text for message in agent.messages()]
        assert texts in (["before", "after"], ["before", "cancelled", "after"])


async def test_an_append_cancelled_before_its_turn_stores_nothing(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "store.db") as store:
        agent = await perdure.open("s", store=store)
        first = asyncio.create_task(agent.append("first"))
        second = asyncio.create_task(agent.append("second"))
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.wait([first, second])
        assert second.cancelled()
        assert [message.text for message in agent.messages()] == ["first"]
        await check_agrees(agent, store)


class CancelledStore(MemoryStore):
    """A store whose first append is stored, and cancelled from inside before it says so."""

    is_broken = True

    async def append_entries(
        self, session_id: str, entries: Sequence[Draft | Entry], **options: Any
    ) -> Receipt:
        receipt = await super().append_entries(session_id, entries, **options)
        if self.is_broken:
            self.is_broken = False
            raise asyncio.CancelledError
        return receipt


async def test_an_append_that_the_store_was_cancelled_in_is_looked_for_before_the_next() -> None:
    store = CancelledStore()
    agent = await perdure.open("s", store=store)
    with pytest.raises(asyncio.CancelledError):
        await agent.append("stored after all")
    await agent.append("next")
    assert [message.text for message in agent.messages()] == ["stored after all", "next"]
    await check_agrees(agent, store)


async def test_what_is_appended_is_nothing_that_the_garbage_collector_looks_at(
    tmp_path: Path,
) -> None:
    async with SqliteStore(tmp_path / "store.db") as store:
        agent = await perdure.open("s", store=store)
        await agent.append("warm")
        gc.collect()
        before = len(gc.get_objects())
        for _ in range(300):
            await agent.append("hello")
        gc.collect()
        assert len(gc.get_objects()) - before < 100
