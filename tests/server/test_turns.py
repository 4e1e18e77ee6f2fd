"""A message, its turn, the queue behind it, and how a turn ends."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator

import pytest

from perdure.entry import Message, Text, ToolCall
from perdure.errors import (
    AppendRejectedError,
    IdempotencyConflictError,
    LoopError,
    MessageRejectedError,
    NothingHeldError,
    NothingToResendError,
    QueuedMessageNotFoundError,
    SessionNotFoundError,
    SteeringUnsupportedError,
    TurnRunningError,
)
from perdure.fact import LeafMoved, MessageDiscarded, TurnEnded, TurnStarted
from perdure.loop import Loop, LoopContext, LoopEvent, MessageDelta, MessageEnded, MessageStarted
from perdure.testing import Call, Fail, Say, ScriptedLoop, scripted_by_message, write_script
from tests.server.house import ID, Gate, House, Loops

FAIL_ONCE = write_script(Say("half"), Fail())
HANG = write_script(Say("working", cut="hang"))
HANG_IN_A_CALL = write_script(Say("look", calls=[Call("read", output=["one"], hangs=True)]))
FAIL = write_script(Fail("out of luck"))


async def test_a_message_to_an_idle_session_is_one_batch_then_its_turn(house: House) -> None:
    sent = await house.send("hello")
    running = await house.look()
    assert running.status == "running"
    assert running.turn is not None
    assert (running.turn.turn_id, running.turn.message_id) == (sent.turn_id, sent.message_id)
    look = await house.rest()
    assert await house.types() == ["claimed", "turn_started", "message", "message", "turn_ended"]
    assert (await house.log())[sent.seq - 1].id == sent.message_id
    assert (look.status, look.last_seq, look.queued) == ("idle", 5, ())
    assert await house.texts() == ["hello", "hello"]
    assert house.feed.statuses[-2:] == ["running", "idle"]


async def test_every_summary_is_the_fold_of_its_entries(house: House) -> None:
    await house.send(write_script(Say("a", calls=[Call("x", output=["1"])]), Say("b")))
    await house.rest()
    summary = await house.state()
    look = await house.restart().look()
    assert summary.last_seq == look.last_seq == len(await house.log())


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


async def test_a_failed_run_ends_the_turn_failed_with_the_cause(house: House) -> None:
    gate = Gate()
    house = house.restart(Loops(gate))
    sent = await house.send(FAIL)
    await house.send("later")
    gate.open()
    look = await house.rest()
    assert (look.status, look.cause, look.held) == ("failed", "out of luck", True)
    assert look.last_turn is not None
    assert look.last_turn.turn_id == sent.turn_id


async def test_an_error_that_is_not_ours_has_its_name_and_no_trace(house: House) -> None:
    def factory() -> Loop:
        def loop(context: object) -> object:
            raise ZeroDivisionError("by zero")

        return loop  # type: ignore[return-value]  # it raises before it is a loop

    broken = house.restart(Loops(factory))
    await broken.send("hello")
    look = await broken.rest()
    assert look.cause == "ZeroDivisionError: by zero"


async def test_a_loop_that_exits_fails_its_turn_and_not_the_server(house: House) -> None:
    async def loop(context: LoopContext) -> AsyncGenerator[LoopEvent, None]:
        yield MessageStarted()
        if context.purpose == "summary" or (await context.messages())[-1].text == "exit":
            sys.exit(3)
        yield MessageEnded((Text("here"),))

    exiting = house.restart(Loops(lambda: loop))
    for said, status in (("hello", "idle"), ("exit", "failed"), ("hello", "idle")):
        await exiting.send(said)
        assert (await exiting.rest()).status == status
    assert [reason for _, reason in await exiting.ends()] == ["completed", "failed", "completed"]
    with pytest.raises(LoopError, match="SystemExit: 3"):
        await exiting.registry.compact(ID, keep_turns=1)


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


async def test_a_key_makes_sending_idempotent(house: House) -> None:
    first = await house.send("hello", key="k1")
    again = await house.send("hello", key="k1")
    assert again == first
    await house.rest()
    assert await house.send("hello", key="k1") == first
    assert await house.restart().send("hello", key="k1") == first
    with pytest.raises(IdempotencyConflictError):
        await house.send("other", key="k1")
    assert [text for text in await house.texts() if text == "other"] == []
    other = await house.send("hello", key="k2")
    assert other.message_id != first.message_id


async def test_many_at_once_with_one_key_are_one_message(house: House) -> None:
    answers = await asyncio.gather(*(house.send("hello", key="k") for _ in range(5)))
    assert len({(each.message_id, each.seq) for each in answers}) == 1
    await house.rest()
    assert await house.texts() == ["hello", "hello"]


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


async def test_a_loop_that_cannot_start_leaves_the_session_as_it_was(house: House) -> None:
    def factory() -> Loop:
        raise OSError("no such program")

    broken = house.restart(Loops(factory))
    with pytest.raises(LoopError, match="no such program"):
        await broken.send("hello")
    assert await broken.types() == ["claimed"]
    assert (await broken.look()).status == "idle"


async def test_a_waiting_message_whose_loop_cannot_start_fails_visibly(house: House) -> None:
    made: list[int] = []
    gate = Gate()

    def factory() -> Loop:
        made.append(1)
        if len(made) == 2:
            raise OSError("no such program")
        return gate()

    broken = house.restart(Loops(factory))
    await broken.send("a")
    await broken.send("b")
    await broken.send("c")
    gate.open()
    look = await broken.until(lambda look: look.status == "failed")
    assert "no such program" in (look.cause or "")
    assert look.held
    assert [reason for _, reason in await broken.ends()] == ["completed", "failed"]


async def test_resend_moves_the_leaf_to_the_input_and_names_what_it_resends(house: House) -> None:
    with pytest.raises(NothingToResendError):
        await house.registry.resend(ID)
    failing = house.restart(Loops(ScriptedLoop([Say("half"), Fail()], [Say("whole")])))
    sent = await failing.send("question")
    await failing.rest()
    assert await failing.texts() == ["question", "half"]
    again = await failing.registry.resend(ID)
    assert (again.message_id, again.queued) == (sent.message_id, False)
    await failing.rest()
    assert await failing.texts() == ["question", "whole"]
    views = [s.view for s in await failing.log()]
    started = [view for view in views if isinstance(view, TurnStarted)]
    assert (started[-1].resends, started[-1].turn_id) == (sent.turn_id, again.turn_id)
    assert [view.leaf_id for view in views if isinstance(view, LeafMoved)] == [sent.message_id]
    with pytest.raises(NothingToResendError):
        await failing.registry.resend(ID)


async def test_resend_and_go_on_are_refused_while_a_turn_runs(house: House) -> None:
    await house.send(HANG)
    for verb in (house.registry.resend, house.registry.go_on):
        with pytest.raises(TurnRunningError):
            await verb(ID)
    with pytest.raises(TurnRunningError):
        await house.registry.branch(ID, None)
    with pytest.raises(TurnRunningError):
        await house.registry.compact(ID)


async def test_open_calls_are_repaired_in_the_batch_of_the_next_message(house: House) -> None:
    call = Message("assistant", (ToolCall("c1", "read"),))
    await house.store.append_entries(ID, [call])
    await house.send("hello")
    await house.rest()
    roles = [s.view.role for s in await house.log() if isinstance(s.view, Message)]
    assert roles == ["assistant", "tool", "user", "assistant"]


async def test_the_model_sees_the_path_up_to_the_input(house: House) -> None:
    loop = ScriptedLoop([Say("one")], [Say("two")])
    other = house.restart(Loops(loop))
    await other.send("a")
    await other.rest()
    await other.send("b")
    await other.rest()
    assert [[m.text for m in view] for view in loop.views] == [["a"], ["a", "one", "b"]]


async def test_deltas_and_partials_agree(house: House) -> None:
    sent = await house.send(write_script(Say("abcdef", delta_chars=2, cut="hang")))
    await house.until_partial("abcdef")
    updates = [update for _, turn_id, update in house.feed.deltas if turn_id == sent.turn_id]
    assert [(update.offset, update.text) for update in updates] == [(0, "ab"), (2, "cd"), (4, "ef")]
    (partial,) = house.registry.partials(ID)
    assert (partial.message_id, partial.turn_id) == (updates[0].message_id, sent.turn_id)
    await house.registry.stop(ID)
    assert partial.message_id in [stored.id for stored in await house.log()]


async def test_a_message_of_no_parts_or_of_a_models_parts_is_refused(house: House) -> None:
    for parts in ([], [ToolCall("c", "x")]):
        with pytest.raises(AppendRejectedError):
            await house.registry.send(ID, parts)
    with pytest.raises(SessionNotFoundError):
        await house.registry.send("nowhere", [Text("hello")])
    assert (await house.look()).status == "idle"


async def test_a_caller_that_leaves_does_not_split_a_send(house: House) -> None:
    caller = asyncio.create_task(house.send("hello", key="k"))
    await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    await house.send("hello", key="k")
    await house.rest()
    assert await house.texts() == ["hello", "hello"]


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


async def test_each_turn_has_one_end(house: House) -> None:
    for text in ("one", FAIL, HANG):
        await house.send(text)
        await house.registry.stop(ID)
    await house.until(lambda look: look.turn is None)
    views = [s.view for s in await house.log()]
    started = [view.turn_id for view in views if isinstance(view, TurnStarted)]
    ended = [view.turn_id for view in views if isinstance(view, TurnEnded)]
    assert sorted(started) == sorted(ended)


async def test_a_turn_that_is_named_is_sent_again_once_and_only_if_it_is_the_last(
    house: House,
) -> None:
    first = await house.send(FAIL_ONCE)
    await house.rest()
    again = await house.registry.resend(ID, first.turn_id)
    await house.rest()
    assert await house.registry.resend(ID, first.turn_id) == again
    await house.send("on we go")
    await house.rest()
    assert await house.registry.resend(ID, first.turn_id) == again
    before = len(await house.log())
    with pytest.raises(NothingToResendError):
        await house.registry.resend(ID, "another")
    assert len(await house.log()) == before
