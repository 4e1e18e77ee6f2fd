"""When the store refuses: nothing goes on in memory only, and the next command replays."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from perdure.entry import Message, text
from perdure.errors import (
    AppendConflictError,
    AppendRejectedError,
    AppendUncertainError,
    JournalCorruptError,
    PerdureError,
    SessionNotFoundError,
    StoreError,
    StoreUnavailableError,
)
from perdure.fact import TurnEnded, TurnStarted
from perdure.server.journal import JournalStore
from perdure.server.session.path import load_model_path
from perdure.stores.memory import MemoryStore
from perdure.testing import Call, Say, write_script
from perdure.view import open_calls
from tests.server.house import ID, House

TURN = write_script(
    Say("look", calls=[Call("a", output=["1"]), Call("b", output=["2"])]), Say("done")
)


class Refusing:
    """A store whose appends fail when they are told to: before storing, or (`late`) after it."""

    def __init__(self, store: JournalStore) -> None:
        self._store = store
        self.appends = 0
        self.fails: Callable[[int], PerdureError | None] = lambda n: None
        self.late = False
        self.damaged = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def append_entries(self, *args: Any, **options: Any) -> Any:
        self.appends += 1
        error = self.fails(self.appends)
        if error is not None and not self.late:
            raise error
        receipt = await self._store.append_entries(*args, **options)
        if error is not None:
            raise error
        return receipt

    async def page_entries(self, *args: Any, **options: Any) -> Any:
        if self.damaged:
            raise JournalCorruptError(ID, 3, "entry 'x'", "its bytes are not its sum's")
        return await self._store.page_entries(*args, **options)


ERRORS = [
    AppendRejectedError("the disk is full"),
    AppendUncertainError("the sync failed"),
    StoreUnavailableError("the database is locked"),
]


@pytest.fixture
def refusing() -> Refusing:
    return Refusing(MemoryStore())


@pytest.fixture
async def house(refusing: Refusing) -> AsyncIterator[House]:
    house = House(refusing)
    await house.create()
    yield house
    refusing.fails, refusing.damaged = (lambda n: None), False
    await house.close()


async def is_well(house: House) -> None:
    """Each turn has exactly one end, no call is open, and the next message works."""
    house.store.fails = lambda n: None  # type: ignore[attr-defined]  # it is a Refusing
    await house.send("the next one")
    await house.until(lambda look: look.turn is None and not look.queued)
    assert (await house.look()).status == "idle"
    views = [stored.view for stored in await house.log()]
    started = [view.turn_id for view in views if isinstance(view, TurnStarted)]
    ended = [view.turn_id for view in views if isinstance(view, TurnEnded)]
    assert sorted(started) == sorted(ended)
    path = await load_model_path(house.store, ID, (await house.look()).leaf_id)
    assert not open_calls(path)
    assert (await house.texts())[-2:] == ["the next one", "the next one"]
    assert await house.state() is not None
    assert (await house.state()).last_seq == len(views)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
async def test_a_store_that_refuses_in_mid_turn_shows_unrecoverable_until_it_takes_again(
    house: House, refusing: Refusing, error: StoreError, late: bool
) -> None:
    refusing.late = late and isinstance(error, AppendUncertainError)
    for nth in range(3, 7):
        await is_well(house)
        first = refusing.appends
        refusing.fails = lambda n, first=first, nth=nth: (  # type: ignore[misc]  # defaults bind
            error if n >= first + nth else None
        )
        sent = await house.send(TURN)
        look = await house.until(lambda look: look.status == "unrecoverable")
        assert look.cause == str(error)
        assert look.turn is None
        assert house.feed.statuses[-1] == "unrecoverable"
        assert house.registry.partials(ID) == []
        with pytest.raises(StoreError):
            await house.registry.stop(ID)
        assert (await house.look()).status == "unrecoverable"
        stored = len(await house.log())
        with pytest.raises(StoreError):
            await house.send("refused")
        if not refusing.late:
            assert len(await house.log()) == stored
        refusing.fails = lambda n: None
        assert not (await house.registry.stop(ID, sent.turn_id)).stopped
        assert (await house.look()).status in {"interrupted", "idle"}
    await is_well(house)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
async def test_every_single_failure_of_a_session_is_survived(error: StoreError, late: bool) -> None:
    for nth in range(1, 12):
        refusing = Refusing(MemoryStore())
        refusing.late = late and isinstance(error, AppendUncertainError)
        house = House(refusing)
        await house.create()
        refusing.fails = lambda n, nth=nth: error if n == nth else None  # type: ignore[misc]
        try:
            sent = await house.send(TURN, key="k")
        except StoreError:
            sent = await house.send(TURN, key="k")
        again = await house.send(TURN, key="k")
        assert again.message_id == sent.message_id
        await house.rest()
        await is_well(house)
        ids = [stored.id for stored in await house.log()]
        assert ids.count(sent.message_id) == 1
        await house.close()


async def test_a_writer_that_is_ahead_ends_the_turn_interrupted_not_unrecoverable(
    house: House, refusing: Refusing
) -> None:
    await house.send("first")
    await house.rest()
    sent = await house.send(write_script(Say("w", cut="hang")))
    await house.until_partial("w")
    await refusing._store.append_entries(ID, [text("from elsewhere")])
    waiting = await house.send("second")
    look = await house.until(lambda look: look.turn is None)
    assert look.status in {"idle", "interrupted"}
    assert (sent.turn_id, "interrupted") in await house.ends()
    assert waiting.message_id in [stored.id for stored in await house.log()]
    causes = [s.view.cause for s in await house.log() if isinstance(s.view, TurnEnded)]
    assert any("another writer is ahead" in (cause or "") for cause in causes)
    assert not any("the server ended" in (cause or "") for cause in causes)
    await is_well(house)


async def test_a_conflict_in_the_run_is_noticed_by_the_run(
    house: House, refusing: Refusing
) -> None:
    refusing.fails = lambda n: AppendConflictError(ID, 1, 2) if n == 4 else None
    await house.send(TURN)
    look = await house.until(lambda look: look.turn is None)
    assert (look.status, house.feed.statuses[-1]) == ("interrupted", "interrupted")
    await is_well(house)


async def test_damage_found_on_waking_is_shown_with_its_cause(
    house: House, refusing: Refusing
) -> None:
    await house.send("hello")
    await house.rest()
    refusing.damaged = True
    fresh = house.restart()
    before = await house.log()
    with pytest.raises(JournalCorruptError):
        await fresh.send("hello")
    look = await fresh.look()
    assert look.status == "unrecoverable"
    assert "damaged at entry 'x'" in (look.cause or "")
    assert [each.status for each in (await fresh.registry.list())[0]] == ["unrecoverable"]
    assert fresh.feed.statuses == ["unrecoverable"]
    assert await house.log() == before
    refusing.damaged = False
    await is_well(fresh)


async def test_damage_found_on_a_page_makes_the_session_unrecoverable(
    house: House, refusing: Refusing
) -> None:
    await house.send("hello")
    await house.rest()
    refusing.damaged = True
    with pytest.raises(JournalCorruptError):
        await house.registry.entries(ID)
    assert (await house.look()).status == "unrecoverable"
    with pytest.raises(JournalCorruptError):
        await house.send("more")
    refusing.damaged = False
    await is_well(house)


async def test_a_part_that_cannot_be_stored_fails_the_turn_and_not_the_session() -> None:
    deep: Any = []
    for _ in range(5000):
        deep = [deep]
    from perdure.entry import ToolCall
    from perdure.loop import MessageEnded
    from tests.server.house import Loops

    async def loop(context: object) -> AsyncIterator[Any]:
        yield MessageEnded((ToolCall("c", "x", deep),))

    house = House(MemoryStore(), Loops(lambda: loop))  # type: ignore[arg-type, return-value]
    await house.create()
    await house.send("hello")
    look = await house.rest()
    assert (look.status, look.turn) == ("failed", None)
    assert "nested more than 200 levels" in (look.cause or "")
    assert [type(s.view) for s in await house.log()].count(Message) == 1
    await house.close()


async def test_a_store_with_a_bug_leaves_no_turn_running(house: House, refusing: Refusing) -> None:
    def fails(n: int) -> PerdureError | None:
        if n > 3:
            raise RuntimeError("a bug of the store's own")
        return None

    refusing.fails = fails
    await house.send(write_script(Say("hello")))
    look = await house.until(lambda look: look.status == "unrecoverable")
    assert "a bug of the store's own" in str(look.cause)
    refusing.fails = lambda n: None
    await house.send(write_script(Say("again")))
    await house.rest()
    assert [reason for _, reason in await house.ends()] == ["interrupted", "completed"]


class _Slow:
    """A store that looks for a session only when it is told to."""

    def __init__(self, store: JournalStore) -> None:
        self._store = store
        self.may_look = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def look(self, session_id: str) -> Any:
        if self.may_look.is_set():
            return await self._store.look(session_id)
        try:
            return await self._store.look(session_id)
        finally:
            await self.may_look.wait()


async def test_a_session_made_while_commands_wait_for_it_has_one_actor() -> None:
    slow = _Slow(MemoryStore())
    house = House(slow)
    early = [asyncio.create_task(house.send(write_script(Say("w", cut="hang")))) for _ in range(2)]
    await asyncio.sleep(0.01)
    await house.create()
    slow.may_look.set()
    for sent in early:
        with pytest.raises(SessionNotFoundError):
            await sent
    await house.send(write_script(Say("hello")))
    await house.rest()
    assert (await house.types()).count("claimed") == 1
    await house.close()
