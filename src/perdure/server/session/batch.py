"""The batches that an actor appends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from perdure.codec import Draft, Entry, seal
from perdure.entry import Message, ToolCall
from perdure.fact import LeafMoved, MessageQueued, Source, TurnStarted
from perdure.view import interrupted_result


class Input(NamedTuple):
    """What a turn starts from: a message, and who sent it."""

    message: Message
    source: Source = "user"


def input_of(queued: MessageQueued) -> Input:
    """What a turn starts from that a queued message begins."""
    return Input(Message("user", queued.parts, id=queued.message_id), queued.source)


def started(turn_id: str, given: Input, *, resends: str | None = None) -> TurnStarted:
    """The start of a turn; its fact has the turn's id."""
    return TurnStarted(
        id=turn_id,
        turn_id=turn_id,
        message_id=given.message.id,
        source=given.source,
        resends=resends,
    )


def never_made(calls: Iterable[ToolCall], reason: str) -> list[Message]:
    """The results of calls that waited for an approval when their turn ended."""
    why = f"{reason}: the call waited for an approval and was not made"
    return [Message("tool", (interrupted_result(call, why),)) for call in calls]


def chain(drafts: Sequence[Draft], leaf_id: str | None) -> list[Entry]:
    """Seals the drafts; the tree entries among them as a chain from the leaf, which may move."""
    batch: list[Entry] = []
    for draft in drafts:
        entry = seal(draft, leaf_id)
        if isinstance(draft, LeafMoved):
            leaf_id = draft.leaf_id
        if entry.in_tree:
            leaf_id = entry.id
        batch.append(entry)
    return batch
