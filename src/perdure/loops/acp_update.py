"""The updates of an Agent Client Protocol session, as what an agent tells.

They are read from the raw messages and not through the protocol's models: a field that a model does
not know, such as a tool's name, is not lost, and an update that breaks the protocol costs itself.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from difflib import unified_diff
from typing import Any

from perdure.encoding import encode, kept
from perdure.entry import File, Json, Text
from perdure.loops.agent_told import CallState, CallTold, Said

_STATES: Mapping[object, CallState] = {
    "pending": "pending",
    "in_progress": "running",
    "completed": "done",
    "failed": "failed",
}
_WORD = re.compile(r"[A-Za-z_][\w.:/-]{0,63}\Z")
_KEPT = {"title": "title", "kind": "kind", "locations": "locations", "rawOutput": "output"}

_MOST_COMPARED = 250_000
"""Of how many pairs of lines a diff is made, in some hundredths of a second."""


def read_update(update: Mapping[str, Any]) -> Said | CallTold | None:
    """What an update tells; None for what has no place in a transcript (modes, plans, usage)."""
    match update.get("sessionUpdate"):
        case "agent_message_chunk":
            return _said(update, "text")
        case "agent_thought_chunk":
            return _said(update, "reasoning")
        case "tool_call":
            return read_call(update, is_first=True)
        case "tool_call_update":
            return read_call(update)
    return None


def _said(update: Mapping[str, Any], kind: Any) -> Said | None:
    text = _text(update.get("content"))
    message_id = update.get("messageId")
    return Said(text, kind, message_id if isinstance(message_id, str) else None) if text else None


def read_call(call: Mapping[str, Any], *, is_first: bool = False) -> CallTold | None:
    """What an update, or a request for permission, tells of a call."""
    call_id = call.get("toolCallId")
    if not isinstance(call_id, str):
        return None
    output = call.get("content")
    raw = call.get("rawOutput")
    parts = _parts(output) if isinstance(output, list) else None
    if not parts and raw is not None and not _streamed(call):
        parts = [Text(raw if isinstance(raw, str) else encode(kept(raw)).decode())]
    status = call.get("status")
    state = _STATES.get(status) if isinstance(status, str) else None
    extra: dict[str, Json] = {
        mine: call[theirs] for theirs, mine in _KEPT.items() if call.get(theirs) is not None
    }
    if isinstance(output, list) and any(_is_diff(each) for each in output):
        extra["content"] = output
    return CallTold(
        call_id,
        is_first=is_first,
        name=_name(call) if is_first else _own_name(call),
        arguments=call.get("rawInput") or None,
        state=state,
        is_whole=not is_first and isinstance(output, list),
        output=parts,
        more=_streamed(call),
        provider=extra or None,
    )


def _own_name(call: Mapping[str, Any]) -> str | None:
    """The tool's name, where the agent gives it beside the protocol's title and kind."""
    if isinstance(name := call.get("name"), str) and name:
        return name
    for extra in (call.get("_meta") or {}).values() if isinstance(call.get("_meta"), dict) else ():
        if isinstance(extra, dict) and isinstance(name := extra.get("toolName"), str) and name:
            return name
    return None


def _streamed(call: Mapping[str, Any]) -> str:
    """Output of a command, which agents add to a call outside of the protocol's fields."""
    extra = call.get("_meta")
    for name in ("terminal_output_delta", "terminal_output"):
        output = extra.get(name) if isinstance(extra, dict) else None
        if isinstance(output, dict) and isinstance(data := output.get("data"), str):
            return data
    return ""


def _name(call: Mapping[str, Any]) -> str | None:
    kind, title = call.get("kind"), call.get("title")
    if (own := _own_name(call)) is not None:
        return own
    if isinstance(kind, str) and kind != "other":
        return kind
    return title if isinstance(title, str) and _WORD.match(title) else "other"


def _parts(content: list[Any]) -> list[Text | File]:
    made = (_part(each) for each in content if isinstance(each, dict))
    return [part for part in made if part is not None]


def _part(content: Mapping[str, Any]) -> Text | File | None:
    match content.get("type"):
        case "content":
            block = content.get("content")
            if isinstance(block, dict) and block.get("type") == "image":
                return _image(block)
            text = _text(block)
            return Text(text) if text else None
        case "diff":
            return Text(_diff(content))
    return None


def _is_diff(content: Any) -> bool:
    return isinstance(content, dict) and content.get("type") == "diff"


def _diff(content: Mapping[str, Any]) -> str:
    """The lines that changed; where finding out which would take too long, all between them."""
    path = str(content.get("path"))
    old, new = (str(content.get(name) or "").split("\n") for name in ("oldText", "newText"))
    head = _common(old, new)
    tail = _common(old[head:][::-1], new[head:][::-1])
    removed, added = old[head : len(old) - tail], new[head : len(new) - tail]
    if len(removed) * len(added) <= _MOST_COMPARED:
        return "\n".join(unified_diff(old, new, path, path, lineterm=""))
    hunk = f"@@ -{head + 1},{len(removed)} +{head + 1},{len(added)} @@"
    lines = [f"--- {path}", f"+++ {path}", hunk]
    return "\n".join([*lines, *(f"-{line}" for line in removed), *(f"+{line}" for line in added)])


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """How many lines both begin with."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(one), len(other)))


def _text(block: Any) -> str:
    if not isinstance(block, dict):
        return ""
    match block.get("type"):
        case "text":
            text = block.get("text")
            return text if isinstance(text, str) else ""
        case "resource_link":
            return f"[{block.get('name') or 'resource'}: {block.get('uri')}]"
        case "resource":
            resource = block.get("resource")
            text = resource.get("text") if isinstance(resource, dict) else None
            return text if isinstance(text, str) else ""
        case "image" | "audio":
            return f"[{block.get('type')}: {block.get('mimeType')}]"
    return ""


def _image(block: Mapping[str, Any]) -> File | Text:
    kind, data = block.get("mimeType"), block.get("data")
    try:
        return File(str(kind), base64.b64decode(str(data), validate=True))
    except (binascii.Error, ValueError):
        return Text("[an image that cannot be read]")
