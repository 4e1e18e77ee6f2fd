"""Reads a `hooks.json`, or a settings file that has `hooks` in it, as coding agents write them.

What is malformed is refused with its place: a guard with a typo is no guard. What is sound but
means nothing here (an event that does not occur, a handler that is no command, a field without
effect) is left out and named, so that nobody relies on it.
"""

from __future__ import annotations

import difflib
import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from msgspec import Struct

from perdure.errors import ConfigurationError
from perdure.hook import EVENTS, OnFailure, SessionEnd
from perdure.server.hook.command import MAX_TIMEOUT_S, Command
from perdure.server.hook.matcher import Matcher
from perdure.server.hook.rule import Rule

FOREIGN_EVENTS = frozenset(
    {
        "ConfigChange",
        "CwdChanged",
        "DirectoryAdded",
        "Elicitation",
        "ElicitationResult",
        "FileChanged",
        "InstructionsLoaded",
        "MessageDisplay",
        "PermissionDenied",
        "PermissionRequest",
        "PostCompact",
        "PostToolBatch",
        "PostToolUseFailure",
        "Setup",
        "StopFailure",
        "SubagentStart",
        "SubagentStop",
        "TaskCompleted",
        "TaskCreated",
        "TeammateIdle",
        "UserPromptExpansion",
        "WorktreeCreate",
        "WorktreeRemove",
    }
)
"""Events of coding agents that do not occur here."""

TOOL_EVENTS = frozenset({"PreToolUse", "PostToolUse"})

FOREIGN_TYPES = frozenset({"agent", "http", "mcp_tool", "prompt"})

_WITHOUT_EFFECT = {
    "asyncRewake": "the hook is waited for",
    "statusMessage": "nobody is shown it",
    "once": "the hook runs each time",
}
_PLAIN_FIELDS = frozenset(
    {"type", "async", "command", "args", "timeout", "shell", "if", "onFailure"}
)
_SILENT = frozenset({"hooks", "description", "$schema", "disableAllHooks"})
_FOREIGN_VARIABLES = ("CLAUDE_PLUGIN_DATA", "CLAUDE_ENV_FILE", "${user_config.")


class HookFile(Struct, frozen=True):
    """What a file says: its handlers, in order, and what of it has no effect here."""

    path: Path
    commands: tuple[Command, ...] = ()
    unsupported: tuple[str, ...] = ()


def read_hook_file(path: Path) -> HookFile:
    """The file's handlers.

    Raises:
        ConfigurationError: it cannot be read, or is malformed; the text names the file, the place
            in it, and what is allowed there.

    """
    try:
        content = json.loads(path.read_text("utf-8-sig"), object_pairs_hook=_named_once)
    except _NamedTwiceError as error:
        raise ConfigurationError(
            f"{path}: {error} stands twice in one object, and only one of them would count"
        ) from error
    except OSError as error:
        raise ConfigurationError(f"the hooks {path} cannot be read: {error}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path} is no JSON: {error}") from error
    return _Reader(path).read(content)


class _NamedTwiceError(Exception):
    """An object of a file has a name twice."""


def _named_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        raise _NamedTwiceError(next(repr(name) for name in names if names.count(name) > 1))
    return made


class _Reader:
    def __init__(self, path: Path) -> None:
        self._path = path
        folder = path.absolute().parent
        self._root = folder.parent if folder.name == "hooks" else folder
        self._unsupported: list[str] = []

    def read(self, content: object) -> HookFile:
        top = self._object(content, "")
        events: object = top.get("hooks")
        if events is None and any(name in EVENTS or name in FOREIGN_EVENTS for name in top):
            events, top = {k: v for k, v in top.items() if k not in _SILENT}, {}
        for name in top:
            if name not in _SILENT:
                self._leave_out(name, "is no matter of hooks")
        commands = tuple(self._events(self._object({} if events is None else events, "hooks")))
        if self._flag(top, "disableAllHooks"):
            self._leave_out("disableAllHooks", "is true: no hook of this file runs")
            commands = ()
        return HookFile(self._path, commands, tuple(self._unsupported))

    def _events(self, events: Mapping[str, Any]) -> Iterator[Command]:
        for name, groups in events.items():
            place = f"hooks.{name}"
            if name in EVENTS:
                for number, group in enumerate(self._list(groups, place)):
                    yield from self._group(name, group, f"{place}[{number}]")
            elif name in FOREIGN_EVENTS:
                self._leave_out(place, "is an event that does not occur here")
            else:
                near = difflib.get_close_matches(name, EVENTS, 1)
                meant = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(EVENTS)}"
                self._leave_out(place, f"is no event that is known{meant}")

    def _group(self, event: str, value: object, place: str) -> Iterator[Command]:
        group = self._object(value, place)
        if "hooks" not in group:
            raise self._wrong(
                place, 'has no "hooks"; write {"matcher": "…", "hooks": [{"type": "command", …}]}'
            )
        text = group.get("matcher")
        if text is not None and not isinstance(text, str):
            raise self._wrong(f"{place}.matcher", "is no text")
        try:
            matcher = Matcher(text or "")
        except ConfigurationError as error:
            raise self._wrong(f"{place}.matcher", f"is not valid: {error}") from error
        for name in sorted(group.keys() - {"matcher", "hooks", "description"}):
            self._leave_out(f"{place}.{name}", "has no effect")
        for number, handler in enumerate(self._list(group["hooks"], f"{place}.hooks")):
            at = f"{place}.hooks[{number}]"
            command = self._handler(event, matcher, self._object(handler, at), at)
            if command is not None:
                yield command

    def _handler(
        self, event: str, matcher: Matcher, given: Mapping[str, Any], place: str
    ) -> Command | None:
        kind = given.get("type")
        if kind in FOREIGN_TYPES:
            self._leave_out(place, f"is of the type {kind!r}, and only commands are run")
            return None
        if kind != "command":
            raise self._wrong(f"{place}.type", f'is {kind!r}, and not "command"')
        command = self._text(given, "command", place)
        if not command.strip():
            raise self._wrong(f"{place}.command", "is empty")
        if "args" in given:
            listed = self._list(given["args"], f"{place}.args")
            if not all(isinstance(each, str) for each in listed):
                raise self._wrong(f"{place}.args", "is no list of texts")
        shell = self._shell(given, place)
        if shell is None:
            return None
        self._name_fields(given, place)
        args = tuple(given["args"]) if "args" in given else None
        for variable in _FOREIGN_VARIABLES:
            if any(variable in each for each in (command, *(args or ()))):
                self._leave_out(f"{place}.command", f"names {variable}, which is not set here")
        return Command(
            event_name=event,
            matcher=matcher,
            command=command,
            args=args,
            shell=shell,
            timeout_s=self._timeout(given, place),
            on_failure=self._on_failure(given, place),
            place=f"{self._path.name}, {place}",
            root=self._root,
            rule=self._rule(event, given, place),
            is_aside=self._is_aside(event, given, place),
        )

    def _name_fields(self, given: Mapping[str, Any], place: str) -> None:
        for name, instead in _WITHOUT_EFFECT.items():
            if given.get(name):
                self._leave_out(f"{place}.{name}", f"has no effect: {instead}")
        for name in sorted(given.keys() - _PLAIN_FIELDS - _WITHOUT_EFFECT.keys()):
            self._leave_out(f"{place}.{name}", "is no field that is known")

    def _shell(self, given: Mapping[str, Any], place: str) -> str | None:
        match given.get("shell"):
            case None:
                return "/bin/sh"
            case "bash":
                return shutil.which("bash") or "/bin/sh"
            case "powershell":
                self._leave_out(f"{place}.shell", "is powershell: the hook does not run")
                return None
            case other:
                raise self._wrong(f"{place}.shell", f'is {other!r}, and not "bash"')

    def _timeout(self, given: Mapping[str, Any], place: str) -> float | None:
        value = given.get("timeout")
        if value is None:
            return None
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 < value < float("inf"):
            raise self._wrong(f"{place}.timeout", f"is {value!r}, and no number of seconds")
        if value > MAX_TIMEOUT_S:
            self._leave_out(
                f"{place}.timeout", f"is {value:g} seconds: {MAX_TIMEOUT_S:g} are the most"
            )
        return float(min(value, MAX_TIMEOUT_S))

    def _on_failure(self, given: Mapping[str, Any], place: str) -> OnFailure:
        value = given.get("onFailure", "continue")
        if value not in ("continue", "block"):
            raise self._wrong(f"{place}.onFailure", f'is {value!r}: "continue" or "block"')
        return cast("OnFailure", value)

    def _is_aside(self, event: str, given: Mapping[str, Any], place: str) -> bool:
        if not self._flag(given, "async", place):
            return False
        if event == SessionEnd.__name__ or given.get("asyncRewake"):
            self._leave_out(f"{place}.async", "has no effect here: the hook is waited for")
            return False
        if given.get("onFailure") == "block":
            self._leave_out(f"{place}.onFailure", "has no effect: nobody waits for the hook")
        return True

    def _rule(self, event: str, given: Mapping[str, Any], place: str) -> Rule | None:
        text = given.get("if")
        if text is None:
            return None
        try:
            rule = Rule(text if isinstance(text, str) else "")
        except ValueError as error:
            raise self._wrong(f"{place}.if", "is no permission rule") from error
        if not rule.is_known:
            self._leave_out(f"{place}.if", f"is read as {rule.tool}: the hook runs for each")
        if event not in TOOL_EVENTS:
            self._leave_out(f"{place}.if", "is for tools: the hook never runs")
        return rule

    def _leave_out(self, place: str, why: str) -> None:
        self._unsupported.append(f"{place} {why}")

    def _wrong(self, place: str, what: str) -> ConfigurationError:
        return ConfigurationError(f"{self._path}: {place or 'it'} {what}")

    def _object(self, value: object, place: str) -> Mapping[str, Any]:
        if not isinstance(value, dict):
            raise self._wrong(place, "is no JSON object")
        return value

    def _list(self, value: object, place: str) -> list[Any]:
        if not isinstance(value, list):
            raise self._wrong(place, "is no list")
        return value

    def _text(self, given: Mapping[str, Any], name: str, place: str) -> str:
        value = given.get(name)
        if not isinstance(value, str):
            raise self._wrong(f"{place}.{name}", "is missing" if value is None else "is no text")
        return value

    def _flag(self, given: Mapping[str, Any], name: str, place: str = "") -> bool:
        value = given.get(name, False)
        if not isinstance(value, bool):
            at = f"{place}.{name}" if place else name
            raise self._wrong(at, f"is {value!r}, and not true or false")
        return value
