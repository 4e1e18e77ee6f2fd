"""A function of a plugin at an event.

An `async` one runs on the event loop, any other in a thread of its own (blocking.py). When its time
is up nobody waits for it any more. It cannot be killed, so a function of which several runs still
hang is not called again until one of them has come back.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from perdure.blocking import Blocking
from perdure.encoding import encode
from perdure.entry import Json
from perdure.errors import AppendRejectedError, HookRefusedError
from perdure.hook import HookEvent, HookFunction, HookOutcome, OnFailure
from perdure.server.hook.answer import refusal
from perdure.server.hook.handler import Fired, Ran
from perdure.server.hook.matcher import Matcher
from perdure.server.hook.merge import merge

MAX_HANGING = 4
"""So many runs of one function may hang before it is not called any more."""

GRACE_S = 1.0
"""How long a cancelled `async` function may take to let go."""


class Function:
    """A function handler of the plugin `plugin`."""

    is_aside = False
    reads_files = False

    def __init__(self, plugin: str, hook: HookFunction) -> None:
        self._hook = hook
        self._hanging = 0  # those that are `async`
        self._blocking = Blocking(hook.function)
        self.event_name = hook.event.__name__
        self._matcher = Matcher(hook.matcher)
        self.on_failure: OnFailure = hook.on_failure
        name = getattr(hook.function, "__qualname__", type(hook.function).__name__)
        self.label = f"{name} (plugin {plugin})"

    def concerns(self, event: HookEvent, subjects: Sequence[str] | None, folder: Path) -> bool:
        """Whether its matcher meets the event's subjects."""
        return self._matcher.matches(subjects)

    @property
    def key(self) -> Hashable:
        """Each is its own."""
        return id(self)

    def told(self, fired: Fired) -> Json:
        """The event, as JSON."""
        return fired.plain

    async def run(self, fired: Fired) -> Ran:
        """Calls it, and waits for its outcome as long as it may take."""
        if (hanging := self._hanging + self._blocking.hanging) >= MAX_HANGING:
            return Ran(failure=f"not called: {hanging} earlier runs of it still hang")
        run = asyncio.create_task(self._call(fired.event))
        try:
            done, _ = await asyncio.wait({run}, timeout=self._hook.timeout_s)
        finally:
            if not run.done():
                run.cancel()
                await asyncio.wait({run}, timeout=GRACE_S)
            if not run.done():
                self._hanging += 1
            run.add_done_callback(self._came_back if not run.done() else _seen)
        if not done:
            return Ran(failure=f"given up: it ran longer than {self._hook.timeout_s:g} seconds")
        if run.cancelled():
            return Ran(failure="it cancelled itself")
        match run.exception():
            case None:
                return _checked(fired.event, run.result())
            case HookRefusedError() as refused:
                return _ran(HookOutcome(refused=refused.reason), fired.event)
            case error:
                return Ran(failure=f"{type(error).__name__}: {error}")

    def _came_back(self, run: asyncio.Task[Any]) -> None:
        self._hanging -= 1
        _seen(run)

    async def _call(self, event: HookEvent) -> Any:
        try:
            if inspect.iscoroutinefunction(self._hook.function):
                return await self._hook.function(event)
            result = await self._blocking(event)
            return await result if inspect.isawaitable(result) else result
        except (SystemExit, KeyboardInterrupt) as error:  # would end the event loop
            raise RuntimeError(f"it raised {error!r}") from error


def _seen(run: asyncio.Task[Any]) -> None:
    """Asks for the error of a task that nobody waits for."""
    if not run.cancelled():
        run.exception()


def _checked(event: HookEvent, said: object) -> Ran:
    """What a function returned, as an outcome that is of the right types and can be kept."""
    if said is None:
        return Ran()
    if not isinstance(said, HookOutcome):
        return Ran(failure=f"it gave {said!r:.200} and not a HookOutcome")
    try:
        outcome = msgspec.convert(msgspec.to_builtins(said), HookOutcome)
        encode(outcome)
    except (TypeError, ValueError, RecursionError, AppendRejectedError) as error:
        return Ran(failure=f"its outcome cannot be used: {error}")
    if outcome.changed_input is not None and not isinstance(outcome.changed_input, dict):
        return Ran(failure="its changed_input is no JSON object")
    return _ran(outcome, event)


def _ran(outcome: HookOutcome, event: HookEvent) -> Ran:
    """A refusal comes to what it can at this event, as that of a command does."""
    output = msgspec.to_builtins(outcome)
    if outcome.refused is not None:
        rest = msgspec.structs.replace(outcome, refused=None)
        outcome = merge([refusal(event, outcome.refused), rest])
    return Ran(outcome=outcome, output=output)
