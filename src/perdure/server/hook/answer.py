"""What a command said, as an outcome: its exit status, and text or JSON on standard output.

- 0: standard output is read. One JSON object is an answer; other text is context, for the events
  that take it (SessionStart, UserPromptSubmit), and else only noted.
- 2: refused, with standard error as the reason. Where nothing can be refused any more, the model
  reads it (PostToolUse), the turn goes on for it (Stop), or people do (the rest).
- anything else: the hook failed, and things take their course; see `on_failure` for the other way.

An answer that breaks the format is a failure as a whole: half an answer is never taken.
"""

from __future__ import annotations

import json
from typing import Any, Literal

import msgspec
from msgspec import Struct

from perdure.encoding import encode
from perdure.entry import Json
from perdure.errors import AppendRejectedError
from perdure.hook import (
    HookEvent,
    HookOutcome,
    Permission,
    PostToolUse,
    PreCompact,
    PreToolUse,
    SessionStart,
    Stop,
    UserPromptSubmit,
)
from perdure.view import beginning

MAX_CONTEXT_CHARS = 10_000
"""So much of one text is given to a model; all of it is in the journal."""

NO_REASON = "the hook refused without a reason"


class _Specific(Struct, rename="camel"):
    hook_event_name: str | None = None
    permission_decision: Literal["allow", "deny", "ask", "defer"] | None = None
    permission_decision_reason: str | None = None
    updated_input: dict[str, Any] | None = None
    additional_context: str | None = None


class _Answer(Struct, rename="camel"):
    continue_: bool | None = msgspec.field(default=None, name="continue")
    stop_reason: str | None = None
    suppress_output: bool | None = None
    system_message: str | None = None
    decision: Literal["approve", "allow", "block", "deny"] | None = None
    reason: str | None = None
    hook_specific_output: _Specific | None = None


_decoder = msgspec.json.Decoder(_Answer)
_KNOWN = {field.encode_name for field in msgspec.structs.fields(_Answer)}
_KNOWN_SPECIFIC = {field.encode_name for field in msgspec.structs.fields(_Specific)}


class Answer(Struct, frozen=True):
    """What a run came to: the outcome, why it counts as failed, and what of it has no effect."""

    outcome: HookOutcome = HookOutcome()
    failure: str | None = None
    unsupported: tuple[str, ...] = ()


def read_answer(event: HookEvent, exit: int, stdout: str, stderr: str) -> Answer:
    """The answer of a command that ended by itself with this status."""
    if exit == 2:
        return Answer(refusal(event, stderr.strip() or NO_REASON))
    if exit != 0:
        says = stderr.strip().split("\n", 1)[0][:500]
        return Answer(failure=f"exit status {exit}" + (f": {says}" if says else ""))
    text = stdout.strip()
    if not text.startswith("{"):
        takes_text = isinstance(event, SessionStart | UserPromptSubmit)
        return Answer(HookOutcome(context=_context(text)) if takes_text else HookOutcome())
    text = _cleaned(text)
    try:
        answer = _decoder.decode(text)
        unsupported = _unsupported(msgspec.json.decode(text))
    except (msgspec.DecodeError, RecursionError) as error:
        return Answer(failure=f"its answer is not of the format: {error}")
    specific = answer.hook_specific_output or _Specific()
    if specific.hook_event_name not in (None, event.name):
        return Answer(failure=f"its answer is one to {specific.hook_event_name!r}")
    return Answer(_outcome(event, answer, specific), unsupported=unsupported)


def _cleaned(text: str) -> str:
    """The JSON with each lone surrogate as U+FFFD: some writers make them of odd file names."""
    if "\\ud" not in text.lower():
        return text
    try:
        return encode(json.loads(text)).decode()
    except (ValueError, RecursionError, AppendRejectedError):
        return text


def refusal(event: HookEvent, reason: str) -> HookOutcome:
    """The outcome of a hook that refuses, at this event."""
    match event:
        case PreToolUse():
            return HookOutcome(permission="deny", reason=reason)
        case UserPromptSubmit() | PreCompact():
            return HookOutcome(refused=reason)
        case PostToolUse():
            return HookOutcome(context=_context(reason))
        case Stop():
            return HookOutcome(goes_on=reason)
        case _:
            return HookOutcome(notices=(reason,))


def _outcome(event: HookEvent, answer: _Answer, specific: _Specific) -> HookOutcome:
    notices = (answer.system_message,) if answer.system_message else ()
    context = _context(specific.additional_context or "")
    is_blocked = answer.decision in ("block", "deny")
    reason = answer.reason or NO_REASON
    ends = None
    if answer.continue_ is False:
        ends = answer.stop_reason or "a hook ended the turn"
    match event:
        case PreToolUse():
            permission, why = _permission(answer, specific)
            changed: Json = specific.updated_input
            if specific.permission_decision == "defer":
                changed, context = None, ()
            return HookOutcome(
                permission=permission if ends is None else "deny",
                reason=why if ends is None else ends,
                changed_input=changed,
                context=context,
                ends=ends,
                notices=notices,
            )
        case PostToolUse():
            said = _context(reason) if is_blocked else ()
            return HookOutcome(context=(*said, *context), ends=ends, notices=notices)
        case SessionStart():
            return HookOutcome(context=context, ends=ends, notices=notices)
        case UserPromptSubmit():
            refused = ends or (reason if is_blocked else None)
            return HookOutcome(refused=refused, context=context, notices=notices)
        case PreCompact():
            return HookOutcome(refused=ends or (reason if is_blocked else None), notices=notices)
        case Stop():
            goes_on = "\n".join((*((reason,) if is_blocked else ()), *context)) or None
            return HookOutcome(goes_on=goes_on, ends=ends, notices=notices)
        case _:
            return HookOutcome(notices=notices)


def _permission(answer: _Answer, specific: _Specific) -> tuple[Permission | None, str | None]:
    """The decision and its reason; `defer` is `ask`: both wait, and hold nothing meanwhile."""
    match specific.permission_decision:
        case "allow" | "ask" | "deny" as decided:
            why = specific.permission_decision_reason
            return decided, why or (NO_REASON if decided == "deny" else None)
        case "defer":
            return "ask", None
    match answer.decision:
        case "approve" | "allow":
            return "allow", answer.reason
        case "block" | "deny":
            return "deny", answer.reason or NO_REASON
        case None:
            return None, None


def _context(text: str) -> tuple[str, ...]:
    text = text.strip()
    if len(text) > MAX_CONTEXT_CHARS:
        shown = beginning(text, MAX_CONTEXT_CHARS)
        text = f"{shown}\n[{len(text) - len(shown)} more characters are left out]"
    return (text,) if text else ()


def _unsupported(answer: dict[str, Any]) -> tuple[str, ...]:
    specific = answer.get("hookSpecificOutput") or {}
    names = [name for name in answer if name not in _KNOWN]
    names += [f"hookSpecificOutput.{name}" for name in specific if name not in _KNOWN_SPECIFIC]
    return tuple(name[:80] for name in names[:20])
