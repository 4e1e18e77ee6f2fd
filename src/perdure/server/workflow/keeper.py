"""The server's workflows that are not over: kept in memory, and attended to (keeping/keeper.py).

Those that are over stay in the store, and cost a start no more than a look at their summaries.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

from perdure import clock
from perdure.server.journal import JournalStore
from perdure.server.keeping import keeper
from perdure.server.keeping.port import Sessions
from perdure.server.workflow.advance import Advance
from perdure.server.workflow.check import Functions, Toolboxes
from perdure.server.workflow.plan import due_at
from perdure.server.workflow.state import decode_state
from perdure.server.workflow.work import Work, load_work
from perdure.store import Look

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
        takes_commands: Callable[[str | None], Awaitable[bool]],
    ) -> None:
        super().__init__(store, sessions)
        self.steps = Advance(
            store,
            sessions,
            toolboxes,
            functions,
            lambda name: self.call(name, thorough=True),
            takes_commands,
        )

    async def read(self, look: Look) -> Work | None:
        """The workflow of this look; None where it is over, by its summary alone."""
        state = decode_state(look.summary)
        if state is not None and state.last_seq == look.last_seq and state.is_over:
            return None
        work = await load_work(self.journals, look)
        return None if work.state.is_over else work

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

    async def advance(self, one: Work, now: datetime, *, thorough: bool) -> None:
        """Takes its attempts on, and starts what is ready."""
        await self.steps.advance(one, now, thorough=thorough)

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
        due = due_at(one.plan, one.state, checked={name for name, _ in one.checks})
        if due is not None:  # what is due and did not start waits for something else
            due = max(due, clock.now() + AGAIN)
        times = [time for time in (due, one.retry_at) if time is not None]
        return min(times, default=None)
