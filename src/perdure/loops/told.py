"""A conversation for a model that is offered no tool: its calls and results, told as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from perdure.entry import Message, Part, Reasoning, Text, ToolCall, ToolResult
from perdure.view import excerpt_result


def without_calls(messages: Sequence[Message]) -> list[Message]:
    """The messages with their calls and results told as text, for a model that is offered no tool.

    Providers refuse calls in a conversation whose request declares no tools.
    """
    return [
        replace(message, role=_told_role(message), parts=_told(message)) for message in messages
    ]


def _told_role(message: Message) -> Any:
    return "user" if message.role == "tool" else message.role


def _told(message: Message) -> tuple[Part, ...]:
    told: list[Part] = []
    for part in message.parts:
        match part:
            case ToolCall():
                told.append(Text(f"[calls the tool {part.name} with {part.arguments}]"))
            case ToolResult():
                shown = excerpt_result(part)
                others = [each for each in shown.parts if not isinstance(each, Text)]
                state = "failed" if part.is_error else "gave"
                told += [Text(f"[the tool {part.name or ''} {state}:\n{shown.text}]"), *others]
            case Reasoning():
                pass
            case _:
                told.append(part)
    return tuple(told)
