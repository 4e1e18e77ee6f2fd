"""The server dies at each of its appends in turn, just before it is stored and just after."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure.entry import Message
from perdure.fact import MessageDiscarded, MessageQueued, TurnEnded, TurnStarted
from perdure.server.journal import JournalStore
from perdure.server.session.command import Sent
from perdure.server.session.path import load_model_path
from perdure.server.session.state import State, fold
from perdure.stores.memory import MemoryStore
from perdure.testing import Call, Fail, Listen, Say, write_script
from perdure.view import open_calls
from tests.server.careful import Careful
from tests.server.house import ID, House

TOOLS = write_script(
    Say("look", calls=[Call("a", output=["1"]), Call("b", output=["2"], delay_s=0.001)]),
    Say("done"),
)
HANG = write_script(Say("w", cut="hang"))
FAIL = write_script(Say("half"), Fail())
ASKS = write_script(
    Say("ask", calls=[Call("careful", call_id=f"careful-{n}") for n in (1, 2)]), Say("answered")
)
LISTENS = write_script(Say("listening"), Listen(), Say("heard"))


class Dying:
    """A store whose server dies at the nth write: what it waits for never comes."""

    def __init__(self, store: JournalStore, nth: int, *, late: bool) -> None:
        self._store = store
        self._left = nth
        self._late = late
        self.died = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def append_entries(self, *args: Any, **options: Any) -> Any:
        return await self._write(self._store.append_entries, *args, **options)

    async def create_session(self, *args: Any, **options: Any) -> Any:
        return await self._write(self._store.create_session, *args, **options)

    async def _write(self, write: Any, *args: Any, **options: Any) -> Any:
        self._left -= 1
        if self._left > 0:
            return await write(*args, **options)
        if self._left == 0 and self._late:
            await write(*args, **options)
        self.died.set()
        return await asyncio.get_running_loop().create_future()


async def live(house: House, acknowledged: list[Sent], forks: list[str]) -> None:
    """A session's life: tools, a queue, a stop, a go-on, an interruption, a failure, the tree."""
    await house.create()
    acknowledged.append(await house.send(TOOLS, key="1"))
    acknowledged.append(await house.send("two", key="2"))
    await house.until(lambda look: look.turn is None and not look.queued)
    acknowledged.append(await house.send(HANG, key="3"))
    acknowledged.append(await house.send("four", key="4"))
    await house.until_partial("w")
    await house.registry.fork(ID, "child")
    forks.append("child")
    await house.registry.stop(ID)
    await house.registry.go_on(ID)
    await house.until(lambda look: look.turn is None and not look.queued)
    acknowledged.append(await house.send(HANG, key="5"))
    acknowledged.append(await house.send("six", key="6", if_running="interrupt"))
    await house.until(lambda look: look.turn is None and not look.queued)
    await house.registry.compact(ID, keep_turns=1)
    acknowledged.append(await house.send(FAIL, key="7"))
    await house.rest()
    await house.registry.resend(ID)
    await house.rest()
    await house.registry.branch(ID, acknowledged[0].message_id)
    acknowledged.append(await house.send("eight", key="8"))
    await house.rest()
    acknowledged.append(await house.send(ASKS, key="9"))
    await house.until(lambda look: look.status == "waiting")
    acknowledged.append(await house.send("ten", key="10"))
    await house.registry.answer(ID, "careful-1", approve=True)
    await house.registry.answer(ID, "careful-2", approve=False)
    await house.until(lambda look: look.turn is None and not look.queued)
    acknowledged.append(await house.send(LISTENS, key="11"))
    acknowledged.append(await house.send("twelve", key="12", if_running="steer"))
    await house.until(lambda look: look.turn is None and not look.queued)


async def die(nth: int, *, late: bool) -> tuple[MemoryStore, list[Sent], list[str], bool]:
    """Lives until the nth write; the store that is left, and what was acknowledged until then."""
    store = MemoryStore()
    others = asyncio.all_tasks()
    dying = Dying(store, nth, late=late)
    acknowledged: list[Sent] = []
    forks: list[str] = []
    house = House(dying, surroundings=Careful())
    life = asyncio.create_task(live(house, acknowledged, forks))
    death = asyncio.create_task(dying.died.wait())
    await asyncio.wait([life, death], return_when=asyncio.FIRST_COMPLETED)
    survived = life.done()
    if survived:
        await life
    while left := asyncio.all_tasks() - others:
        for task in left:
            task.cancel()
        await asyncio.sleep(0)
    return store, acknowledged, forks, survived


async def check(store: MemoryStore, acknowledged: list[Sent]) -> None:
    house = House(store, surroundings=Careful())
    before = list(await house.log())
    look = await house.look()
    assert look.status != "running"
    assert list(await house.log()) == before
    for sent in acknowledged:
        assert sent.message_id in before[sent.seq - 1].raw.decode()
    if look.status == "waiting":
        for asked in look.approvals:
            await house.registry.answer(ID, asked.call_id, approve=True)
        await house.rest()
        if (await house.look()).queued:
            await house.registry.go_on(ID)
    await house.send("the next one", key="next")
    await house.until(lambda look: look.turn is None and not look.queued)
    log = list(await house.log())
    assert log[: len(before)] == before
    assert await house.state() == fold(State(), log)
    views = [stored.view for stored in log]
    started = [view.turn_id for view in views if isinstance(view, TurnStarted)]
    ended = [view.turn_id for view in views if isinstance(view, TurnEnded)]
    assert sorted(started) == sorted(ended)
    assert len(set(started)) == len(started)
    queued = {view.message_id for view in views if isinstance(view, MessageQueued)}
    gone = {view.message_id for view in views if isinstance(view, MessageDiscarded)}
    ran = {view.id for view in views if isinstance(view, Message)}
    assert queued <= gone | ran
    path = await load_model_path(store, ID, (await house.look()).leaf_id)
    assert not open_calls(path)
    assert (await house.texts())[-2:] == ["the next one", "the next one"]
    texts = (TOOLS, "two", HANG, "four", HANG, "six", FAIL, "eight", ASKS, "ten", LISTENS, "twelve")
    for n, (text, sent) in enumerate(zip(texts, acknowledged, strict=False), 1):
        again = await house.send(text, key=str(n), if_running="steer" if n == 12 else "queue")
        assert (again.message_id, again.seq) == (sent.message_id, sent.seq)
    assert list(await house.log()) == log
    await house.close()


@pytest.mark.parametrize("late", [False, True])
async def test_whatever_was_acknowledged_survives_a_death_at_every_write(late: bool) -> None:
    nth, survived = 2, False
    while not survived:
        store, acknowledged, forks, survived = await die(nth, late=late)
        await check(store, acknowledged)
        for fork in forks:
            assert (await House(store).registry.look(fork)).status == "idle"
        nth += 1
    assert nth > 30
