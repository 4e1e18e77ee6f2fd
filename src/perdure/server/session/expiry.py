"""Refuses calls that nobody approved in time, also those that waited before this server started.

It hears of them from the statuses that a feed is told, and sleeps until the first is due. An
answer that comes at the same instant wins or loses, as any two answers do: the first one counts.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import NamedTuple

from perdure import clock
from perdure.errors import (
    ApprovalAnsweredError,
    ApprovalNotFoundError,
    PerdureError,
    SessionNotFoundError,
)
from perdure.server.session.look import SessionLook
from perdure.server.session.port import FeedInFront, FeedPort
from perdure.server.session.registry import Registry
from perdure.server.session.wanted import Wanted

_log = logging.getLogger("perdure.server")

PAGE = 200
AGAIN_S = 60.0
"""How long after a failure it is tried again."""


class _Due(NamedTuple):
    """When a call counts as refused; `seq` is its request's, for its id may be used again."""

    expires_at: datetime
    session_id: str
    call_id: str
    seq: int

    @property
    def request(self) -> tuple[str, str, int]:
        """Which request it is, whenever it is tried."""
        return self.session_id, self.call_id, self.seq


class Expiry(FeedInFront):
    """A FeedPort in front of another one; it acts inside `running`."""

    def __init__(self, feed: FeedPort) -> None:
        super().__init__(feed)
        self._due: list[_Due] = []
        self._known: set[tuple[str, str, int]] = set()
        self._changed = asyncio.Event()

    def status(self, look: SessionLook, /) -> None:
        """A session's status changed."""
        super().status(look)
        self._note(look)

    def _note(self, look: SessionLook) -> None:
        for each in look.approvals:
            if each.expires_at is None:
                continue
            due = _Due(each.expires_at, look.session_id, each.call_id, each.seq)
            if due.request not in self._known:
                self._known.add(due.request)
                heapq.heappush(self._due, due)
                self._changed.set()

    @asynccontextmanager
    async def running(self, registry: Registry) -> AsyncIterator[None]:
        """Refuses what is due, inside the block."""
        tasks = [
            asyncio.create_task(self._look_for(registry)),
            asyncio.create_task(self._run(registry)),
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _look_for(self, registry: Registry) -> None:
        """Finds what waited before this server started: once, O(sessions)."""
        after: str | None = None
        while True:
            try:
                looks, after = await registry.list(
                    limit=PAGE, after=after, wanted=Wanted(status="waiting")
                )
            except PerdureError as error:
                _log.warning("approvals that wait cannot be looked for: %s", error)
                await clock.sleep(AGAIN_S)
                continue
            for look in looks:
                self._note(look)
            if after is None:
                return

    async def _run(self, registry: Registry) -> None:
        while True:
            self._changed.clear()
            wait_s = (self._due[0].expires_at - clock.now()).total_seconds() if self._due else None
            if wait_s is None:
                await self._changed.wait()
            elif wait_s > 0:
                await self._sleep(wait_s)
            else:
                due = heapq.heappop(self._due)
                if await self._refuse(registry, due):
                    self._known.discard(due.request)
                else:  # known meanwhile, so that no status has it tried at once
                    again = clock.now() + timedelta(seconds=AGAIN_S)
                    heapq.heappush(self._due, due._replace(expires_at=again))

    async def _sleep(self, seconds: float) -> None:
        """Sleeps, or until something else may be due first."""
        sleeping = asyncio.create_task(clock.sleep(seconds))
        changing = asyncio.create_task(self._changed.wait())
        try:
            await asyncio.wait({sleeping, changing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleeping.cancel()
            changing.cancel()
            await asyncio.wait({sleeping, changing})

    async def _refuse(self, registry: Registry, due: _Due) -> bool:
        """Whether the call waits no more; else it is to be tried again."""
        _, session_id, call_id, seq = due
        try:
            look = await registry.look(session_id)
            if all(each.seq != seq for each in look.approvals):
                return True  # it was answered: nobody is woken for that
            await registry.answer(
                session_id,
                call_id,
                approve=False,
                reason="nobody answered in time",
                requested_seq=seq,
            )
        except (ApprovalNotFoundError, ApprovalAnsweredError, SessionNotFoundError):
            return True
        except PerdureError as error:
            about = {"session_id": session_id}
            _log.warning(
                "call %r of session %r has expired, and cannot be refused yet: %s",
                call_id,
                session_id,
                error,
                extra=about,
            )
            return False
        except Exception:  # outermost frame: the calls that expire after this one are refused, too
            about = {"session_id": session_id}
            _log.exception("call %r of session %r", call_id, session_id, extra=about)
            return False
        return True
