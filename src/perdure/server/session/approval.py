"""The calls of an open turn that wait for somebody's approval, as a part of the session's state."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from perdure.codec import encode
from perdure.entry import Json
from perdure.fact import ApprovalAnswered, ApprovalRequested

INLINE_BYTES = 1024
"""How much of a call's arguments is in the state; all of it is the fact at `seq`."""


class WaitingCall(Struct, frozen=True, array_like=True):
    """A call that was asked about; `approved` is the answer, None until it is there.

    `arguments` are None and `is_elided` where they do not fit.
    """

    call_id: str
    seq: int
    name: str
    arguments: Json
    is_elided: bool = False
    reason: str | None = None
    in_run: bool = False
    expires_at: datetime | None = None
    approved: bool | None = None


def requested(
    waiting: tuple[WaitingCall, ...], fact: ApprovalRequested, seq: int
) -> tuple[WaitingCall, ...]:
    """With one more that waits; those that have their answer are over by then."""
    is_elided = len(encode(fact.arguments)) > INLINE_BYTES
    one = WaitingCall(
        fact.call_id,
        seq,
        fact.name,
        None if is_elided else fact.arguments,
        is_elided,
        fact.reason,
        fact.in_run,
        fact.expires_at,
    )
    others = (each for each in waiting if each.call_id != one.call_id and each.approved is None)
    return (*others, one)


def answered(waiting: tuple[WaitingCall, ...], fact: ApprovalAnswered) -> tuple[WaitingCall, ...]:
    """With this answer; the first one of a call counts."""
    return tuple(
        replace(each, approved=fact.approve)
        if each.call_id == fact.call_id and each.approved is None
        else each
        for each in waiting
    )
