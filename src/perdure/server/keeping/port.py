"""What routines and workflows need of the server's sessions: the verbs that any client has.

`Registry` is one. Nothing here wakes a session but `send`, `stop`, `resend` and `discard_queued`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from perdure.entry import Part
from perdure.errors import SessionDeletedError, SessionNotFoundError, UnrecoverableError
from perdure.fact import Policy, Source
from perdure.server.session.command import Sent, Stopped
from perdure.server.session.look import SessionLook

GONE = (SessionNotFoundError, SessionDeletedError, UnrecoverableError)
"""A session is not there any more, or is not to be trusted."""


class Sessions(Protocol):
    """The sessions that they send into."""

    @property
    def is_closing(self) -> bool:
        """Whether they take no more commands."""

    async def create(
        self,
        session_id: str | None = None,
        loop: str | None = None,
        runtime: str | None = None,
        *,
        owner: str | None = None,
    ) -> tuple[SessionLook, bool]:
        """Creates the session of this principal, unless it is there."""
        ...

    async def fork(
        self,
        session_id: str,
        new_id: str | None = None,
        *,
        entry_id: str | None = None,
        owner: str | None = None,
    ) -> SessionLook:
        """A child with the path to the leaf, of this principal."""
        ...

    async def look(self, session_id: str) -> SessionLook:
        """The session as it stands."""
        ...

    async def send(
        self,
        session_id: str,
        parts: Sequence[Part],
        *,
        idempotency_key: str | None = None,
        if_running: Policy = "queue",
        source: Source = "user",
    ) -> Sent:
        """Accepts a message, durably, and once for each key."""
        ...

    async def stop(
        self, session_id: str, turn_id: str | None = None, *, discard_queued: bool = False
    ) -> Stopped:
        """Ends that turn."""
        ...

    async def resend(self, session_id: str, turn_id: str | None = None) -> Sent:
        """Sends the last turn's input again, if it is that one and did not complete; once."""
        ...

    async def discard_queued(self, session_id: str, message_id: str) -> None:
        """Discards one message that waits."""
        ...
