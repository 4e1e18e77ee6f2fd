"""The server's workflows that are not over: kept in memory, and attended to (keeping/keeper.py).

Those that are over stay in the store, and cost a start no more than a look at their summaries.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

from perdure import clock
from perdure.errors import SessionNotFoundError, UnrecoverableError, WorkflowNotFoundError
from perdure.server.journal import JournalStore
from perdure.server.keeping import keeper
from perdure.server.keeping.port import Sessions
from perdure.server.workflow.advance import Advance
from perdure.server.workflow.check import Functions, Toolboxes
from perdure.server.workflow.plan import due_at
from perdure.server.workflow.state import decode_state
from perdure.server.workflow.work import Work, load_work
from perdure.store import Look, Session

AGAIN = timedelta(seconds=0.2)
"""After how long what is due is tried again, if it could not start."""


class Keeper(keeper.Keeper[Work]):
    """The workflows in memory. Inside `keeping` their steps are started and their ends seen."""

    kind = "workflow"

    def __init__(
        self,
        store: JournalStore,
        sessions: Sessions,
        toolboxes: Toolboxes,
        functions: Functions,
    ) -> None:
        super().__init__(store, sessions)
        self.lost: dict[str, str] = {}
        """Why a workflow's journal cannot be read, by its id."""
        self.advance = Advance(
            store, sessions, toolboxes, functions, lambda name: self.call(name, thorough=True)
        )

    async def load(self) -> None:
        """Reads which workflows are not over; O(workflows) summaries, and no journal of the rest.

        Raises:
            StoreError: the store cannot be read.

        """
        after: str | None = None
        while True:
            page = await self.journals.list_sessions(limit=keeper.PAGE, after=after)
            for look in page.sessions:
                await self._load(look)
            after = page.next
            if after is None:
                return

    async def load_one(self, session: Session) -> None:
        """Keeps the workflow of this journal, unless it is over."""
        if not self.has(session):
            await self._load(await self.journals.look(session.id))

    async def _load(self, look: Look) -> None:
        state = decode_state(look.summary)
        is_known = state is not None and state.last_seq == look.last_seq
        if (state is not None and is_known and state.is_over) or self.has(look.session):
            return
        try:
            work = await load_work(self.journals, look)
        except (SessionNotFoundError, WorkflowNotFoundError):
            self.forget(look.session.id)
        except UnrecoverableError as error:
            self._log.error("workflow %r is unrecoverable: %s", look.session.id, error)
            self.lost[look.session.id] = str(error)
        else:
            self.lost.pop(look.session.id, None)
            if not work.state.is_over:
                self.call(self.add(work).name, thorough=True)

    @asynccontextmanager
    async def keeping(self) -> AsyncIterator[None]:
        """Keeps them inside the block; checks that run are ended with it, and run again later."""
        try:
            async with super().keeping():
                yield
        finally:
            checks = [task for work in self.kept() for task in work.checks.values()]
            for work in self.kept():
                work.cancel_checks()
            await asyncio.gather(*checks, return_exceptions=True)

    def forget(self, name: str) -> None:
        """Keeps it no more: it is gone."""
        self.lost.pop(name, None)
        super().forget(name)

    async def attend(self, one: Work, *, thorough: bool) -> None:
        """Takes its attempts on, and starts what is ready."""
        await self.advance.attend(one, clock.now(), thorough=thorough)

    def settle(self, one: Work) -> None:
        """As for all; one that is over is kept no more."""
        super().settle(one)
        if one.state.is_over:
            one.cancel_checks()
            self.drop(one.name)

    def sessions_of(self, one: Work) -> Iterable[str]:
        """Those of the attempts that have not ended."""
        opened = one.state.open_attempts.values()
        return [each.session_id for each in opened if each.session_id is not None]

    def is_open(self, one: Work) -> bool:
        """Whether it is not over."""
        return not one.state.is_over

    def wake_at(self, one: Work) -> datetime | None:
        """When an attempt is due, or has had its time, or a store is asked again."""
        due = due_at(one.plan, one.state)
        if due is not None:  # what is due and did not start waits for something else
            due = max(due, clock.now() + AGAIN)
        times = [time for time in (due, one.retry_at) if time is not None]
        return min(times, default=None)
