"""What is due while a run goes on is skipped, waits, or takes its place."""

from __future__ import annotations

import pytest

from perdure.entry import Text
from perdure.stores.memory import MemoryStore
from tests.server.house import Gate, Loops
from tests.server.routine_house import (
    HANG,
    SAY,
    living,
    move,
    timed,
)


async def test_what_is_due_while_a_run_goes_on_is_skipped_and_says_why() -> None:
    async with timed() as clock, living(MemoryStore()) as house:
        await house.make(HANG)
        await move(house, clock, 3.5 * 3600)
        assert await house.said() == [
            ("01-05T09:00", "started"),
            ("01-05T10:00", "skipped"),
            ("01-05T11:00", "skipped"),
        ]
        skipped = (await house.runs())[1]
        assert skipped.why == "run 2026-01-05T09:00:00Z has not ended"
        assert await house.starts() == 1


async def test_what_overlaps_can_wait_for_its_turn() -> None:
    gate = Gate()
    async with timed() as clock, living(MemoryStore(), Loops(gate)) as house:
        await house.make(overlap="queue")
        await move(house, clock, 3.5 * 3600)
        assert await house.said() == [
            ("01-05T09:00", "started"),
            ("01-05T10:00", "claimed"),
            ("01-05T11:00", "claimed"),
        ]
        assert await house.starts() == 1
        gate.open()
        await house.rest()
        assert [status for _, status in await house.said()] == ["succeeded"] * 3
        assert await house.starts() == 3


async def test_so_many_wait_and_no_more() -> None:
    async with timed() as clock, living(MemoryStore()) as house:
        await house.make(HANG, overlap="queue")
        await move(house, clock, 20.5 * 3600)
        statuses = [status for _, status in await house.said()]
        assert statuses == ["started"] + ["claimed"] * 15 + ["skipped"] * 4


@pytest.mark.parametrize("new_session", [False, True])
async def test_what_overlaps_can_take_the_place_of_the_run_before(new_session: bool) -> None:
    async with timed() as clock, living(MemoryStore()) as house:
        await house.make(HANG, overlap="interrupt", new_session=new_session)
        await move(house, clock, 3.5 * 3600)
        assert await house.said() == [
            ("01-05T09:00", "stopped"),
            ("01-05T10:00", "stopped"),
            ("01-05T11:00", "started"),
        ]
        assert (await house.runs())[0].why == "run 2026-01-05T10:00:00Z took its place"


async def test_somebody_else_s_turn_is_no_overlap_the_message_waits_for_its_end() -> None:
    gate = Gate()
    async with timed() as clock, living(MemoryStore(), Loops(gate)) as house:
        await house.make()
        await house.house.registry.send("r", [Text(SAY)])
        await move(house, clock, 2.5 * 3600)
        assert await house.said() == [("01-05T09:00", "started"), ("01-05T10:00", "skipped")]
        assert await house.starts() == 1
        gate.open()
        await house.rest()
        assert await house.said() == [("01-05T09:00", "succeeded"), ("01-05T10:00", "skipped")]
        assert await house.starts() == 2


async def test_a_message_that_is_discarded_while_it_waits_ends_its_run() -> None:
    async with timed() as clock, living(MemoryStore()) as house:
        await house.make()
        await house.house.registry.send("r", [Text(HANG)])
        await move(house, clock, 1.5 * 3600)
        (run,) = await house.runs()
        assert run.message_id is not None
        await house.house.registry.discard_queued("r", run.message_id)
        await house.rest()
        assert await house.said() == [("01-05T09:00", "discarded")]


async def test_a_message_that_is_held_is_no_overlap_and_runs_with_the_next() -> None:
    async with timed() as clock, living(MemoryStore()) as house:
        await house.make()
        await house.house.registry.send("r", [Text(HANG)])
        await move(house, clock, 1.5 * 3600)
        await house.house.registry.stop("r")
        assert (await house.house.registry.look("r")).held
        await move(house, clock, 3600)
        assert await house.said() == [("01-05T09:00", "succeeded"), ("01-05T10:00", "succeeded")]
