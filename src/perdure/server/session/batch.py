"""The batches that an actor appends."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.codec import Draft, Entry, seal
from perdure.entry import Message
from perdure.fact import TurnStarted


def started(turn_id: str, message: Message, *, resends: str | None = None) -> TurnStarted:
    """The start of a turn; its fact has the turn's id."""
    return TurnStarted(id=turn_id, turn_id=turn_id, message_id=message.id, resends=resends)


def chain(drafts: Sequence[Draft], leaf_id: str | None) -> list[Entry]:
    """Seals the drafts; the tree entries among them as a chain from the leaf."""
    batch: list[Entry] = []
    for draft in drafts:
        entry = seal(draft, leaf_id)
        if entry.in_tree:
            leaf_id = entry.id
        batch.append(entry)
    return batch
