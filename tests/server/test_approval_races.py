"""Approvals where they meet something else at the same instant, or meet themselves again."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from perdure import clock
from perdure.entry import Text, ToolCall, ToolResult
from perdure.errors import ApprovalAnsweredError, ApprovalNotFoundError, StoreUnavailableError
from perdure.fact import ApprovalAnswered
from perdure.loop import (
    CallWaits,
    LoopContext,
    LoopEvent,
    MessageEnded,
    ToolEnded,
    Verdict,
)
from perdure.server.journal import JournalStore
from perdure.server.session.expiry import Expiry
from perdure.server.session.limit import Limits
from perdure.server.session.registry import Registry
from perdure.server.session.surroundings import Scope
from perdure.testing import Call, Listen, ManualClock, Say, Wait, write_script
from perdure.tree import Tree
from perdure.view import model_view
from tests.server.careful import Careful
from tests.server.house import ID, Feed, House, Loops
from tests.server.test_approvals import ONE, TWO, results, waiting


class Gated(Careful):
    """Its verdict comes when the gate is open; what it says of a call is said then."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.gate.set()
        self.asked = asyncio.Event()
        self.says: list[str] = []

    async def permit(self, scope: Scope, call: ToolCall, /) -> Verdict:
        self.asked.set()
        await self.gate.wait()
        scope.say(self.says)
        return await super().permit(scope, call)


@pytest.fixture
async def gated() -> Gated:
    return Gated()


@pytest.fixture
async def house(store: JournalStore, gated: Gated) -> AsyncIterator[House]:
    house = House(store, surroundings=gated)
    await house.create()
    yield house
    await house.close()


async def hold(house: House) -> Callable[[], Awaitable[None]]:
    """Keeps the session's mailbox busy until what this returns is called."""
    actor = house.registry._roster.get(ID)
    assert actor is not None
    let_go = asyncio.Event()
    entered = asyncio.Event()

    async def step() -> None:
        entered.set()
        await let_go.wait()

    task = asyncio.create_task(actor._mailbox.do(step))
    await entered.wait()

    async def release() -> None:
        let_go.set()
        await task

    return release


async def test_a_stop_that_meets_a_run_which_starts_to_wait_ends_the_turn_stopped(
    house: House, gated: Gated
) -> None:
    gated.gate.clear()
    sent = await house.send(ONE)
    await gated.asked.wait()
    release = await hold(house)
    actor = house.registry._roster.get(ID)
    assert actor is not None
    assert actor.turn is not None
    run = actor.turn.task
    stopping = asyncio.create_task(house.registry.stop(ID))
    await asyncio.sleep(0)
    gated.gate.set()
    await asyncio.wait([run])
    await release()
    assert (await stopping).stopped
    assert await house.ends() == [(sent.turn_id, "stopped")]
    result = (await results(house))["c1"]
    assert result.interrupted
    assert "was not made" in result.text


async def test_a_call_id_that_a_model_uses_again_in_one_turn_waits_again(house: House) -> None:
    pay = Call("careful_pay", {"sum": 5}, result="paid", call_id="c1")
    sent = await house.send(
        write_script(Say("One.", calls=[pay]), Say("Two.", calls=[pay]), Say("End."))
    )
    await waiting(house)
    await house.registry.answer(ID, "c1", approve=True)
    await waiting(house)
    await house.registry.answer(ID, "c1", approve=False)
    await house.rest()
    assert await house.ends() == [(sent.turn_id, "completed")]
    answers = [e.view.approve for e in await house.log() if isinstance(e.view, ApprovalAnswered)]
    assert answers == [True, False]


async def test_another_answer_is_refused_where_only_its_arguments_are_other(house: House) -> None:
    await house.send(TWO)
    await waiting(house)
    await house.registry.answer(ID, "a", approve=True, arguments={"n": 7})
    await house.registry.answer(ID, "a", approve=True, arguments={"n": 7})
    with pytest.raises(ApprovalAnsweredError):
        await house.registry.answer(ID, "a", approve=True, arguments={"n": 8})
    with pytest.raises(ApprovalAnsweredError):
        await house.registry.answer(ID, "a", approve=True)


async def test_what_hooks_said_before_the_wait_is_read_by_the_model_after_it(
    house: House, gated: Gated
) -> None:
    gated.says = ["mind the budget"]
    await house.send(ONE)
    await waiting(house)
    gated.says = []
    await house.registry.answer(ID, "c1", approve=True)
    await house.rest()
    tree = Tree(await house.log())
    texts = [m.text for m in model_view(tree.path(tree.leaf_id))]
    assert "mind the budget" in texts


async def test_a_call_id_with_a_lone_surrogate_waits_and_is_answered(house: House) -> None:
    async def loop(context: LoopContext) -> AsyncGenerator[LoopEvent, None]:
        for call_id in list(context.answers):
            yield ToolEnded(ToolResult(call_id, (Text("done"),)))
            return
        yield MessageEnded([Text("x"), ToolCall("a\ud800", "careful", {})])
        yield CallWaits("a\ud800")

    house = house.restart(loops=Loops(lambda: loop))
    sent = await house.send("x")
    await waiting(house)
    (asked,) = (await house.look()).approvals
    await house.registry.answer(ID, asked.call_id, approve=True)
    await house.rest()
    assert await house.ends() == [(sent.turn_id, "completed")]


async def test_a_message_that_is_discarded_while_it_joins_fails_nothing(
    house: House,
) -> None:
    sent = await house.send(write_script(Wait(0.02), Listen()))
    steered = await house.send("left", if_running="steer")
    release = await hold(house)
    discarding = asyncio.create_task(house.registry.discard_queued(ID, steered.message_id))
    await asyncio.sleep(0.1)
    await release()
    await discarding
    assert (await house.look()).status == "running"
    await house.send("right", if_running="steer")
    await house.rest()
    assert await house.ends() == [(sent.turn_id, "completed")]
    assert (await house.texts())[-1] == "right"


async def test_a_question_in_mid_run_that_its_run_gave_up_is_withdrawn_and_holds_up_no_answer(
    house: House,
) -> None:
    async def loop(context: LoopContext) -> AsyncGenerator[LoopEvent, None]:
        for call_id in list(context.answers):
            yield ToolEnded(ToolResult(call_id, (Text("done"),)))
            return
        calls = [ToolCall("a", "quick", {}), ToolCall("b", "careful", {})]
        yield MessageEnded([Text("x"), *calls])
        asking = asyncio.create_task(context.ask(calls[0]))
        await house.until(lambda look: bool(look.approvals))
        asking.cancel()
        yield ToolEnded(ToolResult("a", (Text("nobody answered"),)))
        yield CallWaits("b")

    house = house.restart(loops=Loops(lambda: loop))
    sent = await house.send("x")
    await house.until(lambda look: [each.call_id for each in look.approvals] == ["b"])
    with pytest.raises(ApprovalNotFoundError):
        await house.registry.answer(ID, "a", approve=True)
    await house.registry.answer(ID, "b", approve=True)
    await house.rest()
    assert await house.ends() == [(sent.turn_id, "completed")]


async def test_a_limit_of_an_earlier_request_does_not_refuse_a_later_one(
    store: JournalStore,
) -> None:
    manual = ManualClock()
    with clock.use(manual):
        expiry = Expiry(Feed())
        registry = Registry(
            store, Loops(), expiry, limits=Limits(approval_limit_s=60), surroundings=Careful()
        )
        house = House(store, surroundings=Careful())
        house.registry = registry
        async with expiry.running(registry):
            await house.create()
            await house.send(ONE)
            await waiting(house)
            await manual.advance(40)
            await registry.answer(ID, "c1", approve=True)
            await house.rest()
            await house.send(ONE)
            await waiting(house)
            await manual.advance(30)
            for _ in range(50):
                await asyncio.sleep(0)
            assert (await house.look()).status == "waiting"
            await manual.advance(31)
            await house.rest()
        await registry.close()


async def test_a_resumed_run_reads_what_was_said_behind_its_calls_once_they_have_results(
    house: House, gated: Gated
) -> None:
    before: list[list[str]] = []
    joined: list[list[str]] = []

    async def loop(context: LoopContext) -> AsyncGenerator[LoopEvent, None]:
        if not context.answers:
            yield MessageEnded([Text("x"), ToolCall("a", "careful", {})])
            await context.permit(ToolCall("a", "careful", {}))
            yield CallWaits("a")
            return
        before.append([message.text for message in await context.messages()])
        yield ToolEnded(ToolResult("a", (Text("done"),)))
        joined.append([message.text for message in await context.joined()])
        joined.append([message.text for message in await context.joined()])

    house = house.restart(loops=Loops(lambda: loop))
    gated.says = ["one", "two"]
    await house.send("go")
    await waiting(house)
    house = house.restart()  # whoever resumes it may be another server
    await house.registry.answer(ID, "a", approve=True)
    await house.rest()
    assert (before, joined) == ([["go", "x"]], [["one", "two"], []])
    tree = Tree(await house.log())
    view = [message.text for message in model_view(tree.path(tree.leaf_id))]
    assert view == ["go", "x", "", "one", "two"]


class EndsOnce:
    """A store that cannot store a turn's end, once."""

    def __init__(self, store: JournalStore) -> None:
        self._store = store
        self.is_ill = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def append_entries(self, session_id: str, entries: Any, **options: Any) -> Any:
        if self.is_ill and any(entry.type == "turn_ended" for entry in entries):
            self.is_ill = False
            raise StoreUnavailableError("the disk is full")
        return await self._store.append_entries(session_id, entries, **options)


@pytest.mark.parametrize("key", ["k", None])
async def test_a_message_that_interrupts_a_wait_does_so_when_it_is_decided_again(
    store: JournalStore, key: str | None
) -> None:
    house = House(EndsOnce(store), surroundings=Careful())
    await house.create()
    sent = await house.send(ONE)
    await waiting(house)
    with contextlib.suppress(StoreUnavailableError):
        await house.send("now", key=key, if_running="interrupt")
    if key is not None:
        await house.send("now", key=key, if_running="interrupt")
    await house.until(lambda look: look.turn is None and not look.queued)
    assert (await house.ends())[0] == (sent.turn_id, "stopped")
    assert (await house.texts())[-2:] == ["now", "now"]
    await house.close()


async def test_a_session_stays_in_memory_until_people_are_told_that_it_waits(
    house: House, gated: Gated
) -> None:
    gated.gate.clear()
    await house.send(ONE)
    await gated.asked.wait()
    release = await hold(house)
    actor = house.registry._roster.get(ID)
    assert actor is not None
    assert actor.turn is not None
    run = actor.turn.task
    gated.gate.set()
    await asyncio.wait([run])
    await asyncio.sleep(0)
    leaving = asyncio.create_task(actor.offload(lambda: True))  # right behind the rest
    await asyncio.sleep(0)
    await release()
    assert not await leaving
    await house.until(lambda _: bool(gated.told))
    await house.until(lambda _: actor.is_at_rest)
    assert await actor.offload(lambda: True)
