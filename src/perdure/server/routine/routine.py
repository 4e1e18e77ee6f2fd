"""One routine in memory: its journal, and the state that the journal comes to (ledger.py)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from perdure.errors import RoutineNotFoundError
from perdure.fact import Fact
from perdure.server.journal import JournalStore
from perdure.server.keeping.ledger import Ledger, Reading
from perdure.server.routine.plan import next_start
from perdure.server.routine.state import FOLD, State
from perdure.store import Look, Session

READING = Reading(FOLD, RoutineNotFoundError)


class Routine(Ledger[State]):
    """A routine, its state as of its newest known entry, and the lock that its steps hold."""

    reading = READING

    def __init__(self, store: JournalStore, session: Session, state: State) -> None:
        super().__init__(store, session, state)
        self.own_runs: set[str] = set()
        """The runs that were claimed by this process, so that no outage lies behind them."""
        self.queued_runs: set[str] = set()
        """The runs whose message waits behind somebody's turn, as far as it is known."""
        self._next: tuple[State, datetime | None] | None = None

    @property
    def routine_id(self) -> str:
        """Its id."""
        return self.name

    @property
    def owner(self) -> str | None:
        """The principal whose it is; None: the admins'."""
        return None if self.state.definition is None else self.state.definition.owner

    def forget_ended(self) -> None:
        """Keeps nothing of runs that have ended, whoever ended them."""
        still_open = {run.run_id for run in self.state.runs}
        self.own_runs &= still_open
        self.queued_runs &= still_open

    def next_start(self) -> datetime | None:
        """When its next run may start."""
        if self._next is None or self._next[0] is not self.state:
            self._next = (self.state, next_start(self.state, self.incarnation))
        return self._next[1]


async def load_routine(store: JournalStore, look: Look) -> Routine:
    """The routine of a look; O(1), where its summary can be read.

    Raises:
        UnrecoverableError: its journal is damaged or does not fold.
        StoreError: it cannot be read.

    """
    return Routine(store, look.session, await READING.state_of(store, look))


async def create_routine(store: JournalStore, routine_id: str, facts: Sequence[Fact]) -> Routine:
    """A new routine with these facts.

    Raises:
        SessionExistsError: the id is taken; nothing stored.
        StoreError: nothing stored, or in doubt.

    """
    return Routine(store, *await READING.create(store, routine_id, facts))
