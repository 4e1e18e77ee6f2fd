"""Which handlers an event concerns: the `matcher` of a `hooks.json`.

Nothing, `""` and `*` match everything. Letters, digits, `_`, `-`, spaces, `,` and `|` alone are a
name, or a list of names, to be met exactly. Anything else is a regular expression that is met
anywhere in the name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from perdure.errors import ConfigurationError
from perdure.hook import (
    HookEvent,
    Notification,
    PostToolUse,
    PreCompact,
    PreToolUse,
    SessionEnd,
    SessionStart,
)
from perdure.server.hook.tool_name import names_of

_PLAIN = re.compile(r"[\w\-, |]*", re.ASCII)
_MAX_NAME_CHARS = 512


class Matcher:
    """One matcher, read.

    Raises:
        ConfigurationError: it is no regular expression.

    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._names: frozenset[str] | None = None
        self._pattern: re.Pattern[str] | None = None
        if text.strip() in ("", "*"):
            return
        if _PLAIN.fullmatch(text):
            self._names = frozenset(name.strip() for name in re.split(r"[,|]", text))
            return
        try:
            self._pattern = re.compile(text)
        except (re.error, OverflowError, RecursionError) as error:
            raise ConfigurationError(f"{text!r} is no regular expression: {error}") from error

    def matches(self, subjects: Iterable[str] | None) -> bool:
        """Whether one of the subjects is meant; None is an event that has no subject."""
        if subjects is None:
            return True
        if self._names is not None:
            return not self._names.isdisjoint(subjects)
        pattern = self._pattern
        return pattern is None or any(pattern.search(each[:_MAX_NAME_CHARS]) for each in subjects)


def subjects_of(event: HookEvent) -> tuple[str, ...] | None:
    """What a matcher is held against: a tool by all of its names, a source, a reason, a type."""
    match event:
        case PreToolUse() | PostToolUse():
            return names_of(event.tool_name, event.full_name)
        case SessionStart(source=subject) | SessionEnd(reason=subject):
            return (subject,)
        case PreCompact(trigger=subject) | Notification(notification_type=subject):
            return (subject,)
        case _:
            return None
