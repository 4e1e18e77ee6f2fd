"""Checks: what decides whether a step succeeded whose turn completed.

A command runs by the tool `run_command` of the step's runtime, in its workspace, and passes with
exit status 0. A function is one that the settings allow. After a crash in its middle a check runs
again: it looks, and changes nothing.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple, Protocol

from msgspec import Struct

from perdure import clock
from perdure.blocking import Blocking
from perdure.entry import Json, Text, ToolCall, ToolResult
from perdure.errors import ConfigurationError, PerdureError
from perdure.server.session.seen import tail
from perdure.workflow import Check

TABLE = "workflows"

OUTPUT_CHARS = 4000
"""How much of what a check wrote is kept."""

MARGIN_S = 10.0
"""How much longer than its limit a command may take to be ended."""


class CheckTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table `[workflows]` of `perdure.toml`: functions that checks may name."""

    checks: tuple[str, ...] = ()


class CheckedTurn(NamedTuple):
    """What a check function is given: which attempt, and what its turn said last."""

    workflow_id: str
    step: str
    attempt: int
    session_id: str
    turn_id: str
    output: str
    inputs: Mapping[str, Any]


class CheckOutcome(NamedTuple):
    """What a check found. `could_run` False: nothing can be said of the step."""

    passed: bool
    output: str
    seconds: float
    could_run: bool = True


class Toolbox(Protocol):
    """The tools of a runtime for one turn."""

    async def call(
        self, call: ToolCall, arguments: Json, *, key: str, show: Callable[[str], object]
    ) -> ToolResult:
        """Runs one."""
        ...


class Toolboxes(Protocol):
    """The runtimes of a server."""

    def toolbox(
        self, name: str | None, *, session_id: str, turn_id: str, owner: str | None
    ) -> Toolbox:
        """The tools of this runtime, or of the one that commands run in by default."""
        ...


class Functions:
    """The check functions that the settings allow, imported when they are first asked for."""

    def __init__(self, allowed: Sequence[str]) -> None:
        self._allowed = frozenset(allowed)
        self._found: dict[str, Callable[[CheckedTurn], object]] = {}

    def find(self, name: str) -> Callable[[CheckedTurn], object]:
        """The function of this name; imports, so not for the event loop.

        Raises:
            ConfigurationError: the settings do not allow it, or there is none.

        """
        if name not in self._allowed:
            raise ConfigurationError(
                f"the check {name!r} is not one that this server offers; whoever runs it can name "
                "it in perdure.toml: [workflows] checks"
            )
        if name not in self._found:
            self._found[name] = _imported(name)
        return self._found[name]


def _imported(name: str) -> Callable[[CheckedTurn], object]:
    module, _, attribute = name.partition(":")
    try:
        found: object = import_module(module)
        for each in attribute.split("."):
            found = getattr(found, each)
    except (Exception, SystemExit) as error:  # the edge of somebody else's module
        raise ConfigurationError(f"the check {name!r} cannot be imported: {error!r}") from error
    if not callable(found):
        raise ConfigurationError(f"the check {name!r} is no function")
    return found


async def run_check(
    check: Check, turn: CheckedTurn, functions: Functions, toolbox: Toolbox, key: str
) -> CheckOutcome:
    """Runs the check, in bounded time; cancelling ends its command."""
    began = clock.monotonic()
    try:
        async with asyncio.timeout(check.timeout_s + MARGIN_S):
            if check.command is not None:
                passed, said = await _run_command(check, toolbox, key)
            else:
                function = await asyncio.to_thread(functions.find, check.function or "")
                async with asyncio.timeout(check.timeout_s):
                    passed, said = await _call(function, turn)
    except TimeoutError:
        passed, said = False, f"it took longer than {check.timeout_s:g} seconds"
    except PerdureError as error:  # the runtime is lost, or the function is not to be had
        said = f"the check could not run: {error}"
        return CheckOutcome(False, said, round(clock.monotonic() - began, 3), could_run=False)
    said = tail(said, OUTPUT_CHARS, "were not kept")
    return CheckOutcome(passed, said, round(clock.monotonic() - began, 3))


def outcome_of_check(task: asyncio.Task[CheckOutcome]) -> CheckOutcome:
    """What a check that is over found; of one that failed by itself nothing can be said."""
    if task.cancelled():
        return CheckOutcome(False, "the check was cut off", 0.0, could_run=False)
    error = task.exception()
    if error is None:
        return task.result()
    said = f"the check failed by itself: {type(error).__name__}: {error}"
    return CheckOutcome(False, said, 0.0, could_run=False)


async def _run_command(check: Check, toolbox: Toolbox, key: str) -> tuple[bool, str]:
    arguments = {"command": check.command, "timeout_s": min(check.timeout_s, 86400.0)}
    call = ToolCall(key, "run_command", arguments)
    result = await toolbox.call(call, arguments, key=key, show=lambda text: None)
    said = "".join(part.text for part in result.parts if isinstance(part, Text))
    return not result.is_error, said


async def _call(function: Callable[[CheckedTurn], object], turn: CheckedTurn) -> tuple[bool, str]:
    """What the function says: None or True is passed; False, a text or an exception is not."""
    try:
        if inspect.iscoroutinefunction(function):
            found: object = await function(turn)
        else:
            found = await Blocking(function)(turn)
    except (asyncio.CancelledError, TimeoutError):
        raise
    except Exception as error:  # the edge of somebody else's function
        return False, f"{type(error).__name__}: {error}"
    if found is None or found is True:
        return True, ""
    return False, found if isinstance(found, str) else f"it returned {found!r}"


def name_of(check: Check) -> str:
    """The check as it is shown."""
    return check.command if check.command is not None else str(check.function)
