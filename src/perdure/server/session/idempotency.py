"""Ids that follow from what they name, so that the store's own idempotency holds across crashes.

The id of a message with an idempotency key follows from the session's incarnation and the key; the
ids of the facts that accept it and start its first turn follow from the message's id. Appending any
of them twice is then something that every store refuses or recognises, on every node.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from perdure.codec import encode
from perdure.entry import Part


def message_id_of(incarnation: str, idempotency_key: str) -> str:
    """The id of the message that was, or will be, sent with this key."""
    return derive(incarnation, "message", idempotency_key)


def queued_id_of(incarnation: str, message_id: str) -> str:
    """The id of the `message_queued` of this message."""
    return derive(incarnation, "message_queued", message_id)


def joined_id_of(incarnation: str, message_id: str) -> str:
    """The id of the `message_joined` of this message."""
    return derive(incarnation, "message_joined", message_id)


def turn_id_of(incarnation: str, message_id: str) -> str:
    """The id of the first turn of this message, and of the fact that starts it."""
    return derive(incarnation, "turn", message_id)


def resent_id_of(incarnation: str, turn_id: str) -> str:
    """The id of the turn that sends this one again, where that was asked for by its id."""
    return derive(incarnation, "resent", turn_id)


def ended_id_of(incarnation: str, turn_id: str) -> str:
    """The id of the one `turn_ended` of this turn."""
    return derive(incarnation, "turn_ended", turn_id)


def answered_id_of(incarnation: str, turn_id: str, call_id: str, requested_seq: int) -> str:
    """The id of the one answer to the `approval_requested` at this `seq`.

    A model may use a call's id again, in the same turn, for another call.
    """
    return derive(incarnation, "approval_answered", turn_id, call_id, str(requested_seq))


def late_id_of(incarnation: str, key: str) -> str:
    """The id of the one `late_result` of the call of this idempotency key."""
    return derive(incarnation, "late_result", key)


def same_body(one: Sequence[Part], other: Sequence[Part]) -> bool:
    """Whether two messages say the same, as entries are spelled."""
    return encode(list(one)) == encode(list(other))


def derive(*names: str) -> str:
    """The id that follows from these names, and from no others."""
    digest = hashlib.sha256()
    for name in names:
        raw = name.encode("utf-8", "surrogatepass")
        digest.update(len(raw).to_bytes(8, "big"))
        digest.update(raw)
    return digest.hexdigest()[:32]
