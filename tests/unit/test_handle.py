"""The handle of a run: however it is used or left, nothing leaks and the agent agrees."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Awaitable, Callable

import pytest

import perdure
from perdure import DurableAgent, Run, RunEndedError
from perdure.events import RunEvent
from perdure.handle import MAX_UNREAD_EVENTS
from perdure.loop import MessageDelta
from tests.unit.checks import check_agrees, check_at_rest, said
from tests.unit.looping import Probe, SlowStore, answer, factory


async def opened() -> tuple[DurableAgent, Probe, SlowStore]:
    probe, store = Probe(), SlowStore()
    return await perdure.open("s", probe, store=store), probe, store


async def check_goes_on(agent: DurableAgent, probe: Probe, store: SlowStore) -> None:
    """The next verb waits for the ending run; then all is quiet, agrees, and runs again."""
    await agent.append("next")
    assert probe.is_quiet
    check_at_rest(agent)
    await check_agrees(agent, store)
    await agent.run("again")
    assert said(agent.messages())[-1] == "done"
    await check_agrees(agent, store)


async def test_nothing_happens_until_it_is_awaited_iterated_or_entered() -> None:
    agent, probe, store = await opened()
    run = agent.run("hi")
    await asyncio.sleep(0)
    assert await store.load_entries("s") == ()
    del run
    gc.collect()
    await check_goes_on(agent, probe, store)


async def test_awaiting_gives_the_messages_that_it_added_each_time() -> None:
    agent, _, _ = await opened()
    run = agent.run("hi")
    messages = await run
    assert [message.role for message in messages] == ["assistant", "tool", "tool", "assistant"]
    assert await run is messages
    assert [message.id for message in messages] == [
        each.id for each in agent.transcript() if each.id != agent.entries()[0].id
    ]


async def test_it_can_be_awaited_while_it_is_iterated() -> None:
    agent, _, _ = await opened()
    run = agent.run("hi")
    types = []
    async for event in run:
        types.append(event.type)
        if event.type == "message_start":
            assert len(await run) == 4
    assert types[0] == "agent_start"
    assert types[-1] == "agent_end"
    assert len(types) == 15


async def test_two_tasks_can_wait_for_it() -> None:
    agent, _, _ = await opened()
    run = agent.run("hi")

    async def wait() -> int:
        return len(await run)

    assert list(await asyncio.gather(wait(), wait())) == [4, 4]


async def test_it_can_be_iterated_once() -> None:
    agent, _, _ = await opened()
    run = agent.run("hi")
    events = aiter(run)
    with pytest.raises(RuntimeError, match="once"):
        aiter(run)
    assert (await anext(events)).type == "agent_start"
    assert len([event async for event in events]) == 14
    with pytest.raises(StopAsyncIteration):
        await anext(events)


async def test_iterating_over_a_run_that_is_over_says_how_it_ended() -> None:
    agent, probe, store = await opened()
    run = agent.run("hi")
    assert [event.type async for event in run][-1] == "agent_end"
    assert [event async for event in run] == []
    run = agent.run("left")
    async for event in run:
        if event.type == "message_update":
            break
    for _ in range(2):
        with pytest.raises(RunEndedError):
            [event async for event in run]
    await check_goes_on(agent, probe, store)


async def test_a_run_that_failed_raises_from_each_iteration() -> None:
    loop = factory(MessageDelta("so"), ValueError("far"))
    run = (await perdure.open("s", loop)).run("hi")
    for _ in range(2):
        with pytest.raises(ValueError, match="far"):
            [event async for event in run]


async def test_a_run_that_was_entered_keeps_its_first_events() -> None:
    agent, _, _ = await opened()
    async with agent.run("hi") as run:
        for _ in range(50):
            await asyncio.sleep(0)
        assert len([event async for event in run]) == 15


async def test_leaving_the_block_ends_it() -> None:
    agent, probe, store = await opened()
    async with agent.run("hi") as run:
        async for event in run:
            if event.type == "tool_start":
                assert not probe.is_quiet
                break
    assert probe.is_quiet
    with pytest.raises(RunEndedError):
        await run
    await check_goes_on(agent, probe, store)


async def test_an_exception_in_the_block_ends_it_and_comes_out() -> None:
    agent, probe, store = await opened()

    async def raise_in_the_block() -> None:
        async with agent.run("hi") as run:
            async for event in run:
                if event.type == "message_update":
                    raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await raise_in_the_block()
    assert probe.is_quiet
    await check_goes_on(agent, probe, store)


@pytest.mark.parametrize("at", range(15))
async def test_a_break_at_any_event_ends_it(at: int) -> None:
    agent, probe, store = await opened()
    run = agent.run("hi")
    count = 0
    async for _ in run:
        if count == at:
            break
        count += 1
    if at < 14:
        with pytest.raises(RunEndedError):
            await run
    else:
        assert len(await run) == 4
    await check_goes_on(agent, probe, store)


async def test_an_exception_in_the_iterations_body_ends_it() -> None:
    agent, probe, store = await opened()

    async def raise_in_the_body() -> None:
        async for event in agent.run("hi"):
            if event.type == "tool_start":
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await raise_in_the_body()
    await check_goes_on(agent, probe, store)


async def test_an_iterator_that_is_dropped_before_its_first_event_ends_it() -> None:
    agent, probe, store = await opened()
    run = agent.run("hi")
    events = aiter(run)
    del events
    with pytest.raises(RunEndedError):
        await run
    assert await store.load_entries("s") == ()
    await check_goes_on(agent, probe, store)


async def test_an_iterator_can_be_dropped_by_another_thread() -> None:
    agent, probe, store = await opened()
    run = agent.run("hi")
    held = [aiter(run)]
    await anext(held[0])
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    with pytest.raises(RunEndedError):
        await run
    await check_goes_on(agent, probe, store)


async def test_an_iterator_in_a_cycle_is_dropped_by_the_collector() -> None:
    agent, probe, store = await opened()
    cycle: list[object] = [aiter(agent.run("hi"))]
    await anext(cycle[0])  # type: ignore[call-overload]
    cycle.append(cycle)
    del cycle
    gc.collect()
    await check_goes_on(agent, probe, store)


def test_an_iterator_can_outlive_its_event_loop() -> None:
    held: list[object] = []

    async def main() -> None:
        agent, _, _ = await opened()
        run = agent.run("hi")
        held.append(aiter(run))
        await run

    asyncio.run(main())
    held.clear()
    gc.collect()


def test_iterating_outside_an_event_loop_is_an_error_and_harms_nothing() -> None:
    async def main() -> Run:
        agent, _, _ = await opened()
        return agent.run("hi")

    run = asyncio.run(main())
    with pytest.raises(RuntimeError):
        aiter(run)
    gc.collect()


async def test_closing_the_iterator_waits_for_the_end() -> None:
    agent, probe, store = await opened()
    events = aiter(agent.run("hi"))
    async for event in events:
        if event.type == "tool_start":
            break
    await events.aclose()  # type: ignore[attr-defined]  # as of any asynchronous iterator
    assert probe.is_quiet
    await check_goes_on(agent, probe, store)


async def test_a_slow_consumer_holds_the_run_back_and_awaiting_lets_it_go() -> None:
    deltas = [MessageDelta("x") for _ in range(4 * MAX_UNREAD_EVENTS)]
    ahead: list[int] = []
    agent = await perdure.open("s", factory(*deltas, lambda: ahead.append(1), answer("whole")))
    run = agent.run("hi")
    events = aiter(run)
    await anext(events)
    for _ in range(10 * MAX_UNREAD_EVENTS):
        await asyncio.sleep(0)
    assert not ahead
    await run
    assert ahead
    assert len([event async for event in events]) == len(deltas) + 3


async def test_a_run_that_fails_with_nobody_waiting_is_quiet() -> None:
    agent = await perdure.open("s", factory(MessageDelta("x"), ZeroDivisionError()))
    run = agent.run("hi")
    events = aiter(run)
    await anext(events)
    for _ in range(20):
        await asyncio.sleep(0)
    del events, run
    gc.collect()
    await agent.append("next")
    assert said(agent.messages()) == ["hi", "x", "next"]


Waiter = Callable[[DurableAgent], Awaitable[object]]


async def awaiting(agent: DurableAgent) -> object:
    return await agent.run("hi")


async def iterating(agent: DurableAgent) -> object:
    return [event async for event in agent.run("hi")]


async def entering(agent: DurableAgent) -> object:
    async with agent.run("hi") as run:
        return await run


async def reading_slowly(agent: DurableAgent) -> object:
    events: list[RunEvent] = []
    async with agent.run("hi") as run:
        async for event in run:
            events.append(event)
            await asyncio.sleep(0)
    return events


@pytest.mark.parametrize("waiter", [awaiting, iterating, entering, reading_slowly])
@pytest.mark.parametrize("times", [1, 2, 3])
async def test_cancelling_at_any_step_ends_the_run_cleanly(waiter: Waiter, times: int) -> None:
    """Cancel at the 1st, 2nd, 3rd … step, once or again and again, until the run goes through."""
    for step in range(1, 500):
        agent, probe, store = await opened()
        task = asyncio.ensure_future(waiter(agent))
        for _ in range(step):
            await asyncio.sleep(0)
        if task.done():
            await task
            break
        for _ in range(times):
            task.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert probe.is_quiet
        await check_goes_on(agent, probe, store)
    else:
        pytest.fail("the run never went through")
    assert step > 20


async def test_closing_the_agent_at_any_step_ends_the_run_cleanly() -> None:
    ended = 0
    for step in range(1, 500):
        agent, probe, store = await opened()
        task = asyncio.ensure_future(iterating(agent))
        for _ in range(step):
            await asyncio.sleep(0)
        if task.done():
            await task
            break
        await asyncio.gather(agent.close(), agent.close())
        assert probe.is_quiet
        try:
            assert len(await task) == 15  # type: ignore[arg-type]  # it had ended already
        except (RunEndedError, perdure.SessionClosedError):
            ended += 1
        again = await perdure.open("s", probe, store=store)
        await check_goes_on(again, probe, store)
    else:
        pytest.fail("the run never went through")
    assert ended > 20


async def test_a_timeout_around_a_run_is_a_timeout() -> None:
    agent = await perdure.open("s", factory(MessageDelta("half"), asyncio.Event().wait))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await agent.run("hi")
    assert agent.messages()[-1].end == "stopped"
