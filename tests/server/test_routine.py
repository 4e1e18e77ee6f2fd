"""A routine sends its message at its due times, once each, and its history says what came of it."""

from __future__ import annotations

from perdure.stores.memory import MemoryStore
from tests.server.routine_house import SAY, living, move, timed


async def test_a_due_time_starts_one_turn_and_succeeds_when_it_completes() -> None:
    async with timed() as clock, living(MemoryStore()) as house:
        look = await house.make()
        assert look.status == "enabled"
        assert [f"{due:%H:%M}" for due in look.next_due] == [f"{n:02}:00" for n in range(9, 14)]
        await move(house, clock, 3.5 * 3600)
        assert await house.said() == [
            ("01-05T09:00", "succeeded"),
            ("01-05T10:00", "succeeded"),
            ("01-05T11:00", "succeeded"),
        ]
        assert await house.messages() == [SAY] * 3
        (run, *_) = await house.runs()
        assert (run.session_id, run.attempts, run.cause) == ("r", 1, "due")
        assert run.message_id is not None
        assert run.turn_id is not None
