"""An event as a command of a `hooks.json` reads it: one JSON object on standard input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from perdure.hook import HookEvent, PostToolUse, PreToolUse
from perdure.server.hook.tool_name import outward, response


def wire_of(event: HookEvent, folder: Path, transcript_path: str = "") -> dict[str, Any]:
    """The fields of the event, and those that every event has there."""
    told: dict[str, Any] = {
        "session_id": event.session_id,
        "transcript_path": transcript_path,
        "cwd": str(folder),
        "permission_mode": "default",
        "hook_event_name": event.name,
    }
    match event:
        case PreToolUse():
            told |= _call(event, folder)
        case PostToolUse(tool_name=name, result=result):
            told |= _call(event, folder)
            told["tool_response"] = response(name, told["tool_input"], result)
        case _:
            told |= msgspec.to_builtins(event)
    if event.turn_id is not None:
        told["turn_id"] = event.turn_id
    else:
        told.pop("turn_id", None)
    return told


def _call(event: PreToolUse | PostToolUse, folder: Path) -> dict[str, Any]:
    tool_name, tool_input = event.full_name, event.tool_input
    if tool_name is None:
        tool_name, tool_input = outward(event.tool_name, event.tool_input, folder)
    return {"tool_name": tool_name, "tool_input": tool_input, "tool_use_id": event.call_id}
