"""The `if` of a handler, a permission rule as `Bash(git *)` or `Edit(*.ts)`: which calls it is for.

A rule keeps a hook from being started in vain, and a hook may be a guard: whatever the text of a
call leaves open (a substitution, a quoted name, a program that starts another) counts as met.
"""

from __future__ import annotations

import os
import re
from functools import cached_property
from pathlib import Path

from perdure.hook import HookEvent, PostToolUse, PreToolUse
from perdure.server.hook.tool_name import names_of, outward

_RULE = re.compile(r"\s*([^\s()]+)\s*(?:\((.*)\))?\s*", re.DOTALL)
_FILE_TOOLS = frozenset({"Edit", "MultiEdit", "NotebookEdit", "Read", "Write"})

_SEPARATOR = re.compile(r"&&|\|\||[;|&\n]")
_OPEN = re.compile(r"[`\\]|\$\(|\$\{|[<>]\(|<<")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=[^\s'\"$]*(?:\s+|$)")
_STARTERS = frozenset(
    """
    ! { ( [[ . case coproc do elif else for function if select source then time until while
    command doas env eval exec find nice nohup parallel setsid ssh stdbuf sudo timeout xargs
    bash dash fish ksh sh zsh awk node perl python python3 ruby
    """.split()  # noqa: SIM905
)
"""What another program's name may stand behind."""


class Rule:
    """A rule, read. `pattern` None is every call of the tool.

    Raises:
        ValueError: it is no rule.

    """

    def __init__(self, text: str) -> None:
        found = _RULE.fullmatch(text)
        if found is None:
            raise ValueError(f"{text!r} is no permission rule")
        self.tool: str = found[1]
        pattern = found[2]
        self.pattern: str | None = None if pattern is None or pattern.strip() == "*" else pattern

    @property
    def is_known(self) -> bool:
        """Whether what it says of arguments counts; else it is met by every call of its tool."""
        if self.pattern is None:
            return True
        return self.tool == "Bash" or (self.tool in _FILE_TOOLS and self.pattern[:1] != "!")

    def meets(self, event: HookEvent, folder: Path) -> bool:
        """Whether it is met by the call of this event; `folder` is the workspace."""
        if not isinstance(event, PreToolUse | PostToolUse):
            return False
        if self.tool not in names_of(event.tool_name, event.full_name):
            return False
        if self.pattern is None or not self.is_known:
            return True
        _, told = outward(event.tool_name, event.tool_input, folder)
        field = "command" if self.tool == "Bash" else "file_path"
        value = told.get(field) if isinstance(told, dict) else None
        if not isinstance(value, str):
            return True
        return self._meets_command(value) if self.tool == "Bash" else self._meets(value, folder)

    def _meets_command(self, command: str) -> bool:
        if _OPEN.search(command):
            return True
        return any(self._meets_part(part.strip()) for part in _SEPARATOR.split(command))

    def _meets_part(self, part: str) -> bool:
        while found := _ASSIGNMENT.match(part):
            part = part[found.end() :]
        if not part:
            return False
        name, space, rest = part.partition(" ")
        base = name.rpartition("/")[2]
        if base in _STARTERS or re.search(r"['\"$(){}*?\[=<>]", name):
            return True
        spelled = (part, " ".join(part.split()), f"{base}{space}{rest}")
        return any(self._command.fullmatch(each) for each in spelled)

    @cached_property
    def _command(self) -> re.Pattern[str]:
        text = (self.pattern or "").strip()
        text = f"{text[:-2]} *" if text.endswith(":*") else text
        begins, is_open = (text[:-2], True) if text.endswith(" *") else (text, False)
        pattern = ".*".join(re.escape(piece) for piece in begins.split("*"))
        return re.compile(pattern + (r"(?:\s.*)?" if is_open else ""), re.DOTALL)

    def _meets(self, path: str, folder: Path) -> bool:
        path = os.path.normpath(path)
        pattern = (self.pattern or "").strip()
        if pattern.startswith("//"):
            return _glob(pattern[1:]).fullmatch(path) is not None
        if pattern.startswith("~/"):
            return _glob(os.path.expanduser(pattern)).fullmatch(path) is not None
        inside = os.path.relpath(path, folder)
        is_anywhere = "/" not in pattern.rstrip("/")
        pattern = pattern.removeprefix("./").lstrip("/")
        if not is_anywhere:
            return _glob(pattern).fullmatch(inside) is not None
        return _glob(f"**/{pattern}").fullmatch(inside) is not None


def _glob(pattern: str) -> re.Pattern[str]:
    """A pattern of paths as `.gitignore` has them; what is below a folder that it meets is met."""
    made = ""
    for piece in re.findall(r"\*\*/|\*\*|\*|\?|[^*?]+", pattern.rstrip("/")):
        made += {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}.get(
            piece, re.escape(piece)
        )
    return re.compile(f"{made}(?:/.*)?", re.DOTALL)
