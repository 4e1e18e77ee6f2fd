"""Takes a workflow on: at a turn's end, at a due time and after a crash alike.

Each step is stored before, or named by a key that follows from, what it does; so it can be cut off
anywhere:

- before `step_started` is stored, nothing was sent: whoever looks next starts the attempt;
- after it, the message is sent with the attempt's key, which its session takes once;
- after the turn, its end is read from the session's journal, and a check looks (again);
- `step_ended` is stored together with what the check found, and with when the next attempt is due.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

from perdure import clock
from perdure.entry import Text
from perdure.errors import (
    AppendConflictError,
    PerdureError,
    QueuedMessageNotFoundError,
    ServerClosingError,
    StoreError,
    UnrecoverableError,
    WorkflowNotFoundError,
)
from perdure.fact import Fact, StepChecked, StepEnded, StepStarted, WorkflowEnded
from perdure.server.journal import JournalStore
from perdure.server.keeping.outcome import Ended, Going, outcome_of, was_accepted
from perdure.server.keeping.port import GONE, Sessions
from perdure.server.session.idempotency import message_id_of, turn_id_of
from perdure.server.session.seen import Seen, look_at_turn
from perdure.server.workflow.check import (
    CheckedTurn,
    CheckOutcome,
    Functions,
    Toolboxes,
    name_of,
    outcome_of_check,
    run_check,
)
from perdure.server.workflow.identity import (
    check_key_of,
    ended_id_of,
    message_key_of,
    session_id_of,
    started_id_of,
)
from perdure.server.workflow.plan import deadline_of, outcome, ready, retry_at
from perdure.server.workflow.prompt import prompt_of
from perdure.server.workflow.state import Attempt
from perdure.server.workflow.template import TemplateProblem
from perdure.server.workflow.work import Work
from perdure.workflow import Check, Step

_log = logging.getLogger("perdure.workflow")

RETRY_S = (1.0, 5.0, 20.0, 60.0)
"""After how long a store that refused is asked again."""


RENDERS_AT_ONCE = 2
"""How many prompts are rendered at the same time: the threads for it are everybody's."""


class Advance:
    """Takes workflows on, one step after another; the caller holds the workflow's lock."""

    def __init__(
        self,
        store: JournalStore,
        sessions: Sessions,
        toolboxes: Toolboxes,
        functions: Functions,
        call: Callable[[str], object],
        takes_commands: Callable[[str | None], Awaitable[bool]],
    ) -> None:
        self._store = store
        self._sessions = sessions
        self._toolboxes = toolboxes
        self._functions = functions
        self._call = call
        self._takes_commands = takes_commands
        self._rendering = asyncio.Semaphore(RENDERS_AT_ONCE)

    async def advance(self, work: Work, now: datetime, *, thorough: bool) -> None:
        """As `Keeper.advance`, for one whose lock is held."""
        work.forget_ended()
        has_moved = True
        while has_moved and not work.state.is_over and not self._sessions.is_closing:
            has_moved = False
            for name, attempt in work.state.open_attempts.items():
                has_moved |= await self._guarded(
                    work, now, self._follow(work, name, attempt, now, thorough=thorough)
                )
            if (end := outcome(work.plan, work.state)) is not None:
                await work.append(WorkflowEnded(reason=end[0], cause=end[1]))
                _log.info("workflow %r: %s", work.name, end[0])
                return
            for name in ready(work.plan, work.state, now):
                has_moved |= await self._guarded(work, now, self._start(work, name, now))

    async def _guarded(self, work: Work, now: datetime, step: Awaitable[bool]) -> bool:
        """Runs one step of one attempt; a store that refuses is asked again later."""
        try:
            return await step
        except ServerClosingError:
            return False
        except (WorkflowNotFoundError, AppendConflictError, UnrecoverableError):
            raise
        except StoreError as error:
            if work.is_gone:
                raise
            delay_s = RETRY_S[min(work.retries, len(RETRY_S) - 1)]
            work.retries += 1
            due = now + timedelta(seconds=delay_s)
            work.retry_at = due if work.retry_at is None else min(due, work.retry_at)
            _log.warning("workflow %r tries again: %s", work.name, error)
            return False

    async def _start(self, work: Work, name: str, now: datetime) -> bool:
        """Stores the next attempt's start, and sends its message."""
        step = work.plan.workflow.step(name)
        number = work.state.steps[name].attempts + 1
        loop = step.loop or work.plan.workflow.loop
        is_command = number > 1 and await self._takes_commands(loop)
        try:
            async with self._rendering:
                prompt = await prompt_of(work, step, number, is_command=is_command)
        except TemplateProblem as problem:
            return await self._fail_to_start(work, name, number, "template_failed", str(problem))
        try:
            session_id, incarnation = await self._session(work, step)
        except (StoreError, ServerClosingError):
            raise
        except PerdureError as error:  # its runtime is not there, its session is damaged
            return await self._fail_to_start(work, name, number, "failed", str(error))
        key = message_key_of(work.incarnation, name, number)
        message_id = message_id_of(incarnation, key)
        turn_id = turn_id_of(incarnation, message_id)
        await work.append(
            StepStarted(
                id=started_id_of(work.incarnation, name, number),
                step=name,
                attempt=number,
                session_id=session_id,
                incarnation=incarnation,
                message_id=message_id,
                turn_id=turn_id,
                prompt=prompt,
            )
        )
        attempt = work.state.steps[name].open
        if attempt is not None and attempt.attempt == number:
            await self._send(work, name, attempt, prompt)
        return True

    async def _fail_to_start(
        self, work: Work, name: str, number: int, reason: str, cause: str
    ) -> bool:
        """Stores an attempt that ended before anything could be sent."""
        fact_id = started_id_of(work.incarnation, name, number)
        await work.append(StepStarted(id=fact_id, step=name, attempt=number))
        attempt = work.state.steps[name].open
        if attempt is not None and attempt.attempt == number:
            await self._end(work, name, attempt, reason, cause)
        return True

    async def _session(self, work: Work, step: Step) -> tuple[str, str]:
        """The step's session, made if need be, and its incarnation."""
        session_id = session_id_of(work.name, work.incarnation, step.id, step.session)
        workflow = work.plan.workflow
        await self._sessions.create(
            session_id,
            step.loop or workflow.loop,
            step.runtime or workflow.runtime,
            owner=work.state.owner,
        )
        return session_id, (await self._store.load_session(session_id)).incarnation

    async def _send(self, work: Work, name: str, attempt: Attempt, prompt: str) -> None:
        """Sends the attempt's message, once however often it is called."""
        assert attempt.session_id is not None
        assert attempt.turn_id is not None
        key = message_key_of(work.incarnation, name, attempt.attempt)
        try:
            sent = await self._sessions.send(
                attempt.session_id, (Text(prompt),), idempotency_key=key, source="workflow"
            )
        except GONE as error:
            await self._end(work, name, attempt, "failed", str(error))
            return
        except (StoreError, ServerClosingError):
            raise
        except PerdureError as error:  # its loop cannot start, for one; nothing was stored
            await self._end(work, name, attempt, "failed", str(error))
            return
        work.retries = 0
        work.sent.add(attempt.turn_id)
        if sent.queued:
            work.queued.add(attempt.turn_id)

    async def _follow(
        self, work: Work, name: str, attempt: Attempt, now: datetime, *, thorough: bool
    ) -> bool:
        """Takes an open attempt one step on; whether it has ended."""
        session_id, turn_id = attempt.session_id, attempt.turn_id
        if session_id is None or turn_id is None or attempt.incarnation is None:
            return await self._end(work, name, attempt, "failed", "it has no session")
        try:
            if turn_id not in work.sent and not await self._was_sent(work, name, attempt):
                return work.state.steps[name].open != attempt
            deadline = deadline_of(work.plan, work.state, name)
            is_late = deadline is not None and deadline <= now
            is_unwanted = is_late or work.state.status == "cancelling"
            is_looked_at = thorough or is_unwanted or turn_id in work.queued
            found = await outcome_of(
                self._store, self._sessions, attempt, is_looked_at=is_looked_at
            )
            if isinstance(found, Going) and is_unwanted:
                found = await self._stop(attempt, found)
        except GONE as error:
            return await self._end(work, name, attempt, "failed", str(error))
        if isinstance(found, Going):
            (work.queued.discard if found.where == "running" else work.queued.add)(turn_id)
            return False
        return await self._finish(work, name, attempt, found, deadline)

    async def _was_sent(self, work: Work, name: str, attempt: Attempt) -> bool:
        """Whether the message is in its session; a crash may have come between start and sending.

        What a cancelled workflow has not sent is sent no more.
        """
        assert attempt.session_id is not None
        assert attempt.incarnation is not None
        assert attempt.message_id is not None
        assert attempt.turn_id is not None
        session = await self._store.load_session(attempt.session_id)
        if session.incarnation != attempt.incarnation:
            await self._end(work, name, attempt, "failed", "its session was deleted")
            return False
        if await was_accepted(
            self._store, attempt.session_id, attempt.incarnation, attempt.message_id
        ):
            work.sent.add(attempt.turn_id)
            return True
        if work.state.status == "cancelling":
            await self._end(work, name, attempt, "stopped", "the workflow was cancelled")
            return False
        start = await work.start_of(name, attempt.attempt)
        await self._send(work, name, attempt, (start.prompt if start else None) or "")
        return False

    async def _stop(self, attempt: Attempt, found: Going) -> Ended | Going:
        """Ends a turn that is not wanted any more, or takes its message out of the queue."""
        assert attempt.session_id is not None
        assert attempt.message_id is not None
        if found.where != "running":
            try:
                await self._sessions.discard_queued(attempt.session_id, attempt.message_id)
            except QueuedMessageNotFoundError:
                pass  # it runs by now
            else:
                return Ended("stopped", "its message was taken out of the queue")
        await self._sessions.stop(attempt.session_id, attempt.turn_id)
        return await outcome_of(self._store, self._sessions, attempt, is_looked_at=True)

    async def _finish(
        self, work: Work, name: str, attempt: Attempt, found: Ended, deadline: datetime | None
    ) -> bool:
        """Stores the attempt's end, after its check, where its turn completed; whether it did."""
        assert attempt.session_id is not None
        assert attempt.turn_id is not None
        task = work.checks.get((name, attempt.attempt))
        if task is not None and not task.done() and work.state.status != "cancelling":
            return False
        try:
            seen = await look_at_turn(self._store, attempt.session_id, attempt.turn_id)
        except GONE:
            seen = Seen()
        check = work.plan.workflow.step(name).check
        if found.reason == "completed" and check is not None:
            if work.state.status == "cancelling":
                if task is not None:
                    del work.checks[name, attempt.attempt]
                    task.cancel()
                    await asyncio.wait([task])
                return await self._end(
                    work, name, attempt, "stopped", "the workflow was cancelled", seen
                )
            if task is None:
                self._begin_check(work, name, attempt, check, seen)
                return False
            return await self._end_checked(work, name, attempt, check, task, seen)
        reason: str = found.reason
        cause = found.cause
        if reason == "stopped":
            is_timed_out = deadline is not None and (
                found.ended_at is None or found.ended_at >= deadline
            )
            if work.state.status == "cancelling":
                cause = "the workflow was cancelled"
            elif is_timed_out:
                reason, cause = "timed_out", "it took longer than limit_s"
            else:
                cause = cause or "somebody stopped its turn"
        elif reason == "discarded":
            reason = "stopped"
        return await self._end(work, name, attempt, reason, cause, seen)

    def _begin_check(
        self, work: Work, name: str, attempt: Attempt, check: Check, seen: Seen
    ) -> None:
        step = work.plan.workflow.step(name)
        turn = CheckedTurn(
            work.name,
            name,
            attempt.attempt,
            attempt.session_id or "",
            attempt.turn_id or "",
            seen.output,
            work.plan.inputs,
        )
        toolbox = self._toolboxes.toolbox(
            step.runtime or work.plan.workflow.runtime,
            session_id=turn.session_id,
            turn_id=turn.turn_id,
            owner=work.state.owner,
        )
        key = check_key_of(work.incarnation, name, attempt.attempt)
        task = asyncio.create_task(run_check(check, turn, self._functions, toolbox, key))
        work.checks[name, attempt.attempt] = task
        task.add_done_callback(lambda _: self._call(work.name))

    async def _end_checked(
        self,
        work: Work,
        name: str,
        attempt: Attempt,
        check: Check,
        task: asyncio.Task[CheckOutcome],
        seen: Seen,
    ) -> bool:
        del work.checks[name, attempt.attempt]
        found = outcome_of_check(task)
        fact = StepChecked(
            step=name,
            attempt=attempt.attempt,
            passed=found.passed,
            check=name_of(check),
            output=found.output or None,
            seconds=found.seconds,
        )
        if found.passed:
            return await self._end(work, name, attempt, "completed", None, seen, fact)
        reason = "check_failed" if found.could_run else "interrupted"
        cause = found.output.strip() or "its check did not pass"
        return await self._end(work, name, attempt, reason, cause, seen, fact)

    async def _end(
        self,
        work: Work,
        name: str,
        attempt: Attempt,
        reason: str,
        cause: str | None,
        seen: Seen | None = None,
        *before: Fact,
    ) -> bool:
        now = clock.now()
        due = retry_at(work.plan, work.state, work.incarnation, name, reason, now)
        end = StepEnded(
            id=ended_id_of(work.incarnation, name, attempt.attempt),
            step=name,
            attempt=attempt.attempt,
            reason=reason,
            cause=cause,
            output=(seen.output or None) if seen is not None else None,
            seen=seen.as_json() if seen is not None else None,
            retry_at=due,
        )
        await work.append(*before, end)
        said = f"workflow {work.name!r}, step {name!r}, attempt {attempt.attempt}: {reason}"
        _log.info("%s%s", said, f": {cause}" if cause else "")
        return True
