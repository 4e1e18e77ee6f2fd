"""The sessions of this server: who reads them, and the one actor of each that is awake.

Looking is free: listing, looking, paging and the transcript come from the store, wake nothing and
write nothing. Commands go to the session's actor, which is woken by its first one. Every method
raises `PerdureError`s only; each says what became of the data.
"""

from __future__ import annotations

from collections.abc import Sequence

from perdure import clock
from perdure.codec import Entry, StoredEntry
from perdure.entry import Part
from perdure.errors import JournalCorruptError, SessionExistsError, UnrecoverableError
from perdure.fact import LoopChosen, Policy
from perdure.server.actor import Actor, Compacted, Sent, Stopped
from perdure.server.journal import JournalStore
from perdure.server.look import SessionLook, look_of
from perdure.server.partial import Partial
from perdure.server.port import FeedPort, Loops
from perdure.server.transcript import TranscriptPage
from perdure.store import Page


class Registry:
    """The server's sessions. One process owns a store; `node_id` is random in each."""

    def __init__(
        self, store: JournalStore, loops: Loops, feed: FeedPort, *, node_id: str | None = None
    ) -> None: ...

    async def create(
        self, session_id: str | None = None, loop: str | None = None
    ) -> tuple[SessionLook, bool]:
        """Creates the session; (its look, True), or (its look, False) if it is there already."""
        ...

    async def list(
        self, *, limit: int = 50, after: str | None = None
    ) -> tuple[Sequence[SessionLook], str | None]:
        """Sessions by newest append first, and the `after` of the next page."""
        ...

    async def look(self, session_id: str) -> SessionLook: ...

    async def entries(
        self,
        session_id: str,
        *,
        before: int | None = None,
        after: int | None = None,
        limit: int = 50,
    ) -> Page: ...

    async def entry(self, session_id: str, seq: int) -> StoredEntry: ...

    async def transcript(
        self,
        session_id: str,
        *,
        before: str | None = None,
        limit: int = 50,
        leaf: str | None = None,
    ) -> TranscriptPage: ...

    def partials(self, session_id: str) -> Sequence[Partial]:
        """The text so far of each part in the making; synchronous, so that no delta slips by."""
        ...

    async def send(
        self,
        session_id: str,
        parts: Sequence[Part],
        *,
        idempotency_key: str | None = None,
        if_running: Policy = "queue",
    ) -> Sent: ...

    async def stop(
        self, session_id: str, turn_id: str | None = None, *, discard_queued: bool = False
    ) -> Stopped: ...

    async def resend(self, session_id: str) -> Sent: ...

    async def go_on(self, session_id: str) -> Sent: ...

    async def discard_queued(self, session_id: str, message_id: str) -> None: ...

    async def branch(self, session_id: str, entry_id: str | None) -> SessionLook: ...

    async def fork(
        self, session_id: str, new_id: str | None = None, *, entry_id: str | None = None
    ) -> SessionLook: ...

    async def compact(self, session_id: str, *, keep_turns: int = 4) -> Compacted: ...

    async def delete(self, session_id: str) -> None: ...

    async def close(self) -> None: ...
