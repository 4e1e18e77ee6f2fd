"""What a turn was seen to do, as its session's journal says: tool calls, results, last words.

The journal records what the agent did, not what its tools did to the world. What was cut off is
said to be: whether it had effects is not known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct

from perdure.codec import StoredEntry
from perdure.encoding import encode
from perdure.entry import File, Message, Text, ToolCall, ToolResult
from perdure.errors import EntryNotFoundError
from perdure.fact import HookRan, LateResult, TurnEnded, TurnStarted
from perdure.server.journal import JournalStore
from perdure.view import ending

MAX_OUTPUT_CHARS = 64 * 1024
"""How much of a turn's last words is handed on to other steps."""

MOST_CALLS = 40
ARGUMENT_CHARS = 600
RESULT_CHARS = 800
_PAGE = 256


class SeenCall(Struct, frozen=True):
    """A tool call, with the beginning of what it was given, and the end of what it gave.

    `interrupted`: it was cut off, or its result never came.
    """

    name: str
    arguments: str
    result: str
    state: Literal["ok", "error", "interrupted"]


class Seen(Struct, frozen=True):
    """The calls of a turn: the last ones, and how many came before them.

    `output` is what was said last; where nothing was, what the last call gave. `ended` says how.
    """

    calls: tuple[SeenCall, ...] = ()
    earlier: int = 0
    output: str = ""
    ended: str = ""

    def as_json(self) -> Any:
        """As it is stored, without the last words and the end."""
        if not self.calls:
            return None
        calls: Any = msgspec.json.decode(encode(list(self.calls)))
        return {"calls": calls, "earlier": self.earlier}


def read_seen(value: Any) -> Seen:
    """What was stored; nothing, where a newer version stored something else."""
    try:
        found = msgspec.convert(value or {}, Seen)
    except msgspec.ValidationError:
        return Seen()
    return found


async def look_at_turn(store: JournalStore, session_id: str, turn_id: str) -> Seen:
    """What the turn was seen to do; O(its entries).

    Raises:
        SessionNotFoundError, StoreError, UnrecoverableError.

    """
    try:
        seq = (await store.load_entry(session_id, turn_id)).seq
    except EntryNotFoundError:
        return Seen()
    calls: dict[str, ToolCall] = {}
    results: dict[str, ToolResult] = {}
    late: dict[str, str] = {}
    output = last_result = ended = ""
    async for stored in _entries_after(store, session_id, seq):
        match stored.view:
            case Message(role="assistant") as said:
                calls |= {each.call_id: each for each in said.tool_calls}
                output = said.text or output
            case Message(role="tool") as answered:
                results |= {each.call_id: each for each in answered.tool_results}
                last_result = "".join(_text(each.parts) for each in answered.tool_results)
            case LateResult(call_id=call_id, parts=parts):
                late[call_id] = _text(parts)
            case TurnEnded(reason=reason, cause=cause):
                ended = f"{reason} ({cause})" if cause else reason
            case TurnStarted():
                break
            case _:
                pass
    listed = list(calls.values())
    shown = [_seen(each, results.get(each.call_id), late) for each in listed[-MOST_CALLS:]]
    earlier = max(0, len(listed) - MOST_CALLS)
    return Seen(tuple(shown), earlier, cut(output or last_result, MAX_OUTPUT_CHARS), ended)


async def count_goings_on(store: JournalStore, session_id: str, turn_id: str) -> int:
    """How often the open turn went on because its Stop hooks said so; O(its entries).

    They are asked when a run is through, and each time before the turn's end it went on.

    Raises:
        StoreError, UnrecoverableError.

    """
    try:
        seq = (await store.load_entry(session_id, turn_id)).seq
    except EntryNotFoundError:
        return 0
    asked: Counter[str] = Counter()
    async for stored in _entries_after(store, session_id, seq):
        if stored.type == "hook_ran":
            match stored.view:
                case HookRan(event="Stop", handler=handler):
                    asked[handler] += 1
    return max(asked.values(), default=0)


async def _entries_after(
    store: JournalStore, session_id: str, seq: int
) -> AsyncIterator[StoredEntry]:
    has_more = True
    while has_more:
        page = await store.page_entries(session_id, after=seq, limit=_PAGE)
        has_more = page.has_more
        for stored in page.entries:
            yield stored
            seq = stored.seq


def _seen(call: ToolCall, result: ToolResult | None, late: dict[str, str]) -> SeenCall:
    given = call.arguments
    arguments = given if isinstance(given, str) else encode(given).decode()
    arguments = cut(arguments, ARGUMENT_CHARS)
    if result is None or result.interrupted:
        came_late = late.get(call.call_id)
        text = "" if came_late is None else f"(came late) {tail(came_late, RESULT_CHARS)}"
        return SeenCall(call.name, arguments, text, "interrupted")
    state: Literal["ok", "error"] = "error" if result.is_error else "ok"
    return SeenCall(call.name, arguments, tail(_text(result.parts), RESULT_CHARS), state)


def _text(parts: Sequence[object]) -> str:
    said = [
        part.text if isinstance(part, Text) else f"[a file: {part.media_type}]"
        for part in parts
        if isinstance(part, Text | File)
    ]
    return "".join(said)


def cut(text: str, most: int) -> str:
    """The beginning of a text that is too long, which says so."""
    if len(text) <= most:
        return text
    return f"{text[:most]}… [{len(text) - most} characters more are in the session]"


def tail(text: str, most: int, where: str = "are in the session") -> str:
    """The end of a text that is too long, which says so, and what became of the rest."""
    if len(text) <= most:
        return text
    return f"[{len(text) - most} characters before this {where}] …{ending(text, most)}"


def say_seen(seen: Seen) -> str:
    """The calls as lines for a model, or a person."""
    if not seen.calls:
        return "No tool call of it was seen."
    lines = [] if not seen.earlier else [f"- {seen.earlier} calls that are not shown, then:"]
    for call in seen.calls:
        lines.append(f"- {call.name} {call.arguments}")
        if call.state == "interrupted":
            cause = "it was cut off before its result: it may have had effects, or not"
            lines.append(f"  → {cause}{f' {call.result}' if call.result else ''}")
        else:
            result = call.result.strip("\n").replace("\n", "\n    ") or "(nothing)"
            lines.append(f"  → {'error: ' if call.state == 'error' else ''}{result}")
    return "\n".join(lines)
