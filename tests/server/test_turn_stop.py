"""A stop ends the turn that it names, in bounded time, whatever its loop does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest

from perdure.entry import Message, Text, ToolCall
from perdure.fact import MessageDiscarded
from perdure.loop import Loop, LoopContext, LoopEvent, MessageDelta, MessageEnded
from perdure.testing import Call, Say, write_script
from tests.server.house import ID, House, Loops

HANG = write_script(Say("working", cut="hang"))
HANG_IN_A_CALL = write_script(Say("look", calls=[Call("read", output=["one"], hangs=True)]))


async def test_a_stop_ends_the_turn_keeps_what_was_shown_and_holds_the_queue(house: House) -> None:
    sent = await house.send(HANG)
    waiting = await house.send("later")
    await house.until_partial("working")
    stopped = await house.registry.stop(ID, sent.turn_id)
    assert (stopped.stopped, stopped.turn_id) == (True, sent.turn_id)
    look = await house.look()
    assert (look.status, look.held, look.turn) == ("idle", True, None)
    assert [each.message_id for each in look.queued] == [waiting.message_id]
    kept = [s.view for s in await house.log() if isinstance(s.view, Message)][-1]
    assert (kept.text, kept.end) == ("working", "stopped")
    assert house.registry.partials(ID) == []


async def test_a_stop_is_idempotent_and_touches_no_other_turn(house: House) -> None:
    first = await house.send("one")
    await house.rest()
    second = await house.send(HANG)
    assert not (await house.registry.stop(ID, first.turn_id)).stopped
    assert (await house.look()).status == "running"
    answers = await asyncio.gather(*(house.registry.stop(ID, second.turn_id) for _ in range(3)))
    assert [each.stopped for each in answers] == [True] * 3
    assert not (await house.registry.stop(ID, second.turn_id)).stopped
    assert not (await house.registry.stop(ID)).stopped
    assert await house.ends() == [(first.turn_id, "completed"), (second.turn_id, "stopped")]


async def test_a_stop_can_discard_what_waits(house: House) -> None:
    await house.send(HANG)
    waiting = await house.send("later", key="k")
    await house.registry.stop(ID, discard_queued=True)
    assert (await house.look()).queued == ()
    views = [s.view for s in await house.log()]
    assert [v.message_id for v in views if isinstance(v, MessageDiscarded)] == [waiting.message_id]
    again = await house.send("later", key="k")
    assert (again.message_id, again.turn_id, again.queued) == (waiting.message_id, None, False)


async def test_calls_in_flight_get_interrupted_results_when_stopped(house: House) -> None:
    await house.send(HANG_IN_A_CALL)
    await house.until_partial("one")
    await house.registry.stop(ID)
    last = [s.view for s in await house.log() if isinstance(s.view, Message)][-1]
    assert last.tool_results[0].interrupted
    assert last.text == ""
    assert "one" in last.tool_results[0].text


async def test_a_stop_at_once_after_the_send_ends_the_turn_once(house: House) -> None:
    sent = await house.send("hello")
    stopped = await house.registry.stop(ID)
    assert stopped.stopped
    assert await house.ends() == [(sent.turn_id, "stopped")]


async def test_a_loop_that_swallows_its_cancellation_still_stops(house: House) -> None:
    def factory() -> Loop:
        return _stubborn

    stubborn = house.restart(Loops(factory))
    sent = await stubborn.send("hello")
    await stubborn.until_partial("x")
    await stubborn.registry.stop(ID)
    assert await stubborn.ends() == [(sent.turn_id, "stopped")]


async def _stubborn(context: LoopContext) -> AsyncGenerator[LoopEvent, None]:
    while True:
        yield MessageDelta("x")
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            continue


async def test_a_loop_that_never_lets_go_is_left_behind(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = asyncio.Event()

    async def clinging(context: LoopContext) -> AsyncGenerator[LoopEvent, None]:
        yield MessageDelta("shown")
        while not released.is_set():
            try:
                await released.wait()
            except asyncio.CancelledError:
                continue
        yield MessageEnded((Text("too late"),))

    monkeypatch.setattr("perdure.server.session.actor.GRACE_S", 0.01)
    clung = house.restart(Loops(lambda: clinging))
    sent = await clung.send("hello")
    await clung.until_partial("shown")
    assert (await clung.registry.stop(ID)).stopped
    assert await clung.ends() == [(sent.turn_id, "stopped")]
    assert await clung.texts() == ["hello", "shown"]
    monkeypatch.setattr("perdure.server.session.owner.DYING_S", 0.01)
    await clung.registry.branch(ID, None)
    monkeypatch.setattr("perdure.server.session.owner.DYING_S", 3600)
    async with asyncio.timeout(20):  # what it does not let go of was waited for once
        await clung.registry.branch(ID, sent.message_id)
    released.set()
    await clung.close()
    assert await clung.texts() == ["hello"]


async def test_the_calls_of_a_loop_that_never_lets_go_get_their_results(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = asyncio.Event()

    async def clinging(context: LoopContext) -> AsyncGenerator[LoopEvent, None]:
        yield MessageEnded((ToolCall("c1", "read"),))
        while not released.is_set():
            try:
                await released.wait()
            except asyncio.CancelledError:
                continue

    monkeypatch.setattr("perdure.server.session.actor.GRACE_S", 0.01)
    clung = house.restart(Loops(lambda: clinging))
    await clung.send("hello")
    await clung.until(lambda look: look.last_seq >= 5)
    await clung.registry.stop(ID)
    assert (await clung.types())[-2:] == ["message", "turn_ended"]
    last = (await clung.log())[-2].view
    assert isinstance(last, Message)
    assert last.tool_results[0].interrupted
    released.set()
    await clung.close()
