"""A step that cancellation does not cut in two, whatever it is made of and whenever it comes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import ContextVar
from typing import Any

import pytest

from perdure.completion import Answer, complete

Step = Callable[[asyncio.Future[str]], Awaitable[str]]


async def _coroutine(outcome: asyncio.Future[str]) -> str:
    await asyncio.sleep(0)
    return await asyncio.shield(outcome)


def _answer(outcome: asyncio.Future[str]) -> Answer[str]:
    return Answer(lambda: outcome)


def _future(outcome: asyncio.Future[str]) -> asyncio.Future[str]:
    return outcome


STEPS = [_coroutine, _answer, _future]


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


@pytest.mark.parametrize("step", STEPS)
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
            await complete(_answer(outcome))
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


def test_an_answer_is_a_coroutine() -> None:
    async def asked() -> str:
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(future.set_result, "stored")
        return await Answer(lambda: future)

    def answer() -> Coroutine[Any, Any, str]:
        def ask() -> asyncio.Future[str]:
            future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_soon(future.set_result, "stored")
            return future

        return Answer(ask)

    async def both() -> list[str]:
        task = asyncio.create_task(answer())
        return [await task, await asyncio.wait_for(answer(), 1), *await asyncio.gather(answer())]

    assert asyncio.run(asked()) == "stored"
    assert asyncio.run(answer()) == "stored"
    assert asyncio.run(both()) == ["stored"] * 3


async def test_an_answer_is_asked_for_once_and_not_before_it_is_awaited() -> None:
    asked: list[int] = []

    def ask() -> asyncio.Future[str]:
        asked.append(1)
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        future.set_result("stored")
        return future

    answer = Answer(ask)
    assert asked == []
    assert await answer == "stored"
    with pytest.raises(RuntimeError):
        await answer
    assert asked == [1]
    Answer(ask).close()
    assert asked == [1]


async def test_an_answer_passes_on_what_asking_raises() -> None:
    def ask() -> asyncio.Future[str]:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await Answer(ask)
    with pytest.raises(ValueError, match="no"):
        await complete(Answer(ask))


async def test_a_cancelled_answer_cancels_its_own_future_only_when_nobody_completes_it() -> None:
    future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(Answer(lambda: future))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert future.cancelled()
