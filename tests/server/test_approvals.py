from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import cast

import pytest

from perdure import clock
from perdure.entry import ToolCall, ToolResult
from perdure.errors import (
    ApprovalAnsweredError,
    ApprovalNotFoundError,
    MessageRejectedError,
    StoreUnavailableError,
    TurnRunningError,
)
from perdure.fact import ApprovalAnswered, ApprovalRequested, ToolDispatched
from perdure.loop import CallWaits, MessageEnded, ToolDelta, ToolStarted
from perdure.server.config import Settings
from perdure.server.journal import JournalStore
from perdure.server.service import open_service
from perdure.server.session.expiry import AGAIN_S, Expiry
from perdure.server.session.limit import Limits
from perdure.server.session.registry import Registry
from perdure.testing import Call, ManualClock, Say, write_script
from perdure.tree import Tree
from perdure.view import model_view
from tests.server.careful import Careful
from tests.server.house import ID, Feed, House, Loops
from tests.server.test_store_failure import Refusing
from tests.unit.checks import check_model_view
from tests.unit.looping import factory


@pytest.fixture
async def house(store: JournalStore) -> AsyncIterator[House]:
    house = House(store, surroundings=Careful())
    await house.create()
    yield house
    await house.close()


ONE = write_script(
    Say("I will pay.", calls=[Call("careful_pay", {"sum": 5}, result="paid", call_id="c1")]),
    Say("Done."),
)
TWO = write_script(
    Say(
        "Both.",
        calls=[
            Call("careful_a", {"n": 1}, result="a", call_id="a"),
            Call("free", result="free", call_id="f"),
            Call("careful_b", {"n": 2}, result="b", call_id="b"),
        ],
    ),
    Say("Done."),
)


async def waiting(house: House) -> None:
    await house.until(lambda look: look.status == "waiting")


async def results(house: House) -> dict[str, ToolResult]:
    entries = await house.log()
    tree = Tree(entries)
    view = model_view(tree.path(tree.leaf_id))
    check_model_view(view)
    return {each.call_id: each for message in view for each in message.tool_results}


async def test_a_call_that_needs_one_waits_and_holds_nothing_alive(house: House) -> None:
    sent = await house.send(ONE)
    await waiting(house)
    look = await house.look()
    assert look.turn is not None
    assert look.turn.turn_id == sent.turn_id
    (asked,) = look.approvals
    assert (asked.call_id, asked.name, asked.arguments) == ("c1", "careful_pay", {"sum": 5})
    assert asked.reason == "careful_pay costs money"
    actor = house.registry._roster.get(ID)
    assert actor is not None
    await house.until(lambda _: actor.is_at_rest)
    assert await house.ends() == []
    careful = house.surroundings
    assert isinstance(careful, Careful)
    told = careful.told
    await house.until(lambda _: bool(told))
    assert told == [["careful_pay"]]


async def test_a_yes_resumes_the_same_turn_with_the_same_key(house: House) -> None:
    sent = await house.send(ONE)
    await waiting(house)
    await house.registry.answer(ID, "c1", approve=True)
    await house.rest()
    assert await house.ends() == [(sent.turn_id, "completed")]
    assert (await house.texts())[-2:] == ["I will pay.", "Done."]
    assert (await results(house))["c1"].text == "paid"
    dispatched = [e.view for e in await house.log() if isinstance(e.view, ToolDispatched)]
    assert len(dispatched) == 1


async def test_a_no_is_a_result_that_the_model_reads(house: House) -> None:
    await house.send(ONE)
    await waiting(house)
    await house.registry.answer(ID, "c1", approve=False, reason="too dear")
    await house.rest()
    result = (await results(house))["c1"]
    assert result.is_error
    assert "too dear" in result.text


async def test_the_others_of_a_batch_run_and_the_turn_goes_on_with_the_last_answer(
    house: House,
) -> None:
    await house.send(TWO)
    await waiting(house)
    assert {each.call_id for each in (await house.look()).approvals} == {"a", "b"}
    await house.registry.answer(ID, "b", approve=False)
    look = await house.look()
    assert look.status == "waiting"
    assert [each.call_id for each in look.approvals] == ["a"]
    await house.registry.answer(ID, "a", approve=True)
    await house.rest()
    found = await results(house)
    assert (found["a"].text, found["f"].text, found["b"].is_error) == ("a", "free", True)


async def test_it_survives_a_restart_and_an_answer_wakes_it(house: House) -> None:
    sent = await house.send(ONE)
    await waiting(house)
    await house.registry.close()
    house = house.restart()
    look = await house.look()
    assert (look.status, len(look.approvals)) == ("waiting", 1)
    assert house.registry.live_actors == 0
    await house.registry.answer(ID, "c1", approve=True)
    await house.rest()
    assert await house.ends() == [(sent.turn_id, "completed")]


async def test_a_server_that_dies_in_the_resumed_run_interrupts_the_turn(house: House) -> None:
    script = write_script(Say("x", calls=[Call("careful", hangs=True, call_id="c1")]))
    sent = await house.send(script)
    await waiting(house)
    await house.registry.answer(ID, "c1", approve=True)
    await house.until(lambda look: look.status == "running")
    other = house.restart()  # as after kill -9: nothing was closed
    assert (await other.look()).status == "interrupted"
    await other.registry.resend(ID)
    await other.until(lambda look: look.status == "waiting")
    assert (await other.ends())[0] == (sent.turn_id, "interrupted")
    assert (await results(other))["c1"].interrupted


async def test_the_same_answer_again_does_nothing_and_another_is_refused(house: House) -> None:
    await house.send(TWO)
    await waiting(house)
    await house.registry.answer(ID, "a", approve=True)
    before = len(await house.log())
    await house.registry.answer(ID, "a", approve=True)
    with pytest.raises(ApprovalAnsweredError):
        await house.registry.answer(ID, "a", approve=False)
    with pytest.raises(ApprovalNotFoundError):
        await house.registry.answer(ID, "f", approve=True)
    with pytest.raises(ApprovalNotFoundError):
        await house.registry.answer(ID, "nobody", approve=True)
    assert len(await house.log()) == before


async def test_a_stop_ends_a_turn_that_waits_and_its_calls_were_not_made(house: House) -> None:
    sent = await house.send(ONE)
    await waiting(house)
    stopped = await house.registry.stop(ID)
    assert (stopped.stopped, stopped.turn_id) == (True, sent.turn_id)
    assert (await house.look()).status == "idle"
    result = (await results(house))["c1"]
    assert result.interrupted
    assert "not made" in result.text
    with pytest.raises(ApprovalNotFoundError):
        await house.registry.answer(ID, "c1", approve=True)


async def test_messages_meet_a_turn_that_waits_as_they_meet_one_that_runs(house: House) -> None:
    sent = await house.send(ONE)
    await waiting(house)
    queued = await house.send("later")
    assert queued.queued
    with pytest.raises(MessageRejectedError):
        await house.send("no", if_running="reject")
    with pytest.raises(TurnRunningError):
        await house.registry.branch(ID, None)
    await house.send("now", if_running="interrupt")
    await house.until(lambda look: look.turn is None and not look.queued)
    ends = await house.ends()
    assert ends[0] == (sent.turn_id, "stopped")
    assert [reason for _, reason in ends[1:]] == ["completed", "completed"]
    assert (await house.texts())[-4:] == ["now", "now", "later", "later"]


async def test_the_queue_goes_on_once_a_turn_that_waited_completes(house: House) -> None:
    await house.send(ONE)
    await waiting(house)
    await house.send("later")
    await house.registry.answer(ID, "c1", approve=True)
    await house.until(lambda look: look.turn is None and not look.queued)
    assert (await house.texts())[-2:] == ["later", "later"]


async def test_other_arguments_take_the_place_of_the_calls_own(house: House) -> None:
    await house.send(ONE)
    await waiting(house)
    await house.registry.answer(ID, "c1", approve=True, arguments={"sum": 1})
    await house.rest()
    (fact,) = [e.view for e in await house.log() if isinstance(e.view, ApprovalAnswered)]
    assert fact.arguments == {"sum": 1}


async def test_a_fork_of_a_session_that_waits_is_valid_at_once(house: House) -> None:
    await house.send(ONE)
    await waiting(house)
    await house.registry.fork(ID, "child")
    entries = await house.store.load_entries("child")
    tree = Tree(entries)
    view = model_view(tree.path(tree.leaf_id))
    check_model_view(view)
    child = await house.registry.look("child")
    assert (child.status, child.approvals) == ("idle", ())


async def test_a_session_that_waits_is_offloaded(house: House) -> None:
    limits = Limits(max_live_actors=1)
    house = house.restart(limits=limits)
    await house.send(ONE)
    await waiting(house)
    await house.registry.create("other")
    await house.registry.reopen("other")
    await house.until(lambda _: house.registry._roster.get(ID) is None)
    await house.registry.answer(ID, "c1", approve=True)
    await house.rest()
    assert (await results(house))["c1"].text == "paid"


async def test_big_arguments_are_whole_in_the_entry_that_the_look_names(house: House) -> None:
    script = write_script(Say("x", calls=[Call("careful", {"text": "x" * 5000}, call_id="c1")]))
    await house.send(script)
    await waiting(house)
    (asked,) = (await house.look()).approvals
    assert (asked.arguments, asked.elided) == (None, True)
    stored = await house.registry.entry(ID, asked.seq)
    assert isinstance(stored.view, ApprovalRequested)
    assert stored.view.arguments == {"text": "x" * 5000}


async def test_a_run_can_ask_in_its_middle_and_go_on(house: House) -> None:
    script = write_script(
        Say("x", calls=[Call("pay", {"n": 1}, result="paid", asks=True, call_id="c1")]), Say("end")
    )
    sent = await house.send(script)
    await waiting(house)
    (asked,) = (await house.look()).approvals
    await house.registry.answer(ID, asked.call_id, approve=True)
    await house.rest()
    assert await house.ends() == [(sent.turn_id, "completed")]
    assert (await results(house))["c1"].text == "paid"


async def test_a_run_that_asks_in_its_middle_is_interrupted_by_a_crash(house: House) -> None:
    await house.send(write_script(Say("x", calls=[Call("pay", asks=True, call_id="c1")])))
    await waiting(house)
    other = house.restart()
    look = await other.look()
    assert (look.status, look.approvals) == ("interrupted", ())


async def test_a_call_that_nobody_approves_in_time_is_refused_also_after_a_restart(
    store: JournalStore,
) -> None:
    manual = ManualClock()
    with clock.use(manual):
        limits = Limits(approval_limit_s=60)
        house = House(store, surroundings=Careful(), limits=limits)
        await house.create()
        await house.send(ONE)
        await waiting(house)
        await house.registry.close()
        feed = Feed()
        expiry = Expiry(feed)
        registry = Registry(
            store, house.loops, expiry, limits=limits, surroundings=house.surroundings
        )
        house.registry = registry
        async with expiry.running(registry):
            await asyncio.sleep(0.05)
            await manual.advance(59)
            assert (await house.look()).status == "waiting"
            await manual.advance(2)
            await house.rest()
        assert "nobody answered in time" in (await results(house))["c1"].text
        await house.close()


async def test_a_call_that_expires_while_the_store_refuses_is_refused_later(
    store: JournalStore,
) -> None:
    manual = ManualClock()
    with clock.use(manual):
        limits = Limits(approval_limit_s=60)
        house = House(store, surroundings=Careful(), limits=limits)
        await house.create()
        await house.send(ONE)
        await waiting(house)
        await house.registry.close()
        refusing = Refusing(store)
        refusing.fails = lambda n: StoreUnavailableError("the disk is full")
        expiry = Expiry(Feed())
        house.registry = Registry(
            cast("JournalStore", refusing),
            house.loops,
            expiry,
            limits=limits,
            surroundings=house.surroundings,
        )
        async with expiry.running(house.registry):
            await asyncio.sleep(0.05)
            await manual.advance(61)
            await asyncio.sleep(0.1)
            assert 0 < refusing.appends < 5
            assert len(expiry._due) == 1
            refusing.fails = lambda n: None
            await manual.advance(AGAIN_S + 1)
            await house.rest()
        assert "nobody answered in time" in (await results(house))["c1"].text
        await house.close()


async def test_a_turn_that_waits_does_not_hold_up_a_shutdown(store: JournalStore) -> None:
    settings = Settings(approve=("careful*",), grace_s=600)
    async with open_service(settings, store, Loops()) as service:
        house = House(store)
        house.registry = service.registry
        await house.create()
        await house.send(ONE)
        await waiting(house)
        await house.until(lambda _: service.observer.running == 0)
        async with asyncio.timeout(10):
            await service.drain()
    assert (await House(store).look()).status == "waiting"


async def test_a_stop_while_others_run_says_that_a_call_that_waits_was_not_made(
    store: JournalStore,
) -> None:
    both = MessageEnded([ToolCall("w", "careful", {}), ToolCall("r", "runs", {})])
    running = factory(
        both, CallWaits("w"), ToolStarted("r"), ToolDelta("r", "so far"), asyncio.Event().wait
    )
    house = House(store, Loops(running))
    await house.create()
    await house.send("go")
    await house.until_partial("so far")
    await house.registry.stop(ID)
    await house.rest()
    found = await results(house)
    await house.close()
    assert "waited for an approval, and was not made" in found["w"].text
    assert "may have had effects" in found["r"].text
    assert "may have had effects" not in found["w"].text
