"""An entry as a person reads it in a terminal: plain text, nothing shortened unless asked."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import UTC, datetime
from typing import assert_never

from perdure.cli.terminal import cut, one_line
from perdure.codec import Entry
from perdure.entry import (
    Compaction,
    Custom,
    File,
    Json,
    Message,
    Opaque,
    OpaquePart,
    Part,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
)
from perdure.fact import Fact


def title(entry: Entry) -> str:
    """Who or what the entry is: a role, or its type."""
    match entry.view:
        case Message() as message:
            return f"{message.role} (meta)" if message.meta else message.role
        case Custom() as custom:
            return one_line(f"custom {custom.kind}")
        case _:
            return one_line(entry.type)


def local_time(stamp: datetime) -> str:
    """A time as a person here reads it; at the edges of the calendar it stays in UTC."""
    if stamp.tzinfo is None:
        stamp = stamp.replace(tzinfo=UTC)
    with suppress(OverflowError, OSError, ValueError):
        stamp = stamp.astimezone()
    return stamp.strftime("%Y-%m-%d %H:%M:%S")


def body(entry: Entry) -> str:
    """What the entry says, whole."""
    match entry.view:
        case Message() as message:
            said = [part_text(part) for part in message.parts]
            return "\n".join([*said, f"[{message.end}]"] if message.end else said)
        case Compaction() as compaction:
            return (
                f"from here on the model sees this summary of what is above:\n{compaction.summary}"
            )
        case Custom():
            try:
                data = json.loads(entry.raw).get("data")
            except ValueError:  # a number of more digits than Python reads
                return entry.raw.decode(errors="replace")
            return "" if data is None else compact(data)
        case Opaque() | Fact():
            return entry.raw.decode(errors="replace")
        case unreachable:
            assert_never(unreachable)


def part_text(part: Part) -> str:
    """What one part says."""
    match part:
        case Text():
            return part.text
        case Reasoning():
            return f"(reasoning) {part.text}"
        case ToolCall():
            return call_text(part.name, part.arguments)
        case ToolResult():
            return result_text(part)
        case File():
            size = f"{len(part.data)} bytes" if part.data is not None else part.url or ""
            return f"[file {part.name or ''} {part.media_type}, {size}]".replace("  ", " ")
        case OpaquePart():
            return f"[{part.type}, which this version does not know] {part.raw.decode()}"
        case unreachable:
            assert_never(unreachable)


def call_text(name: str, arguments: Json) -> str:
    """A tool call, with its arguments in full."""
    return f"→ {one_line(name)} {compact(arguments)}"


def result_text(result: ToolResult) -> str:
    """A tool's result, whole."""
    files = [part_text(part) for part in result.parts if isinstance(part, File)]
    mark = "interrupted" if result.interrupted else "error" if result.is_error else None
    name = " ".join(filter(None, (result.name, f"({mark})" if mark else None)))
    return "\n".join(filter(None, [f"← {name}".rstrip(), result.text.removesuffix("\n"), *files]))


def summary_line(entry: Entry, limit: int) -> str:
    """The entry on one line of about `limit` characters."""
    return f"{cut(title(entry), limit)}: {cut(body(entry), limit)}"


def compact(value: Json) -> str:
    """JSON as a person reads it on one line."""
    return json.dumps(value, ensure_ascii=False)
