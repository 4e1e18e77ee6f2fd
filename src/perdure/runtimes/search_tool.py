"""The tool that searches the files of a workspace, in a process that can be ended."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from perdure.codec import clean_text
from perdure.runtimes.command_tool import CommandLimits, folder_of, run_program
from perdure.runtimes.contract import CallOrigin, Show
from perdure.runtimes.tool import Outcome, Tool, WorkspaceTool, said
from perdure.runtimes.workspace import Workspace

SEARCH_S = 60.0
MAX_MATCHES = 1_000
_PROGRAM = Path(__file__).with_name("search_program.py")


class SearchArguments(Struct, forbid_unknown_fields=True):
    """What `search_files` is given."""

    pattern: Annotated[str, Meta(min_length=1, description="a regular expression, as in Python")]
    path: Annotated[str, Meta(description="the folder, or the one file, to search")] = "."
    glob: Annotated[
        str,
        Meta(
            description="only files of that name; with a slash, of that path, where * also "
            "matches slashes"
        ),
    ] = "*"
    literal: Annotated[bool, Meta(description="the pattern is plain text")] = False
    ignore_case: bool = False


class SearchTool:
    """The tool over one workspace."""

    def __init__(self, workspace: Workspace, limits: CommandLimits) -> None:
        self._workspace = workspace
        self._limits = limits
        self.tools: Sequence[Tool] = (
            WorkspaceTool(
                "search_files",
                "Searches text files for a pattern, line by line: path:line:text for each match, "
                f"at most {MAX_MATCHES}. Links and .git are not followed.",
                SearchArguments,
                self.search_files,
            ),
        )

    async def search_files(self, asked: SearchArguments, origin: CallOrigin, show: Show) -> Outcome:
        """The lines that match."""
        folder, name = await self._workspace.run(_where, self._workspace, asked.path)
        inside = folder.relative_to(self._workspace.path).as_posix()
        query = {
            "pattern": clean_text(asked.pattern),
            "literal": asked.literal,
            "ignore_case": asked.ignore_case,
            "glob": clean_text(asked.glob),
            "only": name,
            "prefix": "" if inside == "." else f"{clean_text(inside)}/",
            "max_matches": MAX_MATCHES,
        }
        program = [sys.executable, "-I", "-S", str(_PROGRAM)]
        command = [*program, str(self._workspace.path), json.dumps(query)]
        outcome = await run_program(command, folder, origin, show, self._limits, SEARCH_S)
        if not outcome.is_error and not any(part.text for part in outcome.parts):  # type: ignore[union-attr]  # it gives text only
            return said("[nothing matches]")
        return outcome


def _where(workspace: Workspace, path: str) -> tuple[Path, str | None]:
    """The folder that a path leads to; of a file, its folder and its name."""
    with workspace.at(path) as place:
        if place.is_file:
            inside = workspace.path / place.path
            return inside.parent, inside.name
    return folder_of(workspace, path), None
