"""One journal in memory, and the state that it comes to.

An append carries the `seq` it stands on and the incarnation; the state changes only by folding
what was stored. Who is refused, or does not know, reads the journal again and decides anew: what
another node did meanwhile is then seen as done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

from perdure.codec import Entry, seal_all
from perdure.errors import (
    AppendConflictError,
    AppendRejectedError,
    PerdureError,
    SessionDeletedError,
    SessionNotFoundError,
    StoreError,
    UnrecoverableError,
)
from perdure.fact import Fact
from perdure.run import complete
from perdure.server.fold import Fold, Folded
from perdure.server.folder import without_folders
from perdure.server.journal import JournalStore
from perdure.store import Look, Session

PAGE = 512
TRIES = 4


S = TypeVar("S", bound=Folded)


@dataclass(frozen=True, slots=True)
class Reading(Generic[S]):
    """How the journals of one kind are read, as summaries or entry by entry."""

    fold: Fold[S]
    not_found: Callable[[str], PerdureError]

    def after(self, state: S, entries: Sequence[Entry]) -> S:
        """The state once these entries are stored behind it."""
        return self.fold.fold(state, self.fold.place(state, entries))

    async def state_of(self, store: JournalStore, look: Look, known: S | None = None) -> S:
        """The state as of a look; O(1), where its summary can be read.

        Raises:
            UnrecoverableError: its journal is damaged or does not fold.
            StoreError: it cannot be read.

        """
        base = self.fold.empty if known is None else known
        state = self.fold.decode(look.summary)
        if state is None or not base.last_seq <= state.last_seq <= look.last_seq:
            state = base
        while state.last_seq < look.last_seq:
            page = await store.page_entries(look.session.id, after=state.last_seq, limit=PAGE)
            if not page.entries:
                break
            state = self.fold.fold(state, page.entries)
        return state

    async def create(
        self, store: JournalStore, name: str, facts: Sequence[Fact]
    ) -> tuple[Session, S]:
        """A new journal with these facts, and its state.

        Raises:
            SessionExistsError: the id is taken; nothing stored.
            StoreError: nothing stored, or in doubt.

        """
        batch = seal_all(facts)
        state = self.after(self.fold.empty, batch)
        summary = self.fold.encode(state)
        session = await complete(store.create_session(name, entries=batch, summary=summary))
        return session, state


async def decide_anew(step: Callable[[], Awaitable[None]]) -> None:
    """Runs a step, and again where others were faster: what they did is known by then.

    Raises:
        AppendConflictError: somebody was faster each time. And what the step raises.

    """
    for _ in range(TRIES - 1):
        try:
            return await step()
        except AppendConflictError:
            continue
    await step()


class Ledger(Generic[S]):
    """A journal, its state as of its newest known entry, and the lock that its steps hold."""

    reading: Reading[S]

    def __init__(self, store: JournalStore, session: Session, state: S) -> None:
        self.store = store
        self.session = session
        self.state = state
        self.lock = asyncio.Lock()
        self.is_gone = False
        self.failures = 0
        self.retries = 0
        self.retry_at: datetime | None = None
        self.damage: str | None = None
        """Why its journal cannot be read any more, as far as is known."""

    @property
    def name(self) -> str:
        """Its id, among those of its kind."""
        return self.session.id

    @property
    def incarnation(self) -> str:
        """Of its journal: one that is made anew under this id has another."""
        return self.session.incarnation

    async def append(self, *facts: Fact) -> None:
        """Stores the facts as one batch, and applies them.

        Raises:
            AppendRejectedError: one of them has an id that is taken; nothing stored.
            AppendConflictError: others have appended, and the state is what they made it; nothing
                stored.
            PerdureError: the reading's `not_found`: it was deleted.
            StoreError: not stored, or in doubt: the state is what the journal says now, if it can
                be read.

        """
        try:
            await complete(self._append(facts))
        except AppendRejectedError as error:
            known_seq = self.state.last_seq
            await self.catch_up()
            if self.state.last_seq > known_seq:  # whoever was faster stored the same fact
                found_seq = self.state.last_seq
                raise AppendConflictError(self.name, known_seq, found_seq) from error
            raise
        except (SessionDeletedError, SessionNotFoundError) as error:
            raise self._gone() from error
        except UnrecoverableError as error:
            self.damage = without_folders(str(error))
            raise
        except StoreError:
            await self.catch_up()
            raise

    async def _append(self, facts: Sequence[Fact]) -> None:
        batch = seal_all(facts)
        after = self.reading.after(self.state, batch)
        receipt = await self.store.append_entries(
            self.name,
            batch,
            expected_seq=self.state.last_seq,
            incarnation=self.incarnation,
            summary=self.reading.fold.encode(after),
        )
        if receipt.last_seq != after.last_seq:
            raise AppendRejectedError(
                f"the journal of {self.name!r} has these facts already, at seq {receipt.first_seq}"
            )
        self.state = after

    async def catch_up(self) -> None:
        """Reads what others appended.

        Raises:
            PerdureError: the reading's `not_found`: it was deleted, or made anew.
            StoreError, UnrecoverableError: it cannot be read; the state is what it was.

        """
        try:
            look = await self.store.look(self.name)
            if look.session.incarnation != self.incarnation:
                raise self._gone()
            if look.last_seq > self.state.last_seq:
                self.state = await self.reading.state_of(self.store, look, self.state)
        except SessionNotFoundError as error:
            raise self._gone() from error
        except UnrecoverableError as error:
            self.damage = without_folders(str(error))
            raise
        self.damage = None

    def _gone(self) -> PerdureError:
        self.is_gone = True
        return self.reading.not_found(self.name)
