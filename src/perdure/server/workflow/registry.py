"""What can be asked of the server's workflows, and told them: the verbs of the API.

A workflow belongs to the principal who started it. Looking is free: it reads the store, and starts
nothing. Every command is decided on the state as its journal has it, and is one append.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from perdure import clock
from perdure.errors import (
    InvalidSessionIdError,
    ServerClosingError,
    SessionExistsError,
    SessionNotFoundError,
    StepNotFoundError,
    WorkflowConflictError,
    WorkflowExistsError,
    WorkflowNotFoundError,
)
from perdure.fact import Fact, StepAnswered, StepSkipped, StepsReopened, WorkflowSwitched
from perdure.run import complete
from perdure.server.journal import JournalStore
from perdure.server.keeping.port import Sessions
from perdure.server.workflow.check import Functions, Toolboxes
from perdure.server.workflow.definition import (
    Plan,
    check_names,
    check_workflow_id,
    plan_workflow,
    read_workflow,
)
from perdure.server.workflow.keeper import Keeper
from perdure.server.workflow.look import WorkflowBrief, WorkflowLook, brief_of, look_at
from perdure.server.workflow.plan import waiting
from perdure.server.workflow.state import DONE
from perdure.server.workflow.work import Work, create_work, load_work
from perdure.store import Look
from perdure.workflow import Workflow

AT_ONCE = 2
"""How many texts are read at the same time: the threads for it are also everybody else's."""


class WorkflowRegistry:
    """The server's workflows, as they are asked for."""

    def __init__(
        self,
        store: JournalStore,
        sessions: Sessions,
        toolboxes: Toolboxes,
        *,
        check_loop: Callable[[str], Awaitable[None]],
        takes_commands: Callable[[str | None], Awaitable[bool]],
        check_runtime: Callable[[str, str | None], None],
        functions: Functions,
    ) -> None:
        self.keeper = Keeper(store, sessions, toolboxes, functions, takes_commands)
        self._journals = self.keeper.journals
        self._sessions = sessions
        self._check_loop = check_loop
        self._check_runtime = check_runtime
        self._functions = functions
        self._reading = asyncio.Semaphore(AT_ONCE)

    async def check(
        self,
        workflow: Workflow | str,
        inputs: Mapping[str, Any] | None = None,
        *,
        owner: str | None = None,
    ) -> Plan:
        """The workflow, or that of a YAML text, checked as it is before `owner` starts it.

        Raises:
            InvalidWorkflowError: says every problem, with line and field.

        """
        given = inputs or {}
        async with self._reading:
            if isinstance(workflow, str):
                plan = await asyncio.to_thread(read_workflow, workflow, given)
            else:
                plan = await asyncio.to_thread(plan_workflow, workflow, given)

        async def find_function(name: str) -> None:
            await asyncio.to_thread(self._functions.find, name)

        await check_names(
            plan,
            check_loop=self._check_loop,
            check_runtime=lambda name: self._check_runtime(name, owner),
            check_function=find_function,
        )
        return plan

    async def create(
        self,
        workflow: Workflow | str,
        inputs: Mapping[str, Any] | None = None,
        *,
        workflow_id: str | None = None,
        owner: str | None = None,
        scope: str | None = None,
    ) -> tuple[WorkflowLook, bool]:
        """Starts a workflow; (its look, False) if the same one has this id already.

        It is of the principal `owner`, and so are the sessions that it makes.

        Raises:
            InvalidWorkflowError: nothing stored, nothing runs.
            WorkflowExistsError: another one has the id; nothing stored.
            StoreError: nothing stored, or in doubt: the same call again finds out.

        """
        self._check_open()
        if workflow_id is not None:
            check_workflow_id(workflow_id)
        plan = await self.check(workflow, inputs, owner=owner)
        try:
            work = await create_work(self._journals, workflow_id or clock.new_id(), plan, owner)
        except SessionExistsError as error:
            assert workflow_id is not None
            known = await self._load(workflow_id)
            is_theirs = scope is None or known.state.owner == scope
            if not is_theirs or known.plan.as_fact().definition != plan.as_fact().definition:
                raise WorkflowExistsError(workflow_id) from error
            if dict(known.plan.inputs) != dict(plan.inputs):
                raise WorkflowExistsError(workflow_id) from error
            return await look_at(known), False
        work = self.keeper.add(work)
        self.keeper.call(work.name, thorough=True)
        return await look_at(work), True

    async def list(
        self, *, limit: int = 50, after: str | None = None, scope: str | None = None
    ) -> tuple[Sequence[WorkflowBrief], str | None]:
        """Workflows by newest change first, and the `after` of the next page (None on the last).

        With a `scope` those of this principal. O(limit).

        Raises:
            CursorVoidError: `after` is not from a listing. StoreError: it cannot be read.

        """
        page = await self._journals.list_sessions(limit=limit, after=after, owner=scope)
        find = self.keeper.find_kept
        briefs = [
            brief_of(each, self._why_lost(each), find(each.session.id)) for each in page.sessions
        ]
        return briefs, page.next

    def _why_lost(self, look: Look) -> str | None:
        """Why its journal cannot be read, as far as is known."""
        kept, lost = self.keeper.find_kept(look.session.id), self.keeper.lost
        if kept is not None:
            return kept.damage
        return lost[look.session.id][1] if look.session.id in lost else None

    async def look(self, workflow_id: str) -> WorkflowLook:
        """The workflow as it stands, with its steps and their attempts.

        Raises:
            WorkflowNotFoundError, StoreError, UnrecoverableError.

        """
        try:
            return await look_at(await self._load(workflow_id))
        except SessionNotFoundError as error:
            raise WorkflowNotFoundError(workflow_id) from error

    async def check_scope(self, workflow_id: str, scope: str | None) -> None:
        """Returns if the principal has the workflow; None has every one.

        Raises:
            WorkflowNotFoundError: it is not there, or somebody else's.

        """
        if scope is None:
            return
        try:
            owner = await self._journals.load_owner(workflow_id)
        except (SessionNotFoundError, InvalidSessionIdError) as error:
            raise WorkflowNotFoundError(workflow_id) from error
        if owner != scope:
            raise WorkflowNotFoundError(workflow_id)

    async def pause(
        self, workflow_id: str, *, why: str | None = None, by: str | None = None
    ) -> WorkflowLook:
        """Starts no further attempt; those that run go on to their end. Idempotent."""

        def decide(work: Work) -> Sequence[Fact]:
            match work.state.status:
                case "paused":
                    return ()
                case "running":
                    return [WorkflowSwitched(status="paused", why=why, by=by)]
                case status:
                    raise WorkflowConflictError(
                        workflow_id,
                        f"workflow {workflow_id!r} is {status}: there is nothing to pause",
                    )

        return await self._command(workflow_id, decide)

    async def resume(self, workflow_id: str, *, by: str | None = None) -> WorkflowLook:
        """Goes on where it was paused. Idempotent."""

        def decide(work: Work) -> Sequence[Fact]:
            match work.state.status:
                case "running":
                    return ()
                case "paused":
                    return [WorkflowSwitched(status="running", by=by)]
                case status:
                    raise WorkflowConflictError(
                        workflow_id,
                        f"workflow {workflow_id!r} is {status}: only one that is paused is "
                        "resumed; retry a step of it, or skip one",
                    )

        return await self._command(workflow_id, decide)

    async def cancel(
        self, workflow_id: str, *, why: str | None = None, by: str | None = None
    ) -> WorkflowLook:
        """Stops the turns that run, starts nothing more, and ends it. Idempotent.

        Nothing of what was done is undone, and no compensation step runs.
        """

        def decide(work: Work) -> Sequence[Fact]:
            if work.state.status in {"cancelling", "cancelled"}:
                return ()
            if work.state.is_over:
                raise WorkflowConflictError(
                    workflow_id, f"workflow {workflow_id!r} is {work.state.status} already"
                )
            why_or_default = why or "it was cancelled"
            return [WorkflowSwitched(status="cancelling", why=why_or_default, by=by)]

        return await self._command(workflow_id, decide)

    async def retry(self, workflow_id: str, step: str, *, by: str | None = None) -> WorkflowLook:
        """Runs a step again, and all that wait for it, with a fresh budget of attempts.

        Steps that have failed meanwhile are opened again, too: nothing goes on before they are
        done. A workflow that is over goes on so at a step that it never came to. A retry is not a
        rollback: nothing of what was done is undone.

        Raises:
            WorkflowConflictError: the step, or one that waits for it, runs, or is still to start.

        """

        def decide(work: Work) -> Sequence[Fact]:
            known = self._step(work, step)
            if work.state.status == "cancelling":
                raise WorkflowConflictError(
                    workflow_id, f"workflow {workflow_id!r} is being cancelled", step=step
                )
            if known.status == "running":
                raise WorkflowConflictError(
                    workflow_id,
                    f"step {step!r} is running: wait for it, or stop its turn first",
                    step=step,
                )
            if known.status == "pending" and not work.state.is_over:
                raise WorkflowConflictError(
                    workflow_id,
                    f"step {step!r} is pending: it starts by itself once what it waits for is done",
                    step=step,
                )
            steps = {step, *work.plan.following(step)}
            steps |= {n for n, each in work.state.steps.items() if each.status == "failed"}
            steps |= {n for n, of in work.plan.undoes.items() if steps & set(of)}
            if running := sorted(steps & work.state.open_attempts.keys()):
                raise WorkflowConflictError(
                    workflow_id,
                    f"step {running[0]!r} runs, and would run again: wait for it, or stop its turn",
                    step=running[0],
                )
            ordered = tuple(each for each in work.state.steps if each in steps)
            return [StepsReopened(step=step, steps=ordered, by=by)]

        return await self._command(workflow_id, decide)

    async def skip(
        self, workflow_id: str, step: str, *, reason: str, by: str | None = None
    ) -> WorkflowLook:
        """Passes a step over, for a reason; those that wait for it go on, without its output.

        Raises:
            WorkflowConflictError: it runs, or is done.

        """

        def decide(work: Work) -> Sequence[Fact]:
            known = self._step(work, step)
            if known.status == "skipped":
                return ()
            if known.status in DONE or known.status == "running":
                raise WorkflowConflictError(
                    workflow_id,
                    f"step {step!r} is {known.status}: only one that does not run and is not done "
                    "is skipped; stop its turn first",
                    step=step,
                )
            if work.state.status in {"cancelling", "cancelled"}:
                raise WorkflowConflictError(
                    workflow_id, f"workflow {workflow_id!r} is {work.state.status}", step=step
                )
            return [StepSkipped(step=step, why=reason, by=by)]

        return await self._command(workflow_id, decide)

    async def answer(
        self,
        workflow_id: str,
        step: str,
        *,
        approve: bool,
        reason: str | None = None,
        by: str | None = None,
    ) -> WorkflowLook:
        """Lets a step start that waits for it, or not: then the step has failed, as `rejected`.

        The same answer again does nothing.

        Raises:
            WorkflowConflictError: it does not wait for an approval.

        """

        def decide(work: Work) -> Sequence[Fact]:
            known = self._step(work, step)
            is_rejected = known.status == "failed" and known.reason == "rejected"
            if (known.approved and approve) or (is_rejected and not approve):
                return ()
            if step not in waiting(work.plan, work.state):
                raise WorkflowConflictError(
                    workflow_id,
                    f"step {step!r} does not wait for an approval: it is {known.status}",
                    step=step,
                )
            return [StepAnswered(step=step, approve=approve, reason=reason, by=by)]

        return await self._command(workflow_id, decide)

    async def delete(self, workflow_id: str) -> None:
        """Deletes a workflow that is over, and its history; its sessions stay.

        Raises:
            WorkflowNotFoundError: there is none. WorkflowConflictError: it is not over.
            StoreError: it may still be there.

        """
        self._check_open()
        work = await self._load(workflow_id)
        async with work.lock:
            if not work.state.is_over:
                raise WorkflowConflictError(
                    workflow_id, f"workflow {workflow_id!r} is not over: cancel it first"
                )
            try:
                await complete(self._journals.delete_session(workflow_id))
            except SessionNotFoundError as error:
                raise WorkflowNotFoundError(workflow_id) from error
            work.is_gone = True
        self.keeper.forget(workflow_id)
        if self.keeper.on_change is not None:
            self.keeper.on_change(work)

    @staticmethod
    def _step(work: Work, step: str) -> Any:
        known = work.state.steps.get(step)
        if known is None:
            raise StepNotFoundError(work.name, step, list(work.state.steps))
        return known

    async def _command(
        self, workflow_id: str, decide: Callable[[Work], Sequence[Fact]]
    ) -> WorkflowLook:
        """Decides, and stores what was decided; where others were faster, anew (`Keeper.hold`)."""
        self._check_open()
        work = await self._load(workflow_id)

        async def step() -> None:
            if facts := decide(work):
                await work.append(*facts)

        await self.keeper.hold(work, step)
        if not work.state.is_over:
            self.keeper.add(work)
            self.keeper.call(workflow_id, thorough=True)
        return await look_at(work)

    async def _load(self, workflow_id: str) -> Work:
        """The one in memory, or that of its journal."""
        kept = self.keeper.find_kept(workflow_id)
        if kept is not None:
            return kept
        try:
            return await load_work(self._journals, await self._journals.look(workflow_id))
        except (SessionNotFoundError, InvalidSessionIdError) as error:
            raise WorkflowNotFoundError(workflow_id) from error

    def _check_open(self) -> None:
        if self._sessions.is_closing:
            raise ServerClosingError
