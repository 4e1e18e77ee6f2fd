"""Two readings of a path: what a model gets, and what a person reads. Pure functions.

A model view never holds a tool call without exactly one result, nor a result without its call. A
call that has none gets a synthesised *interrupted* one, placed with its batch; a real result
always wins over a synthesised one. Looking never writes: `repairs` says what a writer would add.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import insort
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TypeVar

from msgspec.structs import replace

from perdure.codec import AnyEntry, Entry
from perdure.entry import Compaction, Message, Part, Text, ToolCall, ToolResult

_Form = TypeVar("_Form", bound=AnyEntry)

INTERRUPTED = "interrupted: this call was cut off before it gave a result; it may have had effects"


def model_view(path: Sequence[AnyEntry], *, waiting: Collection[str] = ()) -> list[Message]:
    """The messages that a model is given: O(path from its newest compaction's first kept entry).

    The newest compaction's summary as a `meta` user message, then everything from its first kept
    entry, `meta` messages included; custom entries are skipped. The results of a batch of calls
    follow its message, in call order. The calls whose ids are `waiting` are about to get their
    results, and get none made up.
    """
    summary, kept = effective_path(path)
    view = _paired(_messages(kept), waiting)
    return [_summary_message(summary), *view] if summary is not None else view


def _messages(path: Iterable[AnyEntry]) -> list[Message]:
    return [view for entry in path if isinstance(view := entry.view, Message)]


def effective_path(path: Sequence[_Form]) -> tuple[_Form | None, list[_Form]]:
    """The newest compaction on the path, and the entries that the model sees beside it."""
    for index in range(len(path) - 1, -1, -1):
        compaction = path[index].view if path[index].type == "compaction" else None
        if isinstance(compaction, Compaction):
            kept = path[index + 1 :]
            if compaction.first_kept_id is not None:
                for first in range(index - 1, -1, -1):
                    if path[first].id == compaction.first_kept_id:
                        kept = [*path[first:index], *kept]
                        break
            return path[index], [entry for entry in kept if entry.type != "compaction"]
    return None, list(path)


def _summary_message(entry: AnyEntry) -> Message:
    compaction = entry.view
    assert isinstance(compaction, Compaction)
    content = f"Summary of the conversation so far:\n\n{compaction.summary}"
    return Message(
        "user",
        (Text(content),),
        meta=True,
        id=compaction.id,
        created_at=compaction.created_at,
        parent_id=compaction.parent_id,
    )


class _Slot:
    """One call and the result it has so far."""

    __slots__ = ("call", "caller_id", "message", "number", "result")

    def __init__(self, call: ToolCall, caller_id: str) -> None:
        self.call = call
        self.caller_id = caller_id
        self.number = 0
        self.result: ToolResult | None = None
        self.message: Message | None = None

    def result_message(self, caller: Message) -> Message:
        """The message of its one result, interrupted where nothing gave one."""
        if self.result is None or self.message is None:
            return Message(
                "tool",
                (interrupted_result(self.call),),
                id=f"interrupted:{caller.id}:{self.call.call_id}",
                created_at=caller.created_at,
                parent_id=caller.id,
            )
        return replace(self.message, role="tool", parts=(excerpt_result(self.result),))


def interrupted_result(call: ToolCall, why: str = INTERRUPTED) -> ToolResult:
    """The result of a call that gave none."""
    return ToolResult(call.call_id, (Text(why),), name=call.name, is_error=True, interrupted=True)


class _Pairing:
    """Which result belongs to which call on a path that grows.

    A result goes to the newest call of its id that it is better for (any is better than none, and
    a real one than an interrupted one); calls of one message that share an id get theirs in order.
    """

    def __init__(self) -> None:
        self.open: dict[_Slot, None] = {}
        self._count = 0
        self._empty: dict[str, list[_Slot]] = {}
        self._interrupted: dict[str, list[_Slot]] = {}

    def add(self, message: Message) -> list[_Slot]:
        """Takes the next message into account; returns the slots of its calls."""
        is_spoken = message.role == "assistant"
        slots = [_Slot(call, message.id) for call in message.tool_calls] if is_spoken else []
        self.open.update(dict.fromkeys(slots))
        for slot in reversed(slots):
            self._count += 1
            slot.number = self._count
            self._empty.setdefault(slot.call.call_id, []).append(slot)
        for result in message.tool_results:
            self._put(result, message)
        return slots

    def _put(self, result: ToolResult, message: Message) -> None:
        slots = self._empty.get(result.call_id, [])
        if not result.interrupted and (others := self._interrupted.get(result.call_id)):
            slots = max(slots, others, key=lambda each: each[-1].number if each else 0)
        if not slots:
            return
        slot = slots.pop()
        slot.result, slot.message = result, message
        self.open.pop(slot, None)
        if result.interrupted:
            waiting = self._interrupted.setdefault(result.call_id, [])
            insort(waiting, slot, key=lambda each: each.number)


def _paired(messages: Iterable[Message], waiting: Collection[str] = ()) -> list[Message]:
    pairing = _Pairing()
    batches = [(message, pairing.add(message)) for message in messages]
    view: list[Message] = []
    for message, slots in batches:
        rest = tuple(part for part in message.parts if _stands_alone(part, message))
        if rest:
            same = len(rest) == len(message.parts)
            view.append(message if same else replace(message, parts=rest))
        view.extend(
            slot.result_message(message)
            for slot in slots
            if slot.result is not None or slot.call.call_id not in waiting
        )
    return view


def _stands_alone(part: Part, message: Message) -> bool:
    """Whether a part is shown where it stands: results are not, nor calls that nobody can make."""
    if isinstance(part, ToolCall):
        return message.role == "assistant"
    return not isinstance(part, ToolResult)


_PAIRED = frozenset({ToolCall, ToolResult})


class OpenCalls:
    """The calls of a growing path that have no result yet, in order; `add` costs O(its parts)."""

    def __init__(self, path: Iterable[Entry] = ()) -> None:
        self._pairing = _Pairing()
        for entry in path:
            self.add(entry)

    def add(self, entry: Entry) -> None:
        """Takes the path's next entry into account."""
        if entry.type != "message" or not isinstance(message := entry.view, Message):
            return
        if not _PAIRED.isdisjoint(map(type, message.parts)):
            self._pairing.add(message)

    def __iter__(self) -> Iterator[ToolCall]:
        return (slot.call for slot in self._pairing.open)

    @property
    def callers(self) -> list[tuple[str, ToolCall]]:
        """The same calls, each with the id of the message that made it."""
        return [(slot.caller_id, slot.call) for slot in self._pairing.open]

    def __bool__(self) -> bool:
        return bool(self._pairing.open)


def open_calls(path: Iterable[Entry]) -> list[ToolCall]:
    """The calls on the path that have no result, in order."""
    return list(OpenCalls(path))


def repairs(calls: Iterable[ToolCall], in_flight: Collection[str] = ()) -> list[Message]:
    """The messages that make the repair of open calls durable: one interrupted result for each.

    A call that is `in_flight` (by call id), or that waits for an approval, is not an orphan.
    """
    return [
        Message("tool", (interrupted_result(call),))
        for call in calls
        if call.call_id not in in_flight
    ]


def transcript_view(path: Sequence[_Form]) -> list[_Form]:
    """What a person reads: the path without `meta` messages; O(path).

    Custom entries and compactions are kept, and so is everything before a compaction.
    """
    return [entry for entry in path if not (isinstance(view := entry.view, Message) and view.meta)]


def excerpt_result(result: ToolResult) -> ToolResult:
    """The result as a model is shown it: its text cut to `limit_chars`, the rest unchanged."""
    limit = result.limit_chars
    if limit is None or len(content := result.text) <= max(limit, 0):
        return result
    others = tuple(part for part in result.parts if not isinstance(part, Text))
    return replace(result, parts=(Text(excerpt(content, limit)), *others))


def excerpt(content: str, limit_chars: int) -> str:
    """The beginning and the end of a text, and between them how much was left out.

    At most `limit_chars` code points of the text are kept, and a character that a person sees as
    one (a letter and its accents, a syllable, a joined emoji) is kept or left out whole.
    """
    limit_chars = max(limit_chars, 0)
    if len(content) <= limit_chars:
        return content
    head = beginning(content, limit_chars // 2)
    tail = ending(content, limit_chars - limit_chars // 2)
    left_out = len(content) - len(head) - len(tail)
    return f"{head}\n[… {left_out} characters left out …]\n{tail}"


def beginning(content: str, most_chars: int) -> str:
    """The first code points of a text, at most so many; no character is split, as in `excerpt`."""
    index = min(max(most_chars, 0), len(content))
    while index > 0 and _joins(content, index):
        index -= 1
    return content[:index]


def ending(content: str, most_chars: int) -> str:
    """The last code points of a text, at most so many; no character is split, as in `excerpt`."""
    index = max(len(content) - max(most_chars, 0), 0)
    while index < len(content) and _joins(content, index):
        index += 1
    return content[index:]


_ZERO_WIDTH_JOINER = "\u200d"
_EXTENDERS = re.compile(
    "[\u200c\u200d\uff9e\uff9f\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f"  # skin, flag tags
    "\u1160-\u11ff\ud7b0-\ud7fb]"  # vowels and finals of Hangul that continue a syllable
)
_VIRAMA = 9


def _joins(content: str, index: int) -> bool:
    """Whether the code point at `index` belongs to the character before it.

    Source: Unicode annex 29, extended grapheme clusters; where that needs tables that Python does
    not have, this joins rather than splits.
    """
    if index <= 0 or index >= len(content):
        return False
    here, before = content[index], content[index - 1]
    return (
        unicodedata.category(here) in {"Mn", "Me", "Mc"}
        or _EXTENDERS.match(here) is not None
        or before == _ZERO_WIDTH_JOINER
        or ("\u1100" <= before <= "\u115f" and "\u1100" <= here <= "\ud7a3")
        or (unicodedata.combining(before) == _VIRAMA and here.isalpha())
        or ("\U0001f1e6" <= here <= "\U0001f1ff" and _odd_flag(content, index))
        or (here == "\n" and before == "\r")
    )


def _odd_flag(content: str, index: int) -> bool:
    count = 0
    while index > 0 and "\U0001f1e6" <= content[index - 1] <= "\U0001f1ff":
        index -= 1
        count += 1
    return count % 2 == 1
