"""A turn that outlives its limit, a loop that does not let go, an input that takes servers down."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Iterator

import pytest

from perdure import clock
from perdure.entry import Message, Text
from perdure.errors import AppendConflictError
from perdure.fact import Claimed, TurnEnded, TurnStarted
from perdure.loop import Loop, LoopContext, LoopEvent, MessageDelta, MessageEnded
from perdure.server.journal import JournalStore
from perdure.server.session.limit import Limits
from perdure.server.session.path import load_model_path
from perdure.server.session.state import State, fold
from perdure.server.session.turn import GRACE_S
from perdure.testing import Call, ManualClock, Say, write_script
from perdure.view import open_calls
from tests.server.house import ID, Gate, House, Loops
from tests.server.test_restart import Severed
from tests.server.test_store_failure import Refusing

HANG = write_script(Say("work", cut="hang"))
HANG_IN_A_CALL = write_script(Say("look", calls=[Call("a", output=["out"], hangs=True)]))


@pytest.fixture
def manual() -> Iterator[ManualClock]:
    manual = ManualClock()
    with clock.use(manual):
        yield manual


class Clinging:
    """A loop that shows something and ignores every cancellation until it is released."""

    def __init__(self) -> None:
        self.released = asyncio.Event()

    def __call__(self) -> Loop:
        return self._play

    async def _play(self, context: LoopContext) -> AsyncGenerator[LoopEvent, None]:
        yield MessageDelta("shown")
        while not self.released.is_set():
            try:
                await self.released.wait()
            except asyncio.CancelledError:
                continue
        yield MessageEnded((Text("too late"),))


@pytest.fixture
async def clinging(store: JournalStore, manual: ManualClock) -> AsyncIterator[Clinging]:
    loop = Clinging()
    yield loop
    loop.released.set()
    for _ in range(50):  # it finds out that its turn is over
        await asyncio.sleep(0)


async def ended(house: House) -> TurnEnded:
    """The end of the last turn."""
    views = [stored.view for stored in await house.log()]
    return [view for view in views if isinstance(view, TurnEnded)][-1]


async def test_a_turn_that_outlives_its_time_limit_fails_and_says_so(
    store: JournalStore, manual: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    house = House(store, limits=Limits(turn_limit_s=30))
    await house.create()
    sent = await house.send(HANG_IN_A_CALL)
    await house.send("waits")
    await house.until_partial("out")
    await manual.advance(29)
    assert (await house.look()).status == "running"
    with caplog.at_level(logging.WARNING, "perdure.server"):
        await manual.advance(2)
        look = await house.rest()
    assert (look.status, look.held) == ("failed", True)
    assert look.cause == "it ran for more than 30 s, the time limit of a turn"
    assert (await house.ends()) == [(sent.turn_id, "failed")]
    path = await load_model_path(store, ID, look.leaf_id)
    assert not open_calls(path)
    assert ID in caplog.text
    await house.registry.go_on(ID)
    assert (await house.rest()).status == "idle"
    await house.close()


async def test_a_turn_within_its_limit_and_the_next_one_have_a_limit_of_their_own(
    store: JournalStore, manual: ManualClock
) -> None:
    gate = Gate()
    house = House(store, Loops(gate), Limits(turn_limit_s=30))
    await house.create()
    await house.send("one")
    await house.send("two")
    await manual.advance(20)
    gate.open()
    await house.until(lambda look: look.turn is None and not look.queued)
    await manual.advance(100)
    assert [reason for _, reason in await house.ends()] == ["completed", "completed"]
    await house.close()


async def test_without_a_limit_a_turn_takes_as_long_as_it_takes(
    store: JournalStore, manual: ManualClock
) -> None:
    house = House(store)
    await house.create()
    await house.send(HANG)
    await house.until_partial("work")
    await manual.advance(10**5)
    assert (await house.look()).status == "running"
    await house.close()


async def test_a_loop_that_ignores_its_time_limit_is_left_behind_and_reported(
    store: JournalStore,
    manual: ManualClock,
    clinging: Clinging,
    caplog: pytest.LogCaptureFixture,
) -> None:
    house = House(store, Loops(clinging), Limits(turn_limit_s=30))
    await house.create()
    await house.send("hello")
    await house.until_partial("shown")
    await manual.advance(31)
    assert (await house.look()).status == "running"
    with caplog.at_level(logging.WARNING, "perdure.server"):
        await manual.advance(GRACE_S)
        look = await house.rest()
    assert look.status == "failed"
    assert "time limit" in (look.cause or "")
    assert "did not let go" in (look.cause or "")
    assert "did not let go" in caplog.text
    kept = [s.view for s in await house.log() if isinstance(s.view, Message)][-1]
    assert (kept.text, kept.end) == ("shown", "failed")
    clinging.released.set()
    await house.close()
    assert await house.texts() == ["hello", "shown"]


async def test_a_message_that_interrupts_a_clinging_loop_runs_in_its_place(
    store: JournalStore, manual: ManualClock, clinging: Clinging
) -> None:
    house = House(store, Loops(clinging))
    await house.create()
    first = await house.send("hello")
    await house.until_partial("shown")
    second = await house.send("instead", if_running="interrupt")
    await manual.advance(GRACE_S)
    look = await house.until(lambda look: look.turn is not None and not look.queued)
    assert look.turn is not None
    assert look.turn.message_id == second.message_id
    assert await house.ends() == [(first.turn_id, "stopped")]
    clinging.released.set()
    await house.rest()
    assert await house.texts() == ["hello", "shown", "instead", "too late"]
    await house.close()


async def test_a_loop_that_was_left_behind_does_not_keep_its_session_in_memory(
    store: JournalStore, manual: ManualClock, clinging: Clinging
) -> None:
    house = House(store, Loops(clinging), Limits(idle_after_s=60))
    await house.create()
    await house.send("hello")
    await house.until_partial("shown")
    stopping = asyncio.create_task(house.registry.stop(ID))
    await manual.advance(GRACE_S + 1)
    assert (await stopping).stopped
    await manual.advance(100)
    for _ in range(1000):
        if not house.registry.live_actors:
            break
        await asyncio.sleep(0.001)
    assert house.registry.live_actors == 0
    before = list(await house.log())
    clinging.released.set()
    await asyncio.sleep(0.01)
    assert list(await house.log()) == before
    await house.close()


async def test_a_shutdown_leaves_a_clinging_loop_behind_and_ends_its_turn(
    store: JournalStore, clinging: Clinging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.server.session.actor.GRACE_S", 0.01)
    house = House(store, Loops(clinging))
    await house.create()
    sent = await house.send("hello")
    await house.until_partial("shown")
    await house.close()
    assert await house.ends() == [(sent.turn_id, "interrupted")]
    assert not (await ended(house)).crashed


async def crash(store: JournalStore, resend: bool, limits: Limits | None = None) -> None:
    """A server that is killed in the middle of a turn: a message's, or one that is sent again."""
    others = asyncio.all_tasks()
    severed = Severed(store)
    dying = House(severed, limits=limits)
    if resend:
        await dying.registry.resend(ID)
    else:
        await dying.send(HANG)
    await dying.until_partial("work")
    severed.dead.set()
    while left := asyncio.all_tasks() - others:
        for task in left:
            task.cancel()
        await asyncio.sleep(0)
    await store.append_entries(ID, [])  # comes after what was in flight when the server died


async def test_an_input_that_takes_the_server_down_three_times_is_in_quarantine(
    store: JournalStore,
) -> None:
    house = House(store)
    await house.create()
    for n in (1, 2, 3):
        await crash(store, resend=n > 1)
        looker = house.restart()
        before = list(await store.load_entries(ID))
        look = await looker.look()
        assert look.status == ("interrupted" if n < 3 else "failed")
        assert list(await store.load_entries(ID)) == before
        shown = [each.status for each in (await looker.registry.list())[0]]
        assert shown == [look.status]
    assert "3 times" in (look.cause or "")
    assert "quarantine" in (look.cause or "")
    woken = await house.registry.reopen(ID)
    assert (woken.status, woken.cause) == (look.status, look.cause)
    end = await ended(house)
    assert (end.reason, end.crashed) == ("failed", True)
    views = [stored.view for stored in await house.log()]
    assert isinstance(views[-2], Claimed)
    assert [view.resends is None for view in views if isinstance(view, TurnStarted)] == [
        True,
        False,
        False,
    ]
    assert fold(State(), await house.log()) == await house.state()
    await house.close()


async def test_what_is_sent_again_after_a_quarantine_is_so_by_a_person_and_at_its_own_risk(
    store: JournalStore,
) -> None:
    limits = Limits(quarantine_after=1)
    house = House(store, limits=limits)
    await house.create()
    await crash(store, resend=False, limits=limits)
    assert (await house.look()).status == "failed"
    assert "once" in ((await house.look()).cause or "")
    await crash(store, resend=True, limits=limits)
    look = await house.look()
    assert (look.status, "2 times" in (look.cause or "")) == ("failed", True)
    await house.send("something else")
    await house.rest()
    await crash(store, resend=False)
    assert (await house.restart(limits=Limits()).look()).status == "interrupted"
    await house.close()


async def test_a_crash_counts_even_if_the_claim_has_to_be_tried_again(store: JournalStore) -> None:
    house = House(store)
    await house.create()
    await crash(store, resend=False)
    refusing = Refusing(store)
    refusing.fails = lambda n: AppendConflictError(ID, 1, 2) if n == 1 else None
    again = House(refusing)
    look = await again.registry.reopen(ID)
    end = await ended(house)
    assert (look.status, end.reason, end.crashed) == ("interrupted", "interrupted", True)
    assert "another writer" not in (look.cause or "")
    await again.close()
    await house.close()


async def test_a_stop_in_between_does_not_forget_the_crashes_before(store: JournalStore) -> None:
    house = House(store)
    await house.create()
    await crash(store, resend=False)
    await house.registry.resend(ID)
    await house.until_partial("work")
    await house.registry.stop(ID)
    state = await house.state()
    assert state.last_turn is not None
    assert (state.last_turn.reason, state.last_turn.crashes) == ("stopped", 1)
    await house.close()


async def test_a_shutdown_is_no_crash(store: JournalStore) -> None:
    house = House(store)
    await house.create()
    await house.send(HANG)
    await house.until_partial("work")
    await house.close()
    for _ in range(4):
        again = house.restart()
        await again.registry.resend(ID)
        await again.until_partial("work")
        await again.close()
        assert (await house.look()).status == "interrupted"
    assert not (await ended(house)).crashed
