"""The text so far of messages in the making: provisional, and bounded to what is in the making."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from perdure.entry import Ending, Message, Reasoning, Text
from perdure.events import MessageUpdate


class Partial(Struct, frozen=True):
    """One part of the message `message_id`, as far as it was shown; an offset counts code points.

    The next delta of this part has the offset `len(text)`.
    """

    turn_id: str
    message_id: str
    part: int
    text: str
    kind: Literal["text", "reasoning", "output"]
    call_id: str | None = None


class Partials:
    """The parts in the making of one session's running turn."""

    def __init__(self) -> None:
        self._texts: dict[str, dict[int, tuple[MessageUpdate, list[str]]]] = {}

    def add(self, update: MessageUpdate) -> None:
        """Adds the text of an update."""
        parts = self._texts.setdefault(update.message_id, {})
        parts.setdefault(update.part, (update, []))[1].append(update.text)

    def drop(self, message_id: str) -> None:
        """Forgets a message that is stored now."""
        self._texts.pop(message_id, None)

    def clear(self) -> None:
        """Forgets everything."""
        self._texts.clear()

    def keep(self, ending: Ending) -> list[Message]:
        """The messages in the making, as far as they were shown; outputs of tools are not."""
        kept = []
        for message_id, texts in self._texts.items():
            parts = [
                Reasoning("".join(pieces)) if update.kind == "reasoning" else Text("".join(pieces))
                for _, (update, pieces) in sorted(texts.items())
                if update.kind != "output"
            ]
            if parts:
                kept.append(Message("assistant", parts, end=ending, id=message_id))
        return kept

    def show(self, turn_id: str) -> list[Partial]:
        """The text so far of each part."""
        return [
            Partial(turn_id, message_id, part, "".join(pieces), update.kind, update.call_id)
            for message_id, parts in self._texts.items()
            for part, (update, pieces) in sorted(parts.items())
        ]
