"""One routine in memory: its journal, and the state that the journal comes to.

An append carries the `seq` it stands on and the incarnation; the state changes only by `apply` of
what was stored. Who is refused, or does not know, reads the journal again and decides anew: a due
time that another node has claimed is then seen as claimed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime

from perdure.codec import seal_all
from perdure.errors import (
    AppendConflictError,
    AppendRejectedError,
    RoutineNotFoundError,
    SessionDeletedError,
    SessionNotFoundError,
    StoreError,
)
from perdure.fact import Fact
from perdure.run import complete
from perdure.server.journal import JournalStore
from perdure.server.routine.plan import next_start
from perdure.server.routine.state import (
    State,
    apply,
    decode_state,
    encode_state,
    fold,
    place,
)
from perdure.store import Look, Session

_PAGE = 512


class Routine:
    """A routine, its state as of its newest known entry, and the lock that its steps hold."""

    def __init__(self, store: JournalStore, session: Session, state: State) -> None:
        self.store = store
        self.session = session
        self.state = state
        self.lock = asyncio.Lock()
        self.is_gone = False
        self.failures = 0
        self.retries = 0
        self.retry_at: datetime | None = None
        self.own_runs: set[str] = set()
        """The runs that were claimed by this process, so that no outage lies behind them."""
        self.queued_runs: set[str] = set()
        """The runs whose message waits behind somebody's turn, as far as it is known."""
        self._next: tuple[State, datetime | None] | None = None

    @property
    def routine_id(self) -> str:
        """Its id."""
        return self.session.id

    @property
    def incarnation(self) -> str:
        """Of its journal: a routine that is made anew has another."""
        return self.session.incarnation

    def next_start(self) -> datetime | None:
        """When its next run may start."""
        if self._next is None or self._next[0] is not self.state:
            self._next = (self.state, next_start(self.state, self.incarnation))
        return self._next[1]

    async def append(self, *facts: Fact) -> None:
        """Stores the facts as one batch, and applies them.

        Raises:
            AppendRejectedError: one of them has an id that is taken; nothing stored.
            AppendConflictError: others have appended, and the state is what they made it; nothing
                stored.
            RoutineNotFoundError: it was deleted.
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
                raise AppendConflictError(self.routine_id, known_seq, found_seq) from error
            raise
        except (SessionDeletedError, SessionNotFoundError) as error:
            self.is_gone = True
            raise RoutineNotFoundError(self.routine_id) from error
        except StoreError:
            await self.catch_up()
            raise

    async def _append(self, facts: Sequence[Fact]) -> None:
        batch = seal_all(facts)
        after = fold(self.state, place(self.state, batch))
        await self.store.append_entries(
            self.routine_id,
            batch,
            expected_seq=self.state.last_seq,
            incarnation=self.incarnation,
            summary=encode_state(after),
        )
        self.state = after

    async def catch_up(self) -> None:
        """Reads what others appended.

        Raises:
            RoutineNotFoundError: it was deleted, or made anew.
            StoreError, UnrecoverableError: it cannot be read; the state is what it was.

        """
        try:
            look = await self.store.look(self.routine_id)
        except SessionNotFoundError as error:
            self.is_gone = True
            raise RoutineNotFoundError(self.routine_id) from error
        if look.session.incarnation != self.incarnation:
            self.is_gone = True
            raise RoutineNotFoundError(self.routine_id)
        if look.last_seq > self.state.last_seq:
            self.state = await _state_of(self.store, look, self.state)


async def load_routine(store: JournalStore, look: Look) -> Routine:
    """The routine of a look; O(1), where its summary can be read.

    Raises:
        UnrecoverableError: its journal is damaged or does not fold.
        StoreError: it cannot be read.

    """
    return Routine(store, look.session, await _state_of(store, look, State()))


async def _state_of(store: JournalStore, look: Look, known: State) -> State:
    state = decode_state(look.summary)
    if state is None or not known.last_seq <= state.last_seq <= look.last_seq:
        state = known
    while state.last_seq < look.last_seq:
        page = await store.page_entries(look.session.id, after=state.last_seq, limit=_PAGE)
        if not page.entries:
            break
        for stored in page.entries:
            state = apply(state, stored)
    return state


async def create_routine(store: JournalStore, routine_id: str, facts: Sequence[Fact]) -> Routine:
    """A new routine with these facts.

    Raises:
        SessionExistsError: the id is taken; nothing stored.
        StoreError: nothing stored, or in doubt.

    """
    batch = seal_all(facts)
    state = fold(State(), place(State(), batch))
    session = await complete(
        store.create_session(routine_id, entries=batch, summary=encode_state(state))
    )
    return Routine(store, session, state)
