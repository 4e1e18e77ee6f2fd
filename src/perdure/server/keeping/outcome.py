"""What became of a message that was sent, as its session's journal says: read, and never woken."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, NamedTuple, Protocol

from perdure.errors import EntryNotFoundError, SessionDeletedError
from perdure.fact import RunReason, TurnEnded
from perdure.server.journal import JournalStore
from perdure.server.keeping.port import Sessions
from perdure.server.session.idempotency import ended_id_of, queued_id_of
from perdure.server.session.look import SessionLook


class Going(NamedTuple):
    """It has not ended: its turn runs, or the message waits behind another turn.

    `held`: nothing runs, and the message waits until the queue goes on.
    """

    where: Literal["running", "queued", "held"]


class Ended(NamedTuple):
    """Its turn has ended; `ended_at` is known where that is stored.

    `quarantined`: the server died in it too often.
    """

    reason: RunReason
    cause: str | None = None
    quarantined: bool = False
    is_last: bool = False
    ended_at: datetime | None = None


class Sending(Protocol):
    """A message that was accepted, and its turn; `None`s where it was not."""

    @property
    def session_id(self) -> str | None:
        """Of which session."""

    @property
    def incarnation(self) -> str | None:
        """Of that session."""

    @property
    def message_id(self) -> str | None:
        """The message."""

    @property
    def turn_id(self) -> str | None:
        """The turn that it started, or will."""


async def find_end(
    store: JournalStore, session_id: str, incarnation: str, turn_id: str
) -> TurnEnded | None:
    """The stored end of a turn; O(1).

    Raises:
        SessionNotFoundError, StoreError, UnrecoverableError.

    """
    try:
        stored = await store.load_entry(session_id, ended_id_of(incarnation, turn_id))
    except EntryNotFoundError:
        return None
    return stored.view if isinstance(stored.view, TurnEnded) else None


async def was_accepted(
    store: JournalStore, session_id: str, incarnation: str, message_id: str
) -> bool:
    """Whether the session has this message, or had it in its queue."""
    for entry_id in (message_id, queued_id_of(incarnation, message_id)):
        try:
            await store.load_entry(session_id, entry_id)
        except EntryNotFoundError:
            continue
        return True
    return False


async def outcome_of(
    store: JournalStore, sessions: Sessions, run: Sending, *, is_looked_at: bool
) -> Going | Ended:
    """What became of a message that was accepted.

    Unless `is_looked_at`, only a stored end is looked for, which is cheap and all that can come of
    a turn that runs here.

    Raises:
        SessionNotFoundError, SessionDeletedError: the session was deleted, and maybe made anew.
        StoreError, UnrecoverableError: it cannot be told.

    """
    session_id, message_id, turn_id = run.session_id, run.message_id, run.turn_id
    assert session_id is not None
    assert message_id is not None
    assert turn_id is not None
    assert run.incarnation is not None
    end = await find_end(store, session_id, run.incarnation, turn_id)
    if end is None and not is_looked_at:
        await _check_same(store, session_id, run.incarnation)
        return Going("running")
    look = await sessions.look(session_id)
    await _check_same(store, session_id, run.incarnation)
    last = look.last_turn
    is_last = look.turn is None and last is not None and last.turn_id == turn_id
    if end is not None:
        return _ended(end, is_last=is_last)
    if is_last and last is not None:  # the server died in it, and nobody has woken the session
        return Ended(last.reason, last.cause, last.reason == "failed", is_last=True)
    if look.turn is not None and look.turn.turn_id == turn_id:
        return Going("running")
    if any(each.message_id == message_id for each in look.queued):
        return Going("held" if look.held else "queued")
    end = await find_end(store, session_id, run.incarnation, turn_id)
    if end is not None:  # it was stored between the two readings
        return _ended(end, is_last=False)
    if await _has(store, session_id, turn_id):
        return Going("running")
    return Ended("discarded", "its message was discarded while it waited")


async def _check_same(store: JournalStore, session_id: str, incarnation: str) -> None:
    if (await store.load_session(session_id)).incarnation != incarnation:
        raise SessionDeletedError(session_id, incarnation)


def _ended(end: TurnEnded, *, is_last: bool) -> Ended:
    is_quarantined = end.crashed and end.reason == "failed"
    return Ended(end.reason, end.cause, is_quarantined, is_last, end.created_at)


async def _has(store: JournalStore, session_id: str, entry_id: str) -> bool:
    try:
        await store.load_entry(session_id, entry_id)
    except EntryNotFoundError:
        return False
    return True


async def is_quarantined(store: JournalStore, look: SessionLook) -> bool:
    """Whether the session's last turn is in quarantine: what it does may be what ends the server.

    Raises:
        SessionNotFoundError, StoreError, UnrecoverableError.

    """
    last = look.last_turn
    if look.turn is not None or last is None or last.reason != "failed":
        return False
    incarnation = look.cursor.partition(".")[2]
    end = await find_end(store, look.session_id, incarnation, last.turn_id)
    return end is None or end.crashed
