"""The tool that runs a command in the workspace, and what every command of a runtime is given.

A command is a program of the user who runs the runtime: it begins in the workspace and is not
confined to it. It has a process group of its own and no input; nothing of the group outlives the
call, nor the runtime (process.py).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from perdure.clock import monotonic
from perdure.codec import clean_text
from perdure.entry import Json, Text
from perdure.loops.process import Process
from perdure.loops.shell import SECRETS
from perdure.runtimes import reaper
from perdure.runtimes.contract import CallOrigin, Show
from perdure.runtimes.tool import Outcome, Tool, ToolFailure, WorkspaceTool
from perdure.runtimes.workspace import Workspace

_PACE_S = 1 / 30


@dataclass(frozen=True, slots=True)
class CommandLimits:
    """What bounds a command: its time where a call names none, its output, and its ending."""

    timeout_s: float = 600.0
    max_output_bytes: int = 64 << 20
    grace_s: float = 2.0


class CommandArguments(Struct, forbid_unknown_fields=True):
    """What `run_command` is given."""

    command: Annotated[str, Meta(min_length=1, description="a command for /bin/sh")]
    folder: Annotated[str, Meta(description="where to run it, in the workspace")] = "."
    timeout_s: (
        Annotated[float, Meta(gt=0, le=86400, description="end it after so many seconds")] | None
    ) = None


class CommandTool:
    """The tool over one workspace."""

    def __init__(self, workspace: Workspace, limits: CommandLimits) -> None:
        self._workspace = workspace
        self._limits = limits
        self.tools: Sequence[Tool] = (
            WorkspaceTool(
                "run_command",
                "Runs a shell command and gives what it writes, output and errors in one. It has "
                f"no input, and is ended after {limits.timeout_s:g} seconds unless timeout_s says "
                "otherwise, with everything that it started.",
                CommandArguments,
                self.run_command,
            ),
        )

    async def run_command(self, asked: CommandArguments, origin: CallOrigin, show: Show) -> Outcome:
        """Runs a command to its end."""
        command = ["/bin/sh", "-c", clean_text(asked.command)]
        if "\0" in asked.command:
            raise ToolFailure("a command cannot hold a NUL")
        timeout_s = asked.timeout_s or self._limits.timeout_s
        cwd = await self._workspace.run(folder_of, self._workspace, asked.folder)
        return await run_program(command, cwd, origin, show, self._limits, timeout_s)


def folder_of(workspace: Workspace, path: str) -> Path:
    """The folder that a path leads to, as a program is told of it.

    Raises:
        ToolFailure: there is none, or it is outside.

    """
    with workspace.at(path) as place:
        if not place.is_folder:
            raise ToolFailure(f"{clean_text(place.path)} is no folder")
        return workspace.path / place.path


def environment(origin: CallOrigin, base: Mapping[str, str]) -> dict[str, str]:
    """What a command of this call finds in its environment."""
    return {
        **{name: value for name, value in base.items() if name not in SECRETS},
        "PERDURE_SESSION_ID": origin.session_id.replace("\0", ""),
        "PERDURE_TURN_ID": origin.turn_id,
        "PERDURE_IDEMPOTENCY_KEY": origin.key,
        reaper.VARIABLE: reaper.mark(),
    }


async def run_program(
    command: Sequence[str],
    cwd: Path,
    origin: CallOrigin,
    show: Show,
    limits: CommandLimits,
    timeout_s: float,
) -> Outcome:
    """The output exactly as it came, and after it, in a part of its own, what went wrong."""
    process = Process(max_output_bytes=limits.max_output_bytes, grace_s=limits.grace_s)
    started = monotonic()
    timer: asyncio.TimerHandle | None = None
    try:
        try:
            process.start(command, cwd=cwd, env=environment(origin, os.environ))
        except (OSError, ValueError) as error:
            raise ToolFailure(f"could not start: {error}") from error
        timer = asyncio.get_running_loop().call_later(timeout_s, process.expire)
        while fresh := await process.wait_for_output():
            show(fresh)
            await process.wait_for_end(at_most_s=_PACE_S)
    finally:
        if timer is not None:
            timer.cancel()
        await process.end()
    provider: dict[str, Json] = {
        "exit": process.status,
        "seconds": round(monotonic() - started, 3),
    }
    problem: str | None = None
    if process.timed_out:
        provider["timed_out"] = True
        problem = f"ended: it ran longer than {timeout_s:g} seconds"
    elif process.overflowed:
        problem = f"ended: it wrote more than {limits.max_output_bytes} bytes"
    elif process.status is None:
        problem = "lost: the process that watched over it was killed"
    elif process.status:
        problem = f"exit status {process.status}"
    parts = [Text(process.output)]
    if problem is not None:
        begins = "" if not process.output or process.output.endswith("\n") else "\n"
        parts.append(Text(f"{begins}[{problem}]"))
    return Outcome(tuple(parts), problem is not None, provider)
