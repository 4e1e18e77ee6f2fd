"""Sessions are deleted by age only where that is asked for, and named first."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any

import pytest

from perdure import clock
from perdure.entry import Text
from perdure.errors import SessionDeletedError, SessionNotFoundError, StoreUnavailableError
from perdure.server.config import Settings
from perdure.server.journal import JournalStore
from perdure.server.service import open_service
from perdure.server.session.limit import Limits
from perdure.server.session.retention import EVERY_S, expire, find_expired, retaining
from perdure.server.session.surroundings import EndSource, Nothing, Scope
from perdure.stores.memory import MemoryStore
from perdure.testing import ManualClock, Say, write_script
from tests.server.faulty import Faulty
from tests.server.house import House, Loops

HANG = write_script(Say("w", cut="hang"))
MONTH = timedelta(days=30)


@pytest.fixture
def manual() -> Iterator[ManualClock]:
    manual = ManualClock()
    with clock.use(manual):
        yield manual


@pytest.fixture
async def house(store: JournalStore, manual: ManualClock) -> AsyncIterator[House]:
    """`old` was used 40 days ago and looked at since, `new` yesterday; in `busy` a turn runs."""
    house = House(store)
    for name in ("old", "busy", "new"):
        await house.registry.create(name)
    await talk(house, "old")
    await house.registry.send("busy", [Text(HANG)])
    manual.step(timedelta(days=39))
    await talk(house, "new")
    manual.step(timedelta(days=1))
    await house.registry.look("old")
    yield house
    await house.close()


async def talk(house: House, session_id: str) -> None:
    await house.registry.send(session_id, [Text("hello")])
    await house.until(lambda look: look.turn is None, session_id)


async def ids(house: House) -> set[str]:
    return {look.session_id for look in (await house.registry.list())[0]}


async def test_a_dry_run_names_and_deletes_nothing(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "perdure.server"):
        assert await expire(house.registry, MONTH, dry_run=True) == ["old"]
    assert "would delete session 'old'" in caplog.text
    assert await ids(house) == {"old", "busy", "new"}


async def test_what_is_old_is_deleted_and_its_viewers_are_told(house: House) -> None:
    assert await expire(house.registry, MONTH, dry_run=False) == ["old"]
    assert await ids(house) == {"busy", "new"}
    assert [(look.session_id, look.status) for look in house.feed.looks][-1] == ("old", "deleted")
    with pytest.raises(SessionNotFoundError):
        await house.registry.send("old", [Text("hello")])
    assert await expire(house.registry, MONTH, dry_run=False) == []
    assert (await house.registry.look("busy")).status == "running"
    assert len(await find_expired(house.registry, timedelta(days=50))) == 0
    again, is_new = await house.registry.create("old")
    assert (is_new, again.last_seq) == (True, 0)


async def test_every_page_of_the_listing_is_seen(manual: ManualClock) -> None:
    store = MemoryStore()
    for n in range(450):
        await store.create_session(f"s{n}")
    house = House(store)
    manual.step(timedelta(days=31))
    assert len(await expire(house.registry, MONTH, dry_run=False)) == 450
    assert await ids(house) == set()
    assert house.registry.live_actors == 0
    await house.close()


class Meeting:
    """A store in which a message comes between the listing and the deletion."""

    def __init__(self, store: JournalStore) -> None:
        self._store = store
        self.meet: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def look(self, session_id: str) -> Any:
        look = await self._store.look(session_id)
        if self.meet is not None:
            meet, self.meet = self.meet, None
            await meet()
        return look


@pytest.mark.parametrize("store", ["memory"], indirect=True)
async def test_a_session_that_is_used_in_the_meantime_stays(
    store: JournalStore, manual: ManualClock
) -> None:
    meeting = Meeting(store)
    house = House(meeting)
    await house.registry.create("old")
    await talk(house, "old")
    manual.step(timedelta(days=40))
    meeting.meet = lambda: talk(house, "old")
    assert await expire(house.registry, MONTH, dry_run=False) == []
    assert await ids(house) == {"old"}
    await house.close()


async def test_a_message_that_comes_with_the_deletion_is_answered_or_refused(
    store: JournalStore, manual: ManualClock
) -> None:
    house = House(store)
    for wait in range(12):
        name = f"s{wait}"
        await house.registry.create(name)
        await talk(house, name)
        manual.step(timedelta(days=40))
        expiring = asyncio.create_task(expire(house.registry, MONTH, dry_run=False))
        for _ in range(wait):
            await asyncio.sleep(0)
        try:
            await talk(house, name)
            is_answered = True
        except (SessionNotFoundError, SessionDeletedError):
            is_answered = False
        assert (name in await expiring) is not is_answered
        assert (name in await ids(house)) is is_answered
    await house.close()


async def test_a_server_names_first_and_deletes_where_it_is_told_to(
    manual: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    assert Settings().retain_days is None
    store = MemoryStore()
    await store.create_session("old")
    manual.step(timedelta(days=3))
    for dry_run in (None, True, False):
        given = {} if dry_run is None else {"retain_days": 2.0, "retain_dry_run": dry_run}
        caplog.clear()
        with caplog.at_level(logging.INFO, "perdure.server"):
            async with open_service(Settings(**given), store, Loops()):  # type: ignore[arg-type]
                await manual.advance(1)
        assert ("'old'" in caplog.text) is (dry_run is not None)
        assert len((await store.list_sessions()).sessions) == (0 if dry_run is False else 1)


async def test_it_is_looked_for_again_every_hour(house: House, manual: ManualClock) -> None:
    async with retaining(house.registry, 39.99, dry_run=False):
        for _ in range(50):
            await asyncio.sleep(0.002)
        assert "old" not in await ids(house)
        manual.step(timedelta(days=40))
        assert "new" in await ids(house)
        await manual.advance(EVERY_S)
        for _ in range(500):
            if "new" not in await ids(house):
                break
            await asyncio.sleep(0.002)
        assert await ids(house) == {"busy"}


async def test_nothing_is_kept_of_a_session_beside_the_store(house: House) -> None:
    told: list[str] = []

    class Keeping(Nothing):
        async def deleted(self, session_id: str, /) -> None:
            told.append(session_id)

    house = house.restart(surroundings=Keeping())
    expired = await expire(house.registry, MONTH, dry_run=False)
    assert "old" in expired
    assert told == expired


async def test_a_failure_that_nobody_thought_of_does_not_end_it(
    house: House, manual: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = house.registry.list
    errors: list[Exception] = [ValueError("nobody thought of this")]

    async def fail_once(**options: Any) -> Any:
        if errors:
            raise errors.pop()
        return await listed(**options)

    monkeypatch.setattr(house.registry, "list", fail_once)
    async with retaining(house.registry, 30, dry_run=False):
        await manual.advance(EVERY_S + 1)
        for _ in range(200):
            await asyncio.sleep(0.001)
            if "old" not in await ids(house):
                break
    assert "old" not in await ids(house)


async def test_hooks_hear_of_the_end_of_a_session_that_was_awake(
    house: House, manual: ManualClock
) -> None:
    told: list[tuple[str, str]] = []

    class Hearing(Nothing):
        hears_starts = True

        async def ended(self, scope: Scope, source: EndSource, /) -> None:
            told.append((scope.session_id, source))

    house = house.restart(limits=Limits(idle_after_s=1e9), surroundings=Hearing())
    await talk(house, "new")
    manual.step(timedelta(days=40))
    assert "new" in await expire(house.registry, MONTH, dry_run=False)
    assert told == [("new", "delete")]
    await house.close()
    assert told == [("new", "delete")]


async def test_a_session_that_cannot_be_deleted_takes_commands_again(house: House) -> None:
    faulty: Any = Faulty(house.store)
    other = House(faulty)
    faulty.fault = lambda kind, verb, given: (
        StoreUnavailableError("not now") if verb == "delete_session" else None
    )
    with pytest.raises(StoreUnavailableError):
        await expire(other.registry, MONTH, dry_run=False)
    await talk(other, "old")
    await other.close()
