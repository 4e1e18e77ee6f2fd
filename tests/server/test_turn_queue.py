"""What meets a running turn waits, is refused, steers or interrupts; a held queue goes on."""

from __future__ import annotations

import pytest

from perdure.errors import (
    IdempotencyConflictError,
    MessageRejectedError,
    NothingHeldError,
    QueuedMessageNotFoundError,
    SteeringUnsupportedError,
)
from perdure.fact import TurnStarted
from perdure.testing import Say, scripted_by_message, write_script
from tests.server.house import ID, Gate, House, Loops

HANG = write_script(Say("working", cut="hang"))


async def test_messages_wait_while_a_turn_runs_and_then_run_in_order(house: House) -> None:
    gate = Gate()
    house = house.restart(Loops(gate))
    await house.send("one")
    second = await house.send("two")
    third = await house.send("three")
    assert (second.queued, second.turn_id, third.queued) == (True, None, True)
    look = await house.look()
    assert [each.message_id for each in look.queued] == [second.message_id, third.message_id]
    assert look.queued[0].parts == ({"type": "text", "text": "two"},)
    assert not look.held
    gate.open()
    await house.until(lambda look: look.turn is None and not look.queued)
    texts = await house.texts()
    assert texts == ["one", "one", "two", "two", "three", "three"]
    assert [reason for _, reason in await house.ends()] == ["completed"] * 3
    ids = [stored.id for stored in await house.log()]
    assert second.message_id in ids


async def test_a_message_releases_the_held_ones_and_runs_behind_them(house: House) -> None:
    await house.send(HANG)
    await house.send("held 1")
    await house.send("held 2")
    await house.registry.stop(ID)
    sent = await house.send("new")
    assert sent.queued
    await house.until(lambda look: look.turn is None and not look.queued)
    spoken = (await house.texts())[-6:]
    assert spoken == ["held 1", "held 1", "held 2", "held 2", "new", "new"]


async def test_go_on_runs_the_held_queue(house: House) -> None:
    with pytest.raises(NothingHeldError):
        await house.registry.go_on(ID)
    await house.send(HANG)
    held = await house.send("held")
    await house.registry.stop(ID)
    sent = await house.registry.go_on(ID)
    assert (sent.message_id, sent.queued) == (held.message_id, False)
    await house.until(lambda look: look.turn is None and not look.queued)
    assert (await house.texts())[-2:] == ["held", "held"]
    with pytest.raises(NothingHeldError):
        await house.registry.go_on(ID)


async def test_one_waiting_message_can_be_discarded(house: House) -> None:
    await house.send(HANG)
    one, two = await house.send("one"), await house.send("two")
    await house.registry.discard_queued(ID, one.message_id)
    assert [each.message_id for each in (await house.look()).queued] == [two.message_id]
    with pytest.raises(QueuedMessageNotFoundError):
        await house.registry.discard_queued(ID, one.message_id)


async def test_reject_refuses_while_a_turn_runs_and_runs_otherwise(house: House) -> None:
    sent = await house.send("idle", if_running="reject")
    assert not sent.queued
    await house.rest()
    await house.send(HANG)
    before = len(await house.log())
    with pytest.raises(MessageRejectedError):
        await house.send("no", if_running="reject")
    assert len(await house.log()) == before


async def test_steering_is_refused_by_a_loop_that_takes_in_nothing(house: House) -> None:
    house = house.restart(Loops(lambda: scripted_by_message()))
    await house.send(HANG)
    before = len(await house.log())
    with pytest.raises(SteeringUnsupportedError):
        await house.send("left", if_running="steer")
    assert len(await house.log()) == before


async def test_an_interrupting_message_stops_the_turn_and_runs_before_what_waits(
    house: House,
) -> None:
    first = await house.send(HANG)
    await house.send("waits")
    urgent = await house.send("urgent", if_running="interrupt")
    assert urgent.queued
    await house.until(lambda look: look.turn is None and not look.queued)
    assert (await house.texts())[-4:] == ["urgent", "urgent", "waits", "waits"]
    ends = await house.ends()
    assert ends[0] == (first.turn_id, "stopped")
    assert [reason for _, reason in ends[1:]] == ["completed", "completed"]


async def test_two_interrupting_messages_run_in_the_order_they_came(house: House) -> None:
    await house.send(HANG)
    await house.send("b", if_running="interrupt")
    await house.send("c", if_running="interrupt")
    await house.until(lambda look: look.turn is None and not look.queued)
    texts = [text for text in await house.texts() if text in {"b", "c"}]
    assert texts in (["b", "b", "c", "c"], ["b", "c", "c"])


async def test_a_queued_message_is_answered_as_it_stands(house: House) -> None:
    await house.send(HANG)
    queued = await house.send("later", key="k")
    assert await house.send("later", key="k") == queued
    await house.registry.stop(ID)
    await house.registry.go_on(ID)
    await house.until(lambda look: look.turn is None and not look.queued)
    ran = await house.send("later", key="k")
    assert (ran.message_id, ran.seq, ran.queued) == (queued.message_id, queued.seq, False)
    started = [s.view for s in await house.log() if isinstance(s.view, TurnStarted)]
    assert ran.turn_id == started[-1].turn_id
    with pytest.raises(IdempotencyConflictError):
        await house.send("else", key="k")
