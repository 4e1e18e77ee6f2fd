"""A run's events on a terminal, as they come: text, tools, and their output."""

from __future__ import annotations

from typing import assert_never

from perdure.cli.render import call_text, part_text
from perdure.cli.terminal import Terminal
from perdure.entry import Message, Reasoning, Text, ToolResult
from perdure.events import (
    AgentEnd,
    AgentStart,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    RunEvent,
    RunNotice,
    ToolEnd,
    ToolStart,
)


class Conversation:
    """Shows one run; where parallel tools take turns, a heading says whose output follows."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._speaker: object = None
        self._shown: dict[tuple[str, int], int] = {}
        self._tools: dict[str, tuple[str, str]] = {}

    def show(self, event: RunEvent) -> None:
        """Writes what is new in this event."""
        match event:
            case AgentStart() | MessageStart() | AgentEnd():
                pass
            case MessageUpdate():
                self._update(event)
            case RunNotice():
                self._speak(event, f"({event.text})")
            case MessageEnd():
                self._end_message(event.message)
            case ToolStart():
                heading = call_text(event.name, event.arguments)
                self._tools[event.message_id] = (event.call_id, heading)
                self._speak(event.message_id, heading)
            case ToolEnd():
                self._end_tool(event.result)
            case unreachable:
                assert_never(unreachable)

    def end(self) -> None:
        """Leaves the cursor at the start of a line."""
        self._terminal.end_line()

    def _speak(self, speaker: object, heading: str | None) -> None:
        if speaker != self._speaker:
            self._terminal.end_line()
            if heading is not None:
                self._terminal.say(heading)
            self._speaker = speaker

    def _update(self, event: MessageUpdate) -> None:
        key = (event.message_id, event.part)
        if event.kind == "output":
            self._speak(event.message_id, self._tools[event.message_id][1])
        else:
            self._speak(key, "(reasoning)" if event.kind == "reasoning" else None)
        self._shown[key] = event.offset + len(event.text)
        self._terminal.write(event.text)

    def _end_message(self, message: Message) -> None:
        for number, part in enumerate(message.parts):
            key = (message.id, number)
            shown = self._shown.pop(key, 0)
            if isinstance(part, Text | Reasoning) and shown < len(part.text):
                reasons = isinstance(part, Reasoning)
                self._speak(key, "(reasoning)" if reasons else None)
                self._terminal.write(part.text[shown:])
        self._terminal.end_line()

    def _end_tool(self, result: ToolResult) -> None:
        message_id = next(
            (key for key, (call_id, _) in self._tools.items() if call_id == result.call_id), None
        )
        if message_id is None:
            return
        _, heading = self._tools.pop(message_id)
        shown = self._shown.pop((message_id, 0), 0)
        if shown < len(result.text):
            self._speak(message_id, heading)
            self._terminal.write(result.text[shown:])
        self._terminal.end_line()
        for part in result.parts:
            if not isinstance(part, Text):
                self._terminal.say(part_text(part))
