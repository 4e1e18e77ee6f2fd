"""Functions of plugins at events: their types, their failures, and what bounds them."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from perdure.errors import HookRefusedError
from perdure.hook import (
    HookEvent,
    HookFunction,
    HookOutcome,
    PostToolUse,
    PreCompact,
    PreToolUse,
    SessionStart,
    Stop,
    UserPromptSubmit,
)
from perdure.server.hook.function import MAX_HANGING, Function
from perdure.server.hook.hooks import Hooks
from tests.server.hooking import Hooked, call
from tests.server.test_hook_command import COMPACT, POST, PROMPT, START, STOP


def asked(function: Callable[[Any], Any], *, folder: Path = Path(), **options: Any) -> Hooked:
    """Hooks of one function, at every event that the tests fire."""
    events: list[type[HookEvent]] = [
        PreToolUse,
        UserPromptSubmit,
        PostToolUse,
        PreCompact,
        SessionStart,
        Stop,
    ]
    hooks = [Function("mine", HookFunction(each, function, **options)) for each in events]
    return Hooked(Hooks(hooks, folder=folder))


async def test_a_function_is_given_the_event_as_it_is(tmp_path: Path) -> None:
    seen: list[HookEvent] = []
    hooks = asked(seen.append, folder=tmp_path)
    for event in (call("run_command", command="ls"), POST, PROMPT):
        assert await hooks.fire(event) == HookOutcome()
    assert seen == [call("run_command", command="ls"), POST, PROMPT]
    fact = hooks.facts[0]
    assert fact.input == {
        "hook_event_name": "PreToolUse",
        "session_id": "s",
        "turn_id": "t",
        "tool_name": "run_command",
        "tool_input": {"command": "ls"},
        "call_id": "c",
        "full_name": None,
    }
    assert (fact.handler, fact.exit, fact.output) == ("list.append (plugin mine)", None, None)


async def test_async_and_plain_functions_answer_alike() -> None:
    outcome = HookOutcome(permission="ask", changed_input={"a": [1]}, context=("x",))

    def plain(event: PreToolUse) -> HookOutcome:
        assert threading.current_thread() is not threading.main_thread()
        return outcome

    async def waiting(event: PreToolUse) -> HookOutcome:
        await asyncio.sleep(0)
        return outcome

    def giving(event: PreToolUse) -> Awaitable[HookOutcome]:
        return waiting(event)

    for function in (plain, waiting, giving):
        hooks = asked(function)
        assert await hooks.fire(call()) == outcome
        assert hooks.fact.output == {
            "permission": "ask",
            "changed_input": {"a": [1]},
            "context": ["x"],
        }


@pytest.mark.parametrize(
    ("event", "outcome"),
    [
        (call(), HookOutcome(permission="deny", reason="no")),
        (PROMPT, HookOutcome(refused="no")),
        (COMPACT, HookOutcome(refused="no")),
        (STOP, HookOutcome(goes_on="no")),
        (POST, HookOutcome(context=("no",))),
        (START, HookOutcome(notices=("no",))),
    ],
)
async def test_to_refuse_means_what_it_means_of_a_command(
    event: HookEvent, outcome: HookOutcome
) -> None:
    def raising(event: HookEvent) -> None:
        raise HookRefusedError(event.name, "no")

    for function in (lambda _: HookOutcome(refused="no"), raising):
        hooks = asked(function)
        assert await hooks.fire(event) == outcome
        assert hooks.fact.output == {"refused": "no"}


def raises(error: BaseException) -> Callable[[Any], Any]:
    def function(event: HookEvent) -> None:
        raise error

    return function


def raises_later(error: BaseException) -> Callable[[Any], Any]:
    async def function(event: HookEvent) -> None:
        await asyncio.sleep(0)
        raise error

    return function


class Odd:
    """What cannot be written as JSON."""


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (raises(ValueError("bad")), "ValueError: bad"),
        (raises_later(ValueError("bad")), "ValueError: bad"),
        (raises(SystemExit(3)), "it raised SystemExit(3)"),
        (raises_later(SystemExit(3)), "it raised SystemExit(3)"),
        (raises(KeyboardInterrupt()), "it raised KeyboardInterrupt()"),
        (raises(StopIteration()), "StopIteration"),
        (raises_later(asyncio.CancelledError()), "cancelled itself"),
        (raises(asyncio.CancelledError()), "cancelled itself"),
        (lambda _: "yes", "gave 'yes' and not a HookOutcome"),
        (lambda _: True, "gave True"),
        (lambda: None, "TypeError"),
        (lambda _: HookOutcome(context="text"), "cannot be used"),
        (lambda _: HookOutcome(permission="perhaps"), "cannot be used"),  # type: ignore[arg-type]
        (lambda _: HookOutcome(changed_input={"a": Odd()}), "cannot be used"),
        (lambda _: HookOutcome(changed_input=[1]), "is no JSON object"),
    ],
)
async def test_a_function_that_fails_changes_nothing_and_is_a_fact(
    function: Callable[[Any], Any], says: str
) -> None:
    hooks = asked(function)
    assert await hooks.fire(call()) == HookOutcome()
    assert says in hooks.failure
    guard = asked(function, on_failure="block")
    outcome = await guard.fire(call())
    assert outcome.permission == "deny"
    assert says in (outcome.reason or "")
    assert (await guard.fire(PROMPT)).refused is not None
    assert await guard.fire(STOP) == HookOutcome()


async def test_a_function_that_hangs_is_given_up() -> None:
    free = threading.Event()

    def hang(event: HookEvent) -> None:
        free.wait(30)

    async def hang_async(event: HookEvent) -> None:
        await asyncio.sleep(30)

    for function in (hang, hang_async):
        hooks = asked(function, timeout_s=0.2)
        began = time.monotonic()
        assert await hooks.fire(call()) == HookOutcome()
        assert time.monotonic() - began < 3
        assert "longer than 0.2 seconds" in hooks.failure
        assert hooks.fact.seconds >= 0.2
    free.set()


async def test_one_that_does_not_let_itself_be_cancelled_is_given_up_too() -> None:
    free = asyncio.Event()

    async def stubborn(event: HookEvent) -> None:
        while not free.is_set():
            try:
                await free.wait()
            except asyncio.CancelledError:
                continue

    hooks = asked(stubborn, timeout_s=0.1)
    began = time.monotonic()
    await hooks.fire(call())
    assert time.monotonic() - began < 5
    assert "given up" in hooks.failure
    free.set()
    await asyncio.sleep(0.05)


async def test_a_function_whose_runs_hang_is_not_called_until_one_comes_back() -> None:
    free, calls = threading.Event(), []

    def hang(event: HookEvent) -> None:
        calls.append(event)
        free.wait(30)

    (function,) = [Function("mine", HookFunction(PreToolUse, hang, timeout_s=0.05))]
    hooks = Hooked(Hooks([function], folder=Path()))
    before = threading.active_count()
    for _ in range(MAX_HANGING + 3):
        await hooks.fire(call())
    assert len(calls) == MAX_HANGING
    assert threading.active_count() - before == MAX_HANGING
    assert "earlier runs of it still hang" in str(hooks.facts[-1].output)
    free.set()
    while threading.active_count() > before:  # noqa: ASYNC110  # threads, and not tasks
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.01)
    await hooks.fire(call())
    assert len(calls) == MAX_HANGING + 1


async def test_a_cancelled_fire_gives_a_function_up_and_says_so() -> None:
    begun = asyncio.Event()

    async def hang(event: HookEvent) -> None:
        begun.set()
        await asyncio.sleep(30)

    hooks = asked(hang)
    firing = asyncio.create_task(hooks.fire(call()))
    await begun.wait()
    firing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await firing
    assert "cut off" in hooks.failure


async def test_a_failure_is_in_the_log_with_the_session(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        await asked(raises(ValueError("bad"))).fire(call())
    (record,) = caplog.records
    assert "PreToolUse hook" in record.message
    assert "'s': ValueError: bad" in record.message
