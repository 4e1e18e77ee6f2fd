"""Hooks: the named points of a session at which outside code is asked, and what it may answer.

An event says what is about to happen, or has happened; an outcome is what a hook makes of it. A
hook is a command of a `hooks.json` or a function of a plugin (plugin.py), and both answer with the
same `HookOutcome`; the server asks them. The names are those that coding agents have given these
points. What an event does not name in "may answer" is without effect there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import Any, Literal

from msgspec import Struct

from perdure.entry import Json, ToolResult

StartSource = Literal["startup", "resume", "fork", "compact"]
CompactTrigger = Literal["manual", "auto"]
Permission = Literal["allow", "ask", "deny"]
OnFailure = Literal["continue", "block"]


class HookEvent(Struct, frozen=True, kw_only=True, tag_field="hook_event_name"):
    """What every event says: the session, and the turn if there is one."""

    session_id: str
    turn_id: str | None = None

    @property
    def name(self) -> str:
        """The event's name, as a `hooks.json` has it."""
        return type(self).__name__


class SessionStart(HookEvent, frozen=True, kw_only=True, tag=True):
    """Before the first turn of a session, of a waking, of a fork, and after a compaction.

    `startup` comes once in a session's life at most, `resume` once in a waking and never with it.
    May answer: context, notices, ends.
    """

    source: StartSource


class UserPromptSubmit(HookEvent, frozen=True, kw_only=True, tag=True):
    """A message begins a turn; the model has not seen it. `source` is who sent it.

    May answer: refused (the turn ends `refused`), context, notices.
    """

    prompt: str
    source: str = "user"


class PreToolUse(HookEvent, frozen=True, kw_only=True, tag=True):
    """A tool call is about to start. `full_name` of an MCP server's tool is `mcp__SERVER__TOOL`.

    May answer: permission with reason, changed_input, context, notices, ends.
    """

    tool_name: str
    tool_input: Json
    call_id: str
    full_name: str | None = None


class PostToolUse(HookEvent, frozen=True, kw_only=True, tag=True):
    """The result of a tool call is stored, be it good or an error.

    May answer: context, notices, ends.
    """

    tool_name: str
    tool_input: Json
    call_id: str
    result: ToolResult
    full_name: str | None = None


class Stop(HookEvent, frozen=True, kw_only=True, tag=True):
    """The turn is at its end. `stop_hook_active`: it goes on already because a Stop hook said so.

    May answer: goes_on, notices.
    """

    stop_hook_active: bool = False
    last_assistant_message: str = ""


class SessionEnd(HookEvent, frozen=True, kw_only=True, tag=True):
    """The session leaves memory (`offload`, `shutdown`) or is deleted (`delete`).

    May answer: notices.
    """

    reason: str


class PreCompact(HookEvent, frozen=True, kw_only=True, tag=True):
    """The conversation is about to be compacted.

    May answer: refused (it is not), notices.
    """

    trigger: CompactTrigger = "manual"
    custom_instructions: str = ""


class Notification(HookEvent, frozen=True, kw_only=True, tag=True):
    """Somebody is waited for: `permission_prompt` when a call needs an approval.

    May answer: notices.
    """

    message: str
    title: str = ""
    notification_type: str = "permission_prompt"


EVENTS = MappingProxyType(
    {
        event.__name__: event
        for event in (
            SessionStart,
            UserPromptSubmit,
            PreToolUse,
            PostToolUse,
            Stop,
            SessionEnd,
            PreCompact,
            Notification,
        )
    }
)
"""The events that there are, by name."""


class HookOutcome(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What hooks make of an event; as it is, it changes nothing.

    - `refused`: why the message is not run, or the compaction not done.
    - `permission`: whether a tool call may run (`allow`), waits for a person (`ask`), or does not
      run (`deny`; `reason` becomes its result). None leaves that to whoever decides otherwise.
    - `changed_input`: a JSON object in place of the call's arguments; None keeps them.
    - `context`: texts that the model reads, as `meta` messages: the transcript hides them.
    - `goes_on`: what is still to be done, so that the turn does not end here.
    - `ends`: why the turn ends now, whatever else was answered.
    - `notices`: for people, in the log; no model reads them.
    """

    refused: str | None = None
    permission: Permission | None = None
    reason: str | None = None
    changed_input: Json = None
    context: Sequence[str] = ()
    goes_on: str | None = None
    ends: str | None = None
    notices: Sequence[str] = ()


class HookFunction(Struct, frozen=True):
    """A plugin's function at an event. `matcher` is as in a `hooks.json`.

    It is called with the event and gives a `HookOutcome` or None. One that is not `async` runs in
    a thread of its own. After `timeout_s` seconds nobody waits for it any more. Where `on_failure`
    is `block`, a failure refuses what was about to happen.
    """

    event: type[HookEvent]
    function: Callable[[Any], Any]
    matcher: str = ""
    timeout_s: float = 60.0
    on_failure: OnFailure = "continue"
