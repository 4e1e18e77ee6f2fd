"""A new registry on the same store: what a server was in the middle of is found by replay."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from perdure.errors import ServerClosingError
from perdure.fact import Claimed, TurnEnded, TurnStarted
from perdure.server.journal import JournalStore
from perdure.server.session.path import load_model_path
from perdure.testing import Call, Say, write_script
from perdure.view import open_calls
from tests.server.house import ID, House

HANG = write_script(Say("work", calls=[Call("a", output=["out"], hangs=True), Call("b")]))


class Severed:
    """The store as a dying server has it: from a moment on its appends never come back."""

    def __init__(self, store: JournalStore) -> None:
        self._store = store
        self.dead = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def append_entries(self, *args: Any, **options: Any) -> Any:
        if self.dead.is_set():
            await asyncio.get_running_loop().create_future()
        return await self._store.append_entries(*args, **options)


@pytest.fixture
async def dead_turn_id(store: JournalStore) -> str:
    """A session whose server died in a turn, with a call in flight and a message that waits."""
    house = House(store)
    await house.create()
    sent = await house.send("before")
    await house.rest()
    await house.close()
    others = asyncio.all_tasks()
    severed = Severed(store)
    dying = House(severed)
    sent = await dying.send(HANG)
    await dying.send("waits", key="k")
    await dying.until_partial("out")
    severed.dead.set()
    while dying_tasks := asyncio.all_tasks() - others:
        for task in dying_tasks:
            task.cancel()
        await asyncio.sleep(0)
    await store.append_entries(ID, [])  # comes after what was in flight when the server died
    assert sent.turn_id is not None
    return sent.turn_id


@pytest.fixture
async def house(store: JournalStore, dead_turn_id: str) -> AsyncIterator[House]:
    house = House(store)
    yield house
    await house.close()


async def test_a_look_says_interrupted_and_writes_nothing(house: House, dead_turn_id: str) -> None:
    before = list(await house.log())
    look = await house.look()
    assert (look.status, look.turn, look.held) == ("interrupted", None, True)
    assert look.last_turn is not None
    assert look.last_turn.turn_id == dead_turn_id
    assert [each.status for each in (await house.registry.list())[0]] == ["interrupted"]
    await house.registry.entries(ID)
    await house.registry.transcript(ID)
    assert house.registry.partials(ID) == ()
    await house.close()
    assert list(await house.log()) == before


async def test_the_next_command_ends_the_turn_once_and_claims(
    house: House, dead_turn_id: str
) -> None:
    before = len(await house.log())
    shown = await house.look()
    assert not (await house.registry.stop(ID, dead_turn_id)).stopped
    claimed, ended = (stored.view for stored in (await house.log())[before:])
    assert isinstance(claimed, Claimed)
    assert isinstance(ended, TurnEnded)
    assert (claimed.epoch, ended.turn_id, ended.reason) == (3, dead_turn_id, "interrupted")
    after = await house.look()
    assert (after.status, after.cause, after.held) == (shown.status, shown.cause, True)
    assert after.last_turn == shown.last_turn


async def test_the_next_message_works_behind_what_waited(house: House, dead_turn_id: str) -> None:
    assert (await house.send("waits", key="k")).queued
    await house.send("after")
    await house.until(lambda look: look.turn is None and not look.queued)
    assert (await house.texts())[-4:] == ["waits", "waits", "after", "after"]
    ends = await house.ends()
    assert [turn_id for turn_id, _ in ends].count(dead_turn_id) == 1
    assert (
        len(ends)
        == len({turn_id for turn_id, _ in ends})
        == (await house.types()).count("turn_started")
    )
    path = await load_model_path(house.store, ID, (await house.look()).leaf_id)
    assert not open_calls(path)


async def test_an_interrupted_turn_can_be_sent_again(house: House, dead_turn_id: str) -> None:
    before = (await house.look()).last_turn
    sent = await house.registry.resend(ID)
    assert before is not None
    assert sent.message_id == before.message_id
    started = [s.view for s in await house.log() if isinstance(s.view, TurnStarted)]
    assert started[-1].resends == dead_turn_id
    await house.registry.stop(ID)


async def test_waking_is_single_flight(house: House) -> None:
    before = (await house.types()).count("claimed")
    await asyncio.gather(*(house.registry.stop(ID) for _ in range(5)), house.send("hello"))
    assert (await house.types()).count("claimed") == before + 1
    await house.until(lambda look: look.turn is None and not look.queued)


async def test_a_graceful_shutdown_ends_the_turn_interrupted_and_runs_nothing_more(
    store: JournalStore,
) -> None:
    house = House(store)
    await house.create()
    sent = await house.send(HANG)
    await house.send("waits", if_running="interrupt")
    await house.send("waits too")
    await house.close()
    await house.close()
    ends = await house.ends()
    assert len(ends) == (await house.types()).count("turn_started")
    look = await house.restart().look()
    assert look.status in {"interrupted", "idle"}
    assert look.held
    assert ends[0][0] == sent.turn_id
    for refused in (house.send("hello"), house.registry.create("new"), house.registry.delete(ID)):
        with pytest.raises(ServerClosingError):
            await refused


async def test_a_shutdown_in_a_turn_says_so(store: JournalStore) -> None:
    house = House(store)
    await house.create()
    sent = await house.send(HANG)
    await house.until_partial("out")
    await house.close()
    assert await house.ends() == [(sent.turn_id, "interrupted")]
    look = await house.restart().look()
    assert (look.status, look.cause) == ("interrupted", "the server was shut down")
    path = await load_model_path(store, ID, look.leaf_id)
    assert not open_calls(path)
