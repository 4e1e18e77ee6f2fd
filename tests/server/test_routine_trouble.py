"""A routine stops itself where going on would be wrong, and sends again only by its own policy."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure.entry import Text
from perdure.errors import JournalCorruptError, StoreUnavailableError
from perdure.fact import Claimed, TurnStarted
from perdure.server.routine.definition import Wanted
from perdure.server.routine.firing import RETRIES
from perdure.stores.memory import MemoryStore
from tests.server.house import Loops
from tests.server.routine_house import HANG, SAY, RoutineHouse, at, living, move, timed


async def test_it_stops_itself_when_its_session_is_deleted_and_can_be_resumed() -> None:
    async with timed() as clock, living(MemoryStore()) as house:
        await house.make(session_id="s")
        await move(house, clock, 1.5 * 3600)
        await house.house.registry.delete("s")
        await move(house, clock, 2 * 3600)
        look = house.routines.look("r")
        assert (look.status, look.next_due) == ("stopped", ())
        assert "no session 's'" in str(look.why)
        assert await house.said() == [("01-05T09:00", "succeeded"), ("01-05T10:00", "failed")]
        look = await house.routines.change("r", Wanted(), status="enabled")
        assert (look.status, look.why) == ("enabled", None)
        await move(house, clock, 3600)
        assert (await house.said())[-1] == ("01-05T12:00", "succeeded")


async def test_a_session_that_was_made_anew_is_another() -> None:
    async with timed() as clock, living(MemoryStore()) as house:
        await house.make(session_id="s")
        await house.house.registry.delete("s")
        await house.house.registry.create("s")
        await move(house, clock, 1.5 * 3600)
        assert house.routines.look("r").status == "stopped"
        assert "is another" in str(house.routines.look("r").why)
        assert await house.messages("s") == []


async def test_a_session_that_is_deleted_in_mid_turn_stops_its_run_and_then_the_routine() -> None:
    async with timed() as clock, living(MemoryStore()) as house:
        await house.make(HANG)
        await move(house, clock, 1.5 * 3600)
        await house.house.registry.delete("r")
        await house.rest()
        assert await house.said() == [("01-05T09:00", "stopped")]
        await move(house, clock, 3600)
        assert await house.said() == [("01-05T09:00", "stopped"), ("01-05T10:00", "failed")]
        assert house.routines.look("r").status == "stopped"


async def test_the_session_of_one_run_is_that_run_s_own_matter() -> None:
    async with timed() as clock, living(MemoryStore()) as house:
        await house.make(HANG, new_session=True, overlap="queue")
        await move(house, clock, 1.5 * 3600)
        (run,) = await house.runs()
        await house.house.registry.delete(str(run.session_id))
        await house.rest()
        assert await house.said() == [("01-05T09:00", "stopped")]
        assert house.routines.look("r").status == "enabled"
        await move(house, clock, 3600)
        assert (await house.said())[-1] == ("01-05T10:00", "started")


async def test_a_fork_needs_the_very_session_it_was_made_for() -> None:
    async with timed() as clock, living(MemoryStore()) as house:
        await house.house.registry.create("base")
        await house.make(new_session=True, fork_of="base")
        await house.house.registry.delete("base")
        await house.house.registry.create("base")
        await move(house, clock, 1.5 * 3600)
        assert house.routines.look("r").status == "stopped"
        assert await house.said() == [("01-05T09:00", "failed")]


class DamagedStore(MemoryStore):
    """Finds damage in a session while it is told to."""

    damaged = False

    async def page_entries(self, session_id: str, **bounds: Any) -> Any:
        if self.damaged:
            raise JournalCorruptError(session_id, 3, "a place", "a test's damage")
        return await super().page_entries(session_id, **bounds)


async def test_it_stops_itself_when_its_session_is_unrecoverable() -> None:
    store = DamagedStore()
    async with timed() as clock:
        async with living(store) as house:
            await house.make()
        await store.append_entries("r", [Claimed(epoch=9, node="other")])  # not in the summary
        store.damaged = True
        async with living(store) as house:
            await move(house, clock, 1.5 * 3600)
            look = house.routines.look("r")
            assert look.status == "stopped"
            assert "a test's damage" in str(look.why)
            assert await house.said() == [("01-05T09:00", "failed")]
            store.damaged = False
            await house.routines.change("r", Wanted(), status="enabled")
            await move(house, clock, 3600)
            assert (await house.said())[-1] == ("01-05T10:00", "succeeded")


class RefusingStore(MemoryStore):
    """Refuses to append to sessions so often."""

    refusals = 0

    async def append_entries(self, session_id: str, *given: Any, **options: Any) -> Any:
        if self.refusals:
            self.refusals -= 1
            raise StoreUnavailableError("the disk is full")
        return await super().append_entries(session_id, *given, **options)


async def test_what_the_store_refuses_is_tried_again() -> None:
    store = RefusingStore()
    async with timed() as clock, living(store) as house:
        await house.make()
        await move(house, clock, 0.9 * 3600)
        store.refusals = 3
        await move(house, clock, 0.15 * 3600)
        assert await house.said() == [("01-05T09:00", "succeeded")]
        assert await house.starts() == 1


async def test_but_not_for_ever() -> None:
    store = RefusingStore()
    async with timed() as clock, living(store) as house:
        await house.make()
        store.refusals = len(RETRIES) + 1
        await move(house, clock, 1.5 * 3600)
        assert await house.said() == [("01-05T09:00", "failed")]
        assert "the disk is full" in str((await house.runs())[0].why)
        await move(house, clock, 3600)
        assert (await house.said())[-1] == ("01-05T10:00", "succeeded")


async def test_a_loop_that_cannot_start_fails_the_run_and_not_the_routine() -> None:
    def broken() -> Any:
        raise RuntimeError("no key")

    async with timed() as clock, living(MemoryStore(), Loops(broken)) as house:
        await house.make()
        await move(house, clock, 2.5 * 3600)
        assert await house.said() == [("01-05T09:00", "failed"), ("01-05T10:00", "failed")]
        assert "no key" in str((await house.runs())[0].why)
        assert house.routines.look("r").status == "enabled"


class SlowStore(MemoryStore):
    """Tells what it read long after it read it."""

    async def load_entry(self, session_id: str, entry: int | str) -> Any:
        try:
            return await super().load_entry(session_id, entry)
        finally:
            for _ in range(100):
                await asyncio.sleep(0)


async def test_a_turn_that_ends_before_anybody_watches_it_is_seen_to_end() -> None:
    async with timed() as clock, living(SlowStore()) as house:
        await house.make()
        await move(house, clock, 1.01 * 3600)
        assert house.routines.look("r").running == ()
        assert await house.said() == [("01-05T09:00", "succeeded")]


# Sending again


async def die(house: RoutineHouse) -> None:
    """The process ends: nothing is stored any more, and nobody is told."""
    house.house.registry._store = Dead()
    for actor in list(house.house.registry._roster._actors.values()):
        actor.store = Dead()


class Dead:
    """A store that nobody reaches."""

    def __getattr__(self, name: str) -> Any:
        async def refuse(*_: Any, **__: Any) -> Any:
            raise StoreUnavailableError("this process has ended")

        return refuse


async def crashes(times: int, **wanted: Any) -> RoutineHouse:
    """A server that dies in the middle of the turn so often, and then stays up."""
    store = MemoryStore()
    async with timed() as clock:
        async with living(store) as house:
            await house.make(HANG, **wanted)
            await move(house, clock, 1.01 * 3600)
            await die(house)
        for _ in range(times - 1):
            async with living(store) as house:
                await die(house)
        async with living(store) as house:
            await move(house, clock, 1)
            house.keeper.at_end = (
                [(run.status, run.attempts) for run in await house.runs()],
                await house.starts(),
                house.routines.look("r"),
            )
            return house


async def test_an_interrupted_turn_is_not_sent_again_by_itself() -> None:
    runs, starts, look = (await crashes(1)).keeper.at_end
    assert (runs, starts, look.status) == ([("interrupted", 1)], 1, "enabled")


async def test_but_by_the_routine_s_own_policy_within_its_budget() -> None:
    runs, starts, look = (await crashes(1, resends=1)).keeper.at_end
    assert (runs, starts, look.status) == ([("started", 2)], 2, "enabled")
    runs, starts, look = (await crashes(2, resends=1)).keeper.at_end
    assert (runs, starts, look.status) == ([("interrupted", 2)], 2, "enabled")


async def test_it_stops_itself_when_the_turn_is_in_quarantine() -> None:
    runs, starts, look = (await crashes(3, resends=9)).keeper.at_end
    assert (runs, starts, look.status) == ([("failed", 3)], 3, "stopped")
    assert "in quarantine" in look.why


async def test_and_does_not_send_into_a_session_whose_last_turn_is_there() -> None:
    store = MemoryStore()
    async with timed() as clock:
        async with living(store) as house:
            await house.make()
            await house.house.registry.send("r", [Text(HANG)])
            await die(house)
        for _ in range(2):
            async with living(store) as house:
                await house.house.registry.resend("r")
                await die(house)
        async with living(store) as house:
            await move(house, clock, 1.1 * 3600)
            assert house.routines.look("r").status == "stopped"
            assert "in quarantine" in str(house.routines.look("r").why)
            assert await house.said() == [("01-05T09:00", "failed")]
            await house.house.registry.send("r", [Text(SAY)])
            await house.rest()
            await house.routines.change("r", Wanted(), status="enabled")
            await move(house, clock, 3600)
            assert (await house.said())[-1] == ("01-05T10:00", "succeeded")


async def test_a_session_that_went_on_is_not_sent_again() -> None:
    store = MemoryStore()
    async with timed() as clock:
        async with living(store) as house:
            await house.make(HANG, resends=3)
            await move(house, clock, 1.01 * 3600)
            await die(house)
        one = RoutineHouse(store)
        await one.house.registry.send("r", [Text(SAY)])
        for _ in range(50):
            if (await one.house.registry.look("r")).turn is None:
                break
            await clock.advance(0)
        await one.house.close()
        async with living(store) as house:
            assert await house.said() == [("01-05T09:00", "interrupted")]
            entries = await store.load_entries("r")
            assert sum(isinstance(each.view, TurnStarted) for each in entries) == 2


@pytest.mark.parametrize("resends", [0, 1])
async def test_a_turn_that_the_shutdown_interrupts_is_an_interruption(resends: int) -> None:
    store = MemoryStore()
    async with timed() as clock:
        async with living(store) as house:
            await house.make(HANG, resends=resends)
            await move(house, clock, 1.01 * 3600)
        async with living(store) as house:
            await move(house, clock, 1)
            status = "started" if resends else "interrupted"
            assert await house.said() == [("01-05T09:00", status)]
            assert (await house.runs())[0].due_at == at("2026-01-05T09:00")
