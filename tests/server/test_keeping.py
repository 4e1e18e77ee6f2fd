"""What keeps routines and workflows misses nothing that others wrote, and gives up on nothing."""

from __future__ import annotations

import asyncio
from typing import Any

from perdure.errors import JournalCorruptError, StoreUnavailableError
from perdure.server.routine.definition import Wanted
from perdure.stores.memory import MemoryStore
from perdure.workflow import Retry
from tests.server import workflow_house
from tests.server.faulty import Faulty
from tests.server.routine_house import (
    HANG,
    SAY,
    RoutineHouse,
    at,
    living,
    move,
    timed,
)
from tests.server.workflow_house import FAIL, ONCE, step


async def other_node(store: MemoryStore) -> RoutineHouse:
    """Another process on the same store, which hears of nothing."""
    house = RoutineHouse(store)
    await house.keeper.load()
    return house


async def test_what_others_write_while_one_is_attended_to_is_seen_afterwards() -> None:
    store = MemoryStore()
    async with timed(), living(store) as house:
        await house.make()
        await house.rest()
        other = await other_node(store)
        async with house.keeper.get("r").lock:
            await other.routines.change("r", Wanted(), status="paused")
            await asyncio.sleep(0.05)
        await house.rest()
        assert house.routines.look("r").status == "paused"
        await other.house.close()


async def test_what_others_write_between_loading_and_keeping_is_seen() -> None:
    store = MemoryStore()
    async with timed():
        async with living(store) as house:
            await house.make()
        late, other = await other_node(store), await other_node(store)
        await other.routines.change("r", Wanted(), status="paused")
        await other.routines.create("new", Wanted(every_s=60, text=SAY))
        async with late.keeper.keeping():
            await late.rest()
            assert late.routines.look("r").status == "paused"
            assert late.routines.look("new").status == "enabled"
        await late.house.close()
        await other.house.close()


async def test_a_command_to_a_routine_that_others_changed_is_decided_anew() -> None:
    store = MemoryStore()
    async with timed(), living(store) as house:
        await house.make(overlap="queue")
        other = await other_node(store)
        await house.routines.change("r", Wanted(), status="paused")
        look = await other.routines.change("r", Wanted(text="else"))
        assert (look.status, look.last_seq) == ("paused", 3)
        run = await house.routines.run("r", idempotency_key="k")
        await house.rest()
        again = await other.routines.run("r", idempotency_key="k")
        assert (again.run_id, again.status) == (run.run_id, "succeeded")
        await other.house.close()


async def test_one_that_could_not_be_looked_for_is_looked_for_again() -> None:
    store = MemoryStore()
    faulty: Any = Faulty(store)
    async with timed() as clock, living(faulty) as house:
        faulty.fault = lambda kind, verb, _: (
            StoreUnavailableError("not now") if (kind, verb) == ("routine", "look") else None
        )
        other = await other_node(store)
        await other.make()
        await house.rest()
        assert house.keeper.find_kept("r") is None
        faulty.fault = lambda *_: None
        await move(house, clock, 10)
        assert house.routines.look("r").status == "enabled"
        await other.house.close()


async def test_what_could_not_be_caught_up_with_is_read_later() -> None:
    store = MemoryStore()
    faulty: Any = Faulty(store)
    async with timed() as clock, living(faulty) as house:
        await house.make()
        await house.rest()
        other = await other_node(store)
        faulty.fault = lambda kind, verb, _: (
            StoreUnavailableError("not now") if (kind, verb) == ("routine", "look") else None
        )
        await other.routines.change("r", Wanted(), status="paused")
        await house.rest()
        assert house.routines.look("r").status == "enabled"
        faulty.fault = lambda *_: None
        await move(house, clock, 10)
        assert house.routines.look("r").status == "paused"
        await other.house.close()


async def test_a_routine_whose_journal_breaks_is_shown_so_until_it_can_be_read() -> None:
    store = MemoryStore()
    faulty: Any = Faulty(store)
    async with timed() as clock, living(faulty) as house:
        await house.make()
        await house.rest()
        other = await other_node(store)
        broken = JournalCorruptError("r", 2, "entry 2", "its bytes are others")
        faulty.fault = lambda kind, verb, _: broken if (kind, verb) == ("routine", "look") else None
        await other.routines.change("r", Wanted(), status="paused")
        await house.rest()
        look = house.routines.look("r")
        assert (look.status, look.why) == ("unrecoverable", str(broken))
        faulty.fault = lambda *_: None
        await move(house, clock, 10)
        look = house.routines.look("r")
        assert (look.status, look.why) == ("paused", None)
        await other.house.close()


async def test_a_message_that_was_accepted_before_a_crash_counts_whatever_is_to_be_said_now() -> (
    None
):
    store = MemoryStore()
    faulty: Any = Faulty(store)
    faulty.fault = lambda kind, verb, given: (
        StoreUnavailableError("the process ends here")
        if (kind, verb) == ("routine", "append_entries")
        and given[1][0].type == "routine_run_started"
        else None
    )
    async with timed() as clock:
        async with living(faulty) as house:
            await house.make()
            await clock.advance(3600)
            await house.rest()
            assert await house.said() == [("01-05T09:00", "claimed")]
            assert await house.messages() == [SAY]
        again = await other_node(store)
        await again.routines.change("r", Wanted(text=HANG))
        async with again.keeper.keeping():
            await again.rest()
            assert await again.said() == [("01-05T09:00", "succeeded")]
            assert await again.messages() == [SAY]
        await again.house.close()


async def test_the_same_routine_is_found_again_when_its_time_has_passed() -> None:
    async with timed() as clock, living(MemoryStore()) as house:
        wanted = Wanted(at=at("2026-01-05T09:00"), text=SAY)
        await house.routines.create("once", wanted)
        await clock.advance(2 * 3600)
        await house.rest()
        look, is_new = await house.routines.create("once", wanted)
        assert (look.status, is_new) == ("done", False)


async def test_nothing_is_kept_of_a_run_that_ended_as_its_routine_stopped_itself() -> None:
    async with timed() as clock, living(MemoryStore()) as house:
        await house.make(session_id="s")
        await house.house.registry.delete("s")
        await move(house, clock, 3600)
        assert await house.said() == [("01-05T09:00", "failed")]
        house.keeper.call("r", thorough=True)
        await house.rest()
        assert house.keeper.get("r").own_runs == set()


async def test_a_session_that_was_made_anew_ends_the_attempt_that_ran_in_it() -> None:
    async with workflow_house.living(MemoryStore()) as house:
        await house.start(step("a", workflow_house.HANG, retry=ONCE))
        work = house.keeper.find_kept("w")
        (session_id,) = house.keeper.sessions_of(work)
        async with work.lock:
            await house.house.registry.delete(session_id)
            await house.house.registry.create(session_id)
        await house.rest()
        assert (await house.look()).status == "failed"
        (attempt,) = (await house.of("a")).attempts
        assert "was deleted" in str(attempt.cause) or attempt.reason == "stopped"


async def test_an_attempt_whose_session_is_damaged_fails_and_is_not_tried_for_ever() -> None:
    faulty: Any = Faulty(MemoryStore())
    faulty.fault = lambda kind, verb, given: (
        JournalCorruptError(given[0], None, "its header", "it is not JSON")
        if (kind, verb) == ("session", "load_session")
        else None
    )
    async with workflow_house.timed() as clock, workflow_house.living(faulty) as house:
        await house.start(step("a", retry=ONCE))
        await workflow_house.move(house, clock, 60)
        assert (await house.look()).status == "failed"
        assert "its header" in str((await house.of("a")).cause)


async def test_a_retry_that_has_no_room_waits_for_it_and_for_no_time() -> None:
    async with workflow_house.timed() as clock, workflow_house.living(MemoryStore()) as house:
        retry = Retry(attempts=2, wait_s=5, jitter=0)
        slow = '[{"do": "wait", "delay_s": 60}]'
        await house.start(step("a", FAIL, retry=retry), step("b", slow, after=[]), parallel=1)
        assert await house.said() == {"a": "retrying", "b": "running"}
        await workflow_house.move(house, clock, 6)
        assert house.keeper.wake_at(house.keeper.find_kept("w")) is None
        await workflow_house.move(house, clock, 60)
        assert await house.reasons("a") == ["failed", "failed"]
