"""Lets others wait for the end of a turn: woken by statuses, answered by the journal."""

from __future__ import annotations

import asyncio

from perdure.server.session.look import SessionLook
from perdure.server.session.port import FeedInFront, FeedPort


class Ends(FeedInFront):
    """A FeedPort in front of another one, which wakes those who wait for a session's rest."""

    def __init__(self, feed: FeedPort) -> None:
        super().__init__(feed)
        self._waiting: dict[str, set[asyncio.Event]] = {}

    def status(self, look: SessionLook, /) -> None:
        """A session's status changed."""
        super().status(look)
        for event in self._waiting.get(look.session_id, ()):
            event.set()

    def watch(self, session_id: str) -> Watch:
        """Use it around both the look at what is there and the wait for a change."""
        return Watch(self._waiting, session_id)


class Watch:
    """One waiting party: `changed` returns when a status was told since it was asked last."""

    def __init__(self, waiting: dict[str, set[asyncio.Event]], session_id: str) -> None:
        self._waiting = waiting
        self._session_id = session_id
        self._event = asyncio.Event()

    def __enter__(self) -> Watch:
        self._waiting.setdefault(self._session_id, set()).add(self._event)
        return self

    def __exit__(self, *_: object) -> None:
        events = self._waiting[self._session_id]
        events.discard(self._event)
        if not events:
            del self._waiting[self._session_id]

    async def changed(self) -> None:
        """Returns when a status of the session was told."""
        await self._event.wait()
        self._event.clear()
