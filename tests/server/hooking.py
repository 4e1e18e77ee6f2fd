"""Hooks of a file in a test's folder, fired at an event, with the facts that were noted."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from perdure.fact import HookRan
from perdure.hook import HookEvent, HookOutcome, PreToolUse
from perdure.plugin import Plugins
from perdure.server.hook.hooks import Hooks
from perdure.server.hook.setup import load_hooks

NO_PLUGINS = Plugins()


def command(text: str, **fields: Any) -> dict[str, Any]:
    """A command handler as a file has it."""
    return {"type": "command", "command": text, **fields}


def group(*handlers: dict[str, Any], matcher: str | None = None) -> dict[str, Any]:
    """A group of handlers as a file has it."""
    return {"hooks": list(handlers)} | ({} if matcher is None else {"matcher": matcher})


def write_hooks(folder: Path, events: Mapping[str, Sequence[dict[str, Any]]]) -> Path:
    """The file of these groups."""
    path = folder / "hooks.json"
    path.write_text(json.dumps({"hooks": events}))
    return path


class Hooked:
    """Hooks whose facts are kept in `facts`."""

    def __init__(self, hooks: Hooks) -> None:
        self.hooks = hooks
        self.facts: list[HookRan] = []

    async def fire(self, event: HookEvent) -> HookOutcome:
        async def note(fact: HookRan) -> None:
            self.facts.append(fact)

        return await self.hooks.fire(event, note=note)

    @property
    def fact(self) -> HookRan:
        (only,) = self.facts
        return only

    @property
    def failure(self) -> str:
        output = self.fact.output
        assert isinstance(output, dict)
        return str(output["failure"])


def hooked(folder: Path, **events: Sequence[dict[str, Any]]) -> Hooked:
    """The hooks of a file with these groups, in `folder`, which is the workspace too."""
    return Hooked(load_hooks([write_hooks(folder, events)], NO_PLUGINS, folder=folder))


def call(tool: str = "shell", **arguments: Any) -> PreToolUse:
    """A tool call that is about to start."""
    return PreToolUse(
        session_id="s", turn_id="t", tool_name=tool, tool_input=arguments, call_id="c"
    )


def is_alive(pid: int) -> bool:
    """Whether a process of this id runs: neither gone nor dead and waiting to be reaped."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False
