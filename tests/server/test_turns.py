"""A message, its turn, and how a turn ends."""

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
    NothingToResendError,
    SessionNotFoundError,
    TurnRunningError,
)
from perdure.fact import LeafMoved, TurnEnded, TurnStarted
from perdure.loop import Loop, LoopContext, LoopEvent, MessageEnded, MessageStarted
from perdure.testing import Call, Fail, Say, ScriptedLoop, write_script
from tests.server.house import ID, Gate, House, Loops

FAIL_ONCE = write_script(Say("half"), Fail())
HANG = write_script(Say("working", cut="hang"))
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
