"""One workflow in memory: its journal, its plan, and the checks that run (keeping/ledger.py)."""

from __future__ import annotations

import asyncio

from perdure.errors import EntryNotFoundError, StateUnreplayableError, WorkflowNotFoundError
from perdure.fact import Fact, SessionOwned, StepEnded, StepStarted, WorkflowDefined
from perdure.server.journal import JournalStore
from perdure.server.keeping.ledger import Ledger, Reading
from perdure.server.workflow.check import CheckOutcome
from perdure.server.workflow.definition import Plan, plan_of
from perdure.server.workflow.identity import started_id_of
from perdure.server.workflow.state import FOLD, State
from perdure.store import Look, Session

READING = Reading(FOLD, WorkflowNotFoundError)


class Work(Ledger[State]):
    """A workflow, its state as of its newest known entry, and the lock that its steps hold."""

    reading = READING

    def __init__(self, store: JournalStore, session: Session, state: State, plan: Plan) -> None:
        super().__init__(store, session, state)
        self.plan = plan
        self.sent: set[str | None] = set()
        """The turns whose message was accepted, as far as this process knows."""
        self.queued: set[str | None] = set()
        """The turns whose message waits behind somebody's turn, as far as it is known."""
        self.checks: dict[tuple[str, int], asyncio.Task[CheckOutcome]] = {}
        """The checks that run here, by step and attempt."""

    @property
    def owner(self) -> str | None:
        """The principal whose it is; None: the admins'."""
        return self.state.owner

    async def end_of(self, step: str) -> StepEnded | None:
        """The newest end of a step's attempt; O(1)."""
        seq = self.state.steps[step].ended_seq
        if seq is None:
            return None
        view = (await self.store.load_entry(self.name, seq)).view
        return view if isinstance(view, StepEnded) else None

    async def start_of(self, step: str, attempt: int) -> StepStarted | None:
        """The start of an attempt; O(1)."""
        entry_id = started_id_of(self.incarnation, step, attempt)
        try:
            view = (await self.store.load_entry(self.name, entry_id)).view
        except EntryNotFoundError:
            return None
        return view if isinstance(view, StepStarted) else None

    def forget_ended(self) -> None:
        """Keeps nothing of attempts that have ended, whoever ended them."""
        still_open = {each.turn_id for each in self.state.open_attempts.values()}
        self.sent &= still_open
        self.queued &= still_open

    def cancel_checks(self) -> None:
        """Ends the checks that run; their commands are ended, too."""
        for task in self.checks.values():
            task.cancel()


async def load_work(store: JournalStore, look: Look) -> Work:
    """The workflow of a look; O(1), where its summary can be read.

    Raises:
        UnrecoverableError: its journal is damaged or does not fold.
        WorkflowNotFoundError: the journal defines none.
        StoreError: it cannot be read.

    """
    state = await READING.state_of(store, look)
    if state.last_seq == 0:
        raise WorkflowNotFoundError(look.session.id)
    first = (await store.load_entry(look.session.id, 1)).view
    plan = plan_of(first) if isinstance(first, WorkflowDefined) else None
    if plan is None:
        raise StateUnreplayableError("its first entry defines no workflow that this version runs")
    return Work(store, look.session, state, plan)


async def create_work(store: JournalStore, workflow_id: str, plan: Plan, owner: str | None) -> Work:
    """A new workflow.

    Raises:
        SessionExistsError: the id is taken; nothing stored.
        StoreError: nothing stored, or in doubt.

    """
    facts: list[Fact] = [plan.as_fact()]
    if owner is not None:
        facts.append(SessionOwned(principal=owner))
    return Work(store, *await READING.create(store, workflow_id, facts), plan)
