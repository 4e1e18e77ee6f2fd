"""A step that cancellation does not cut in two, whatever it is made of and whenever it comes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar

import pytest

from perdure.completion import Told, complete

Step = Callable[[asyncio.Future[str]], Awaitable[str] | Told[str]]


async def _coroutine(outcome: asyncio.Future[str]) -> str:
    await asyncio.sleep(0)
    return await asyncio.shield(outcome)


def _told(outcome: asyncio.Future[str]) -> Told[str]:
    told: Told[str] = Told(outcome.get_loop().create_future())
    outcome.add_done_callback(lambda done: told.tell(done.exception() or done.result()))
    return told


def _future(outcome: asyncio.Future[str]) -> asyncio.Future[str]:
    return outcome


STEPS = [_coroutine, _told, _future]


class _Caller:
    """A task that waits for a step; `advanced` says what followed from its outcome."""

    def __init__(self, step: Step) -> None:
        self.outcome: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.advanced: list[str] = []
        self.task = asyncio.create_task(self._wait(step))

    async def _wait(self, step: Step) -> str:
        return await complete(step(self.outcome), self._advance)

    def _advance(self, step: asyncio.Future[str]) -> str:
        try:
            self.advanced.append(step.result())
        except ValueError:
            self.advanced.append("failed")
            raise
        return self.advanced[-1] + "!"


async def _pass() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.parametrize("step", STEPS)
async def test_a_step_gives_what_follows_from_it(step: Step) -> None:
    caller = _Caller(step)
    await _pass()
    caller.outcome.set_result("stored")
    assert await caller.task == "stored!"


@pytest.mark.parametrize("step", STEPS)
async def test_a_step_that_fails_raises_what_it_raised(step: Step) -> None:
    caller = _Caller(step)
    await _pass()
    caller.outcome.set_exception(ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        await caller.task
    assert caller.advanced == ["failed"]


@pytest.mark.parametrize("passes", range(6))
@pytest.mark.parametrize("step", STEPS)
async def test_a_cancellation_waits_for_the_outcome(step: Step, passes: int) -> None:
    caller = _Caller(step)
    await asyncio.sleep(0)
    for _ in range(passes):
        await asyncio.sleep(0)
    for _ in range(3):
        caller.task.cancel("enough")
        await _pass()
        assert not caller.task.done()
        assert not caller.outcome.cancelled()
    caller.outcome.set_result("stored")
    with pytest.raises(asyncio.CancelledError, match="enough"):
        await caller.task
    assert caller.advanced == ["stored"]


@pytest.mark.parametrize("step", STEPS)
async def test_a_cancellation_after_the_outcome_and_before_its_news_loses_nothing(
    step: Step,
) -> None:
    caller = _Caller(step)
    await _pass()
    caller.outcome.set_result("stored")
    caller.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller.task
    assert caller.advanced == ["stored"]


@pytest.mark.parametrize("step", STEPS)
async def test_a_cancelled_caller_is_told_that_the_step_failed(step: Step) -> None:
    caller = _Caller(step)
    await _pass()
    caller.task.cancel()
    await _pass()
    caller.outcome.set_exception(ValueError("no"))
    with pytest.raises(asyncio.CancelledError) as told:
        await caller.task
    assert isinstance(told.value.__cause__, ValueError)
    assert caller.advanced == ["failed"]


@pytest.mark.parametrize("step", [_coroutine, _future])
async def test_a_step_that_was_cancelled_itself_says_so(step: Step) -> None:
    caller = _Caller(step)
    await _pass()
    caller.outcome.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller.task
    assert caller.task.cancelling() == 0
    assert caller.advanced == []


async def test_a_timeout_inside_a_step_is_the_steps_own() -> None:
    async def step() -> str:
        try:
            async with asyncio.timeout(0):
                await asyncio.Event().wait()
        except TimeoutError:
            return "timed out"
        return "never"

    assert await complete(step()) == "timed out"


async def test_a_timeout_around_a_step_ends_after_it() -> None:
    outcome = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(0.02, outcome.set_result, "stored")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await complete(_told(outcome))
    assert outcome.result() == "stored"


async def test_a_step_sees_the_callers_context() -> None:
    variable: ContextVar[str] = ContextVar("variable", default="")

    async def step() -> str:
        await asyncio.sleep(0)
        return variable.get()

    variable.set("mine")
    assert await complete(step()) == "mine"
    assert await complete(step(), lambda done: done.result() + variable.get()) == "minemine"


async def test_an_event_loop_that_ends_cancels_a_coroutine_that_never_does() -> None:
    caller = _Caller(_coroutine)
    await _pass()
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    assert not (await asyncio.wait(tasks, timeout=5))[1]
    assert caller.task.cancelled()
    assert caller.advanced == []


async def test_what_nobody_waits_for_any_more_is_told_to_nobody() -> None:
    told: Told[str] = Told(asyncio.get_running_loop().create_future())
    told.future.cancel()
    told.tell(ValueError("no"))
    assert told.future.cancelled()


async def test_who_asks_again_is_told_whatever_came_meanwhile() -> None:
    told: Told[str] = Told(asyncio.get_running_loop().create_future())
    told.future.cancel()
    told.tell("stored")
    assert await told.again() == "stored"
    assert await told.again() == "stored"
    later: Told[str] = Told(asyncio.get_running_loop().create_future())
    later.future.cancel()
    again = later.again()
    later.tell(ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        await again


async def test_who_is_cancelled_again_and_again_is_woken_once_for_it() -> None:
    """As a scope of anyio's does, at each iteration of the loop."""
    asked = list[str]()

    class Counted(Told[str]):
        def again(self) -> asyncio.Future[str]:
            asked.append("again")
            return super().again()

    told = Counted(asyncio.get_running_loop().create_future())
    task = asyncio.ensure_future(complete(told, lambda done: asked.append(done.result())))
    for _ in range(50):
        await asyncio.sleep(0)
        task.cancel()
    told.tell("stored")
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asked == ["again", "stored"]
