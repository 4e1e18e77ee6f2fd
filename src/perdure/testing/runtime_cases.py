"""What the cases of the Runtime contract share: how to open a runtime, and how to call it."""

from __future__ import annotations

import asyncio
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from perdure.clock import new_id
from perdure.entry import Json, ToolCall, ToolResult
from perdure.runtimes.contract import CallOrigin, Runtime

PATIENCE_S = 20.0


class RuntimeCases(ABC):
    """How to open a runtime; what the contract's cases are methods of."""

    ends_on_close = True
    """Whether closing ends what its calls run; where it only leaves the runtime, it does not."""

    @abstractmethod
    def open_runtime(self, workspace: Path) -> AbstractAsyncContextManager[Runtime]:
        """A runtime over this folder, with the tools of a workspace; it is closed at the end."""


def ignore(text: str) -> None:
    """Shows nothing."""


async def use(
    runtime: Runtime,
    name: str,
    *,
    key: str | None = None,
    show: Callable[[str], object] = ignore,
    call_id: str = "c1",
    **arguments: Json,
) -> ToolResult:
    """Calls a tool as a session would; without a `key` with a new one."""
    call = ToolCall(call_id, name, arguments)
    origin = CallOrigin("session", "turn", new_id() if key is None else key)
    async with asyncio.timeout(PATIENCE_S * 3):
        return await runtime.call(call, arguments, origin, show)


async def until(holds: Callable[[], bool], what: str) -> None:
    """Returns as soon as it holds.

    Raises:
        AssertionError: it does not, for long.

    """
    ends = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < ends, f"never: {what}"
        await asyncio.sleep(0.02)


def lives(pid: int) -> bool:
    """Whether a process of this id runs; one that is dead and not reaped yet does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        status = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return not os.path.exists("/proc/self")
    return status.rpartition(")")[2].split()[0] not in {"Z", "X"}


async def pid_in(file: Path) -> int:
    """The process id that a command wrote into a file, once it has."""
    await until(lambda: file.exists() and file.read_text().endswith("\n"), f"{file} is written")
    return _number_in(file)


def _number_in(file: Path) -> int:
    return int(file.read_text())


def real(folder: Path) -> Path:
    """The folder without links in its path."""
    return folder.resolve()
