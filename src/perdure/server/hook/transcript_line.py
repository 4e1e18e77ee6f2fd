"""An entry of a conversation as a line of the transcripts that coding agents keep.

The lines are a tree as the entries are: `uuid` and `parentUuid`. Tools have the names and arguments
that a command is told of; the text of a result is what a model is shown of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from perdure.codec import StoredEntry
from perdure.encoding import encode
from perdure.entry import (
    Compaction,
    File,
    Json,
    Message,
    Part,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
)
from perdure.server.hook.tool_name import outward
from perdure.view import excerpt_result


def line_of(stored: StoredEntry, session_id: str, folder: Path) -> bytes:
    """The line of a tree entry, with its newline; a fact has none."""
    entry = stored.entry
    if not entry.in_tree:
        return b""
    line: dict[str, Any] = {
        "parentUuid": entry.parent_id,
        "isSidechain": False,
        "userType": "external",
        "cwd": str(folder),
        "sessionId": session_id,
        "uuid": entry.id,
        "timestamp": entry.created_at,
    }
    match entry.view:
        case Message(role="assistant") as message:
            line |= {"type": "assistant", "message": _answer(entry.id, message, folder)}
        case Message(role="system") as message:
            line |= {"type": "system", "content": message.text}
        case Message() as message:
            line |= {"type": "user", "message": {"role": "user", "content": _said(message)}}
            if message.meta:
                line["isMeta"] = True
        case Compaction(summary=summary):
            told = {"role": "user", "content": summary}
            line |= {"type": "user", "message": told, "isCompactSummary": True}
        case _:
            line |= {"type": "system", "subtype": entry.type, "content": ""}
    return encode(line) + b"\n"


def _answer(entry_id: str, message: Message, folder: Path) -> dict[str, Any]:
    provider = message.provider if isinstance(message.provider, dict) else {}
    content = [block for part in message.parts if (block := _block(part, folder)) is not None]
    return {
        "id": entry_id,
        "type": "message",
        "role": "assistant",
        "model": provider.get("model_name") or "",
        "content": content,
        "usage": _usage(provider.get("usage")),
    }


def _usage(usage: Json) -> dict[str, Json]:
    counted = usage if isinstance(usage, dict) else {}
    return {name: counted.get(name, 0) for name in ("input_tokens", "output_tokens")}


def _block(part: Part, folder: Path) -> dict[str, Any] | None:
    match part:
        case Text(text=text):
            return {"type": "text", "text": text}
        case Reasoning(text=text):
            return {"type": "thinking", "thinking": text} if text else None
        case ToolCall(call_id=call_id, name=name, arguments=arguments):
            tool, given = outward(name, arguments, folder)
            return {"type": "tool_use", "id": call_id, "name": tool, "input": given}
        case _:
            return {"type": "text", "text": _shown((part,))}


def _said(message: Message) -> str | list[dict[str, Any]]:
    """A text, or the results of tools."""
    if not message.tool_results:
        return _shown(message.parts)
    return [
        {
            "type": "tool_result",
            "tool_use_id": result.call_id,
            "content": _shown(excerpt_result(result).parts),
            "is_error": result.is_error,
        }
        for result in message.tool_results
    ]


def _shown(parts: Iterable[Part]) -> str:
    shown: list[str] = []
    for part in parts:
        match part:
            case Text(text=text):
                shown.append(text)
            case File():
                shown.append(f"[a file: {part.name or part.media_type}]")
            case ToolResult():
                pass
            case _:
                shown.append("[a part that cannot be shown]")
    return "\n".join(shown)
