"""The one owner of a live session."""

from __future__ import annotations

from msgspec import Struct

from perdure.codec import StoredEntry


class Sent(Struct, frozen=True):
    """A message was accepted, durably: `seq` is the entry that says so.

    `turn_id` is None while the message waits in the queue (`queued`), and when it was discarded.
    """

    message_id: str
    seq: int
    turn_id: str | None
    queued: bool


class Stopped(Struct, frozen=True):
    """Whether this ended the turn; False where it was over, or where none ran."""

    stopped: bool
    turn_id: str | None


class Compacted(Struct, frozen=True):
    """The stored compaction; `entry` is None where there was nothing to summarise."""

    entry: StoredEntry | None
    leaf_id: str | None


class Actor:
    """Follows."""
