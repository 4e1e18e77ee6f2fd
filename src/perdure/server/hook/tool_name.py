"""The tools of a workspace under the names that hooks of coding agents know.

A command is told of `Bash` where this server's tool is `shell`, with the arguments under the names
that go with it, so that a `hooks.json` written for a coding agent matches and reads what it
expects. A changed input is translated back. A matcher meets a tool by either name. Tools that are
not in the table keep their names and arguments.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from msgspec import Struct

from perdure.entry import Json, Text, ToolResult


class KnownTool(Struct, frozen=True):
    """What a tool is called outside, and which of its arguments have other names there.

    A matcher also meets it by the names in `also`.
    """

    name: str
    arguments: Mapping[str, str] = MappingProxyType({})
    also: tuple[str, ...] = ()


_PATH = {"path": "file_path"}

KNOWN: Mapping[str, KnownTool] = MappingProxyType(
    {
        "shell": KnownTool("Bash"),
        "run_command": KnownTool("Bash"),
        "read_file": KnownTool("Read", {**_PATH, "first_line": "offset", "line_count": "limit"}),
        "write_file": KnownTool("Write", _PATH),
        "edit_file": KnownTool("Edit", {**_PATH, "old": "old_string", "new": "new_string"}),
        "list_files": KnownTool("LS", also=("Glob",)),
        "search_files": KnownTool("Grep", {"ignore_case": "-i"}),
    }
)
"""By their names here."""


def names_of(tool: str, full_name: str | None = None) -> tuple[str, ...]:
    """Every name that a matcher may mean the tool by."""
    if full_name is not None:
        return (tool, full_name)
    known = KNOWN.get(tool)
    return (tool,) if known is None else (tool, known.name, *known.also)


def outward(tool: str, arguments: Json, folder: Path) -> tuple[str, Json]:
    """A call as a command is told of it; `file_path` is absolute, from the workspace `folder`."""
    known = KNOWN.get(tool)
    if known is None or not isinstance(arguments, dict):
        return known.name if known is not None else tool, arguments
    told = _renamed(arguments, known.arguments)
    if isinstance(path := told.get("file_path"), str):
        told["file_path"] = _absolute(path, folder)
    return known.name, told


def inward(tool: str, changed: Json, before: Json, folder: Path) -> Json:
    """A changed input under this server's names; a path that is the same stays as it was."""
    known = KNOWN.get(tool)
    if known is None or not isinstance(changed, dict):
        return changed
    back = {outside: inside for inside, outside in known.arguments.items()}
    arguments = _renamed(changed, back)
    was = before.get("path") if isinstance(before, dict) else None
    if isinstance(was, str) and arguments.get("path") == _absolute(was, folder):
        arguments["path"] = was
    return arguments


def response(tool: str, arguments: Json, result: ToolResult) -> Json:
    """A result as a command is told of it, in the shape that goes with the tool's name."""
    text = "".join(part.text for part in result.parts if isinstance(part, Text))
    told: dict[str, Json] = {
        "content": [{"type": "text", "text": text}],
        "is_error": result.is_error,
    }
    name = KNOWN[tool].name if tool in KNOWN else tool
    if name == "Bash":
        told |= {
            "stdout": _output(result, text),
            "stderr": "",
            "interrupted": result.interrupted,
            "isImage": False,
        }
    elif name in ("Write", "Edit", "Read"):
        path = arguments.get("file_path") if isinstance(arguments, dict) else None
        told |= {"filePath": path, "success": not result.is_error}
    return told


def _output(result: ToolResult, text: str) -> str:
    """What a command wrote: its first part, without the note of how it ended."""
    has_status = isinstance(result.provider, dict) and "exit" in result.provider
    first = result.parts[0] if has_status and result.parts else None
    return first.text if isinstance(first, Text) else text


def _renamed(arguments: Mapping[str, Json], names: Mapping[str, str]) -> dict[str, Json]:
    pairs = [(str(names.get(name, name)), value) for name, value in arguments.items()]
    return dict(pairs)


def _absolute(path: str, folder: Path) -> str:
    return os.path.normpath(folder / path) if "\x00" not in path else path
