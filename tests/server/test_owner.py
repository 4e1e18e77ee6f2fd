"""What an owner of a session never does: run two turns at once, or own what is another's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from perdure.entry import Text
from perdure.errors import AppendUncertainError, SessionDeletedError, SessionNotFoundError
from perdure.loop import Loop, LoopContext, LoopEvent, MessageEnded, MessageStarted
from perdure.server.session.command import reopen
from perdure.stores.memory import MemoryStore
from tests.server.faulty import Faulty
from tests.server.house import ID, House, Loops


class Slow:
    """A loop whose first run hangs, and takes a while to let go; `most` ran at the same time."""

    def __init__(self) -> None:
        self.runs = self.alive = self.most = 0
        self.began = asyncio.Event()

    def __call__(self) -> Loop:
        return self._play

    async def _play(self, context: LoopContext) -> AsyncGenerator[LoopEvent, None]:
        self.runs += 1
        self.alive += 1
        self.most = max(self.most, self.alive)
        self.began.set()
        try:
            if self.runs == 1:
                await asyncio.Event().wait()
            yield MessageStarted()
            yield MessageEnded([Text("done")])
        finally:
            if self.runs == 1:
                await asyncio.sleep(0.2)
            self.alive -= 1


@pytest.mark.parametrize("senders", [1, 2])
async def test_a_run_that_was_lost_lets_go_before_another_turn_starts(senders: int) -> None:
    faulty: Any = Faulty(MemoryStore())
    slow = Slow()
    house = House(faulty, Loops(slow))
    await house.create()
    first = await house.send("a")
    await slow.began.wait()
    errors = [AppendUncertainError("the connection was lost")]
    faulty.fault = lambda kind, verb, _: (
        errors.pop() if verb == "append_entries" and errors else None
    )
    await asyncio.gather(*(house.send(f"b{n}") for n in range(senders)))
    await house.until(lambda look: look.turn is None and not look.queued)
    assert (slow.runs, slow.most) == (1 + senders, 1)
    (turn_id, reason), *others = await house.ends()
    assert (turn_id, reason) == (first.turn_id, "interrupted")
    assert [reason for _, reason in others] == ["completed"] * senders
    await house.close()


async def test_an_actor_whose_session_was_deleted_never_wakes_the_next_one_of_its_id(
    house: House,
) -> None:
    await house.send("a")
    await house.rest()
    actor = house.registry._roster.get(ID)
    assert actor is not None
    found = await asyncio.gather(
        house.registry.delete(ID), house.registry.delete(ID), return_exceptions=True
    )
    assert [type(each) for each in found if each is not None] == [SessionNotFoundError]
    await house.create()
    with pytest.raises((SessionDeletedError, SessionNotFoundError)):
        await reopen(actor)
    assert (await house.look()).last_seq == 0
    await house.send("b")
    assert (await house.rest()).status == "idle"
