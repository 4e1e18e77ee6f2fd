"""An unrecoverable session is well again once the cause is gone, without a restart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import apsw
import pytest

from perdure import clock
from perdure.entry import Text
from perdure.errors import JournalCorruptError, SessionNotFoundError, StoreUnavailableError
from perdure.loop import LoopContext, LoopEvent, MessageEnded
from perdure.server.session.limit import Limits
from perdure.stores.memory import MemoryStore
from perdure.stores.sqlite import SqliteStore
from perdure.testing import ManualClock, Say, write_script
from tests.server.house import ID, House, Loops
from tests.server.test_store_failure import Refusing

OTHER = "another"


async def test_after_a_full_disk_a_session_is_opened_again() -> None:
    refusing = Refusing(MemoryStore())
    house = House(refusing)
    await house.create()
    await house.registry.create(OTHER)
    await house.send(write_script(Say("w", cut="hang")))
    await house.until_partial("w")
    full = StoreUnavailableError("the disk is full")
    refusing.fails = lambda n: full
    await house.registry.delete(OTHER)
    with pytest.raises(StoreUnavailableError):
        await house.send("more")
    look = await house.look()
    assert (look.status, look.cause) == ("unrecoverable", "the disk is full")
    with pytest.raises(StoreUnavailableError):
        await house.registry.reopen(ID)
    assert (await house.look()).status == "unrecoverable"
    refusing.fails = lambda n: None
    look = await house.registry.reopen(ID)
    assert (look.status, look.turn) == ("interrupted", None)
    assert "the disk is full" in (look.cause or "")
    assert await house.look() == look
    assert house.feed.looks[-1] == look
    assert await house.registry.reopen(ID) == look
    await house.close()


async def test_what_is_unrecoverable_stays_so_however_long_nobody_uses_it() -> None:
    manual = ManualClock()
    with clock.use(manual):
        refusing = Refusing(MemoryStore())
        house = House(refusing, limits=Limits(idle_after_s=10, max_live_actors=1))
        for session_id in (ID, OTHER, "third"):
            await house.registry.create(session_id)
        refusing.fails = lambda n: StoreUnavailableError("the disk is full")
        with pytest.raises(StoreUnavailableError):
            await house.send("more")
        refusing.fails = lambda n: None
        for session_id in (OTHER, "third"):
            await house.registry.send(session_id, [Text("hello")])
            await house.until(lambda look: look.turn is None, session_id)
        await manual.advance(1000)
        for _ in range(1000):
            if house.registry.live_actors == 1:
                break
            await asyncio.sleep(0.001)
        assert house.registry.live_actors == 1
        assert (await house.look()).status == "unrecoverable"
        assert (await house.registry.reopen(ID)).status == "idle"
        await manual.advance(1000)
        assert (await house.look()).status == "idle"
        await house.close()


async def test_a_session_that_is_well_is_left_as_it_is(house: House) -> None:
    await house.send("hello")
    await house.rest()
    before = list(await house.log())
    assert (await house.registry.reopen(ID)).status == "idle"
    assert list(await house.log()) == before
    with pytest.raises(SessionNotFoundError):
        await house.registry.reopen("nobody's")


def set_raw(file: Path, seq: int, raw: bytes) -> bytes:
    """Changes the bytes of an entry of the session, behind everybody's back; what was there."""
    connection = apsw.Connection(str(file))
    where = "session = (SELECT number FROM sessions WHERE session_id = ?) AND seq = ?"
    query = f"SELECT raw FROM entries WHERE {where}"
    ((before,),) = connection.execute(query, (ID, seq)).fetchall()
    connection.execute(f"UPDATE entries SET raw = ? WHERE {where}", (raw, ID, seq))
    connection.close()
    assert isinstance(before, bytes)
    return before


async def test_damage_in_the_middle_is_not_forgotten_until_it_is_mended(tmp_path: Path) -> None:
    file = tmp_path / "sessions.db"
    async with SqliteStore(file) as store:
        house = House(store)
        for session_id in (ID, OTHER):
            await house.registry.create(session_id)
            for n in range(3):
                await house.registry.send(session_id, [Text(str(n))])
                await house.until(lambda look: look.turn is None, session_id)
        sound = set_raw(file, 4, b"{damaged")
        with pytest.raises(JournalCorruptError):
            await house.registry.entries(ID)
        assert (await house.look()).status == "unrecoverable"
        for _ in range(2):  # the state at its end is sound, and the damage in its middle counts
            with pytest.raises(JournalCorruptError):
                await house.send("more")
            with pytest.raises(JournalCorruptError):
                await house.registry.reopen(ID)
            assert (await house.look()).status == "unrecoverable"
        assert (await house.registry.look(OTHER)).status == "idle"
        await house.registry.send(OTHER, [Text("well")])
        set_raw(file, 4, sound)
        assert (await house.registry.reopen(ID)).status == "idle"
        await house.send("more")
        await house.rest()
        assert (await house.texts())[-2:] == ["more", "more"]
        await house.close()


async def reads(context: LoopContext) -> AsyncGenerator[LoopEvent, None]:
    yield MessageEnded((Text(f"{len(await context.messages())} messages"),))


async def test_damage_that_a_run_meets_makes_its_session_unrecoverable(tmp_path: Path) -> None:
    file = tmp_path / "sessions.db"
    async with SqliteStore(file) as store:
        house = House(store)
        await house.create()
        for n in range(30):
            await house.send(str(n))
            await house.rest()
        await house.close()
        sound = set_raw(file, 3, b"{damaged")
        again = house.restart(Loops(lambda: reads))
        await again.send("reads the whole path")
        look = await again.until(lambda look: look.turn is None)
        assert look.status == "unrecoverable"
        assert "damaged" in (look.cause or "")
        set_raw(file, 3, sound)
        assert (await again.registry.reopen(ID)).status == "interrupted"
        await again.close()
