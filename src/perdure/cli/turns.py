"""What the facts of a journal tell of the turns on a path, for a person who reads it.

A turn's facts stand between its entries. A turn that grew beside the path, another attempt at one
of its messages, is told of in a line of its own, with the leaf at which the whole of it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from perdure.cli.render import local_time, part_text
from perdure.cli.terminal import one_line
from perdure.codec import StoredEntry
from perdure.entry import Message
from perdure.fact import (
    ApprovalAnswered,
    Gap,
    LateResult,
    MessageDiscarded,
    RuntimeAttached,
    RuntimeLost,
    ToolDispatched,
    TurnEnded,
    TurnStarted,
)


@dataclass(slots=True)
class Turn:
    """A turn's entries, in append order, without the message that it answers."""

    started: TurnStarted | None = None
    message_id: str | None = None
    entries: list[StoredEntry] = field(default_factory=list)
    facts: list[StoredEntry] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    """The tools that it called, by call id."""

    @property
    def ended(self) -> TurnEnded | None:
        """How it ended, if it did."""
        ends = (view for each in self.facts if isinstance(view := each.view, TurnEnded))
        return next(ends, None)


def read_turns(entries: Sequence[StoredEntry]) -> list[Turn]:
    """The turns of a journal, in their order; what is outside of all of them is the first.

    A late result belongs to the turn that made its call.
    """
    turns = [Turn()]
    is_open = False
    for stored in entries:
        view = stored.view
        turn = turns[-1] if is_open else turns[0]
        match view:
            case TurnStarted(message_id=message_id):
                turns.append(Turn(view, message_id, facts=[stored]))
                is_open = True
                continue
            case LateResult(call_id=call_id):
                turn = next((each for each in reversed(turns) if call_id in each.names), turn)
            case ToolDispatched(call_id=call_id, name=name):
                turn.names[call_id] = name
            case TurnEnded():
                is_open = False
            case _:
                pass
        if not stored.entry.in_tree:
            turn.facts.append(stored)
        elif stored.id != turn.message_id:
            turn.entries.append(stored)
    return turns


def told_on(
    entries: Sequence[StoredEntry], path_ids: AbstractSet[str], session_id: str
) -> list[tuple[int, str]]:
    """The lines that belong between the entries of a path, each with the `seq` it stands at."""
    lines: list[tuple[int, str]] = []
    for turn in read_turns(entries):
        is_beside = turn.entries and not any(each.id in path_ids for each in turn.entries)
        if turn.started is not None and turn.message_id not in path_ids:
            continue
        if turn.started is not None and is_beside:
            lines.append(_beside(turn, session_id))
            continue
        lines += [
            (stored.seq, f"·· {said} · {local_time(stored.entry.created_at)}{more}")
            for stored in turn.facts
            for said, more in _say(stored, turn)
        ]
    return sorted(lines)


def _say(stored: StoredEntry, turn: Turn) -> Iterator[tuple[str, str]]:
    """What a fact says, before and after its time, if it says something to a reader."""
    match stored.view:
        case TurnStarted(resends=resends, source=source):
            if resends is not None:
                yield "sent again", ""
            elif source != "user":
                yield f"sent by a {source}", ""
        case RuntimeAttached(runtime_id=runtime_id):
            yield f"tools run in {one_line(runtime_id)}", ""
        case RuntimeLost(runtime_id=runtime_id, cause=cause):
            yield f"the runtime {one_line(runtime_id)} was lost", _cause(cause)
        case TurnEnded(reason=reason, cause=cause) if reason != "completed":
            yield (
                f"the turn was {reason}" if reason != "failed" else "the turn failed",
                _cause(cause),
            )
        case LateResult(call_id=call_id, parts=parts):
            name = one_line(turn.names.get(call_id, call_id))
            texts = [part_text(part).removesuffix("\n") for part in parts]
            yield f"a result of {name} came late, and changes nothing", "\n" + "\n".join(texts)
        case ApprovalAnswered(call_id=call_id, approve=approve, reason=reason):
            name = one_line(turn.names.get(call_id, call_id))
            yield f"{name} was {'approved' if approve else 'refused'}", _cause(reason)
        case MessageDiscarded(why=why):
            yield "a message that waited was discarded", _cause(why)
        case Gap():
            yield "something is missing here", "\n" + stored.raw.decode(errors="replace")
        case _:
            pass


def _cause(cause: str | None) -> str:
    return f"\n{cause}" if cause else ""


def _beside(turn: Turn, session_id: str) -> tuple[int, str]:
    """Another attempt at a message of the path."""
    assert turn.started is not None
    first, end = turn.facts[0], turn.ended
    reason = "not ended" if end is None else end.reason
    lost = any(isinstance(each.view, RuntimeLost) for each in turn.facts)
    late = sum(isinstance(each.view, LateResult) for each in turn.facts)
    calls = [
        call.name
        for each in turn.entries
        if isinstance(view := each.view, Message) and view.role == "assistant"
        for call in view.tool_calls
    ]
    told = [f"·· another attempt, {reason} · {local_time(first.entry.created_at)}"]
    if end is not None and end.cause:
        told.append(end.cause)
    elif lost:
        told.append("its runtime was lost")
    if calls:
        told.append(f"it called {', '.join(map(one_line, calls))}")
    if late:
        told.append("a result came late" if late == 1 else f"{late} results came late")
    told.append(f"all of it: perdure show {one_line(session_id)} --leaf {turn.entries[-1].id}")
    return turn.entries[0].seq, "\n   ".join(told)
