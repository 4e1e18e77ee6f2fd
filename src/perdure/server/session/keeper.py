"""Keeps snapshots of one session's state, beside what its actor does: a failure loses nothing."""

from __future__ import annotations

import asyncio
import logging

from perdure.errors import PerdureError, SessionDeletedError, SessionNotFoundError
from perdure.server.journal import JournalStore
from perdure.server.session.state import State, take_snapshot
from perdure.store import Session

_GONE = (SessionDeletedError, SessionNotFoundError)
"""It was deleted meanwhile, and its snapshots with it."""

_log = logging.getLogger("perdure.server")


class Keeper:
    """Takes a snapshot every `every` entries, and when it is asked to; old ones are pruned."""

    def __init__(self, store: JournalStore, session_id: str, every: int) -> None:
        self._store = store
        self._session_id = session_id
        self._every = every
        self._saving: set[asyncio.Task[None]] = set()

    def note(self, before: State, after: State, session: Session) -> None:
        """The journal grew: takes a snapshot if it is time, without being waited for."""
        if after.last_seq // self._every > before.last_seq // self._every:
            saving = asyncio.create_task(self.save(after, session))
            self._saving.add(saving)
            saving.add_done_callback(self._saving.discard)

    async def save(self, state: State, session: Session) -> None:
        """Takes a snapshot."""
        snapshot = take_snapshot(state, session.incarnation)
        try:
            await self._store.put_snapshot(self._session_id, snapshot)
        except _GONE:
            return
        except PerdureError as error:
            about = {"session_id": self._session_id}
            _log.warning("no snapshot of session %r: %s", self._session_id, error, extra=about)
        else:
            await self.prune()

    async def prune(self) -> None:
        """Forgets old snapshots; a compaction does, too."""
        try:
            await self._store.prune_snapshots(self._session_id)
        except _GONE:
            return
        except PerdureError as error:
            about = {"session_id": self._session_id}
            _log.warning(
                "old snapshots of session %r stay: %s", self._session_id, error, extra=about
            )

    async def close(self) -> None:
        """Waits for what is being saved."""
        if self._saving:
            await asyncio.wait(set(self._saving))
