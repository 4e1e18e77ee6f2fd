"""What a routine does next: at a due time, at a turn's end and after a crash alike.

`advance` takes every open run one step on and settles the due times that have passed. Each step is
stored before, or named by a key that follows from, what it does; so it can be cut off anywhere:

- before the claim is stored: the due time is claimed by whoever looks next;
- after the claim: the message is sent with the run's key, which its session takes once;
- after the message: sending it again gives back what it came to;
- after the turn: its end is read from the session's journal.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from datetime import datetime, timedelta

from perdure.errors import (
    AppendConflictError,
    AppendRejectedError,
    NothingToResendError,
    PerdureError,
    QueuedMessageNotFoundError,
    RoutineBusyError,
    RoutineNotFoundError,
    ServerClosingError,
    SessionExistsError,
    SessionNotFoundError,
    StoreError,
    TurnRunningError,
)
from perdure.fact import (
    Fact,
    RoutineFired,
    RoutineRunEnded,
    RoutineRunResent,
    RoutineRunStarted,
    RoutineSkipped,
    RoutineSwitched,
    RunReason,
)
from perdure.server.journal import JournalStore
from perdure.server.keeping.outcome import (
    Ended,
    Going,
    is_quarantined,
    outcome_of,
    was_accepted,
)
from perdure.server.keeping.port import GONE, Sessions
from perdure.server.routine.definition import Definition
from perdure.server.routine.identity import (
    ended_id_of,
    message_key_of,
    new_session_id_of,
    started_id_of,
)
from perdure.server.routine.plan import (
    ON_TIME,
    due_start,
    is_far_ahead,
    late_reason,
    plan,
)
from perdure.server.routine.routine import Routine
from perdure.server.routine.state import MOST_OPEN, Run
from perdure.server.session.idempotency import message_id_of, turn_id_of

_log = logging.getLogger("perdure.routine")

RETRIES = (timedelta(seconds=1), timedelta(seconds=10), timedelta(minutes=1), timedelta(minutes=5))
"""After how long a run is tried again whose session's store refused; then it has failed."""


class _StopsError(Exception):
    """The routine cannot go on: its session is gone, or is not to be trusted."""


class Firing:
    """Takes routines on, one step after another; the caller holds the routine's lock."""

    def __init__(self, store: JournalStore, sessions: Sessions) -> None:
        self._store = store
        self._sessions = sessions

    async def advance(self, routine: Routine, now: datetime, *, thorough: bool) -> None:
        """As `Keeper.advance`, for one whose lock is held."""
        routine.forget_ended()
        left_over = [run.run_id for run in routine.state.runs if _is_left_over(routine, run)]
        going = await self._go_on(routine, now, thorough=thorough)
        if self._sessions.is_closing:
            return
        if is_far_ahead(routine.state, now) and routine.state.status == "enabled":
            why = "the clock was set back, so due times count from here on"
            await routine.append(RoutineSwitched(status="enabled", after=now, why=why))
        start = routine.next_start()
        if start is None or start > now:
            return
        may_catch_up = not any(run_id in routine.own_runs for run_id in left_over)
        if await self._settle(routine, now, going, may_catch_up=may_catch_up):
            await self._go_on(routine, now, thorough=False)

    async def ask(self, routine: Routine, fired: RoutineFired, now: datetime) -> None:
        """Claims and starts a run that somebody asked for.

        Raises:
            RoutineBusyError: a run has not ended, and runs do not overlap; nothing stored.
            PerdureError: as `advance`.

        """
        going = await self._go_on(routine, now, thorough=True)
        definition = routine.state.definition
        is_full = len(routine.state.runs) >= MOST_OPEN
        if going is not None and (is_full or (definition and definition.overlap == "skip")):
            raise RoutineBusyError(routine.routine_id, going)
        await routine.append(fired)
        await self._go_on(routine, now, thorough=False)

    async def _settle(
        self, routine: Routine, now: datetime, going: str | None, *, may_catch_up: bool
    ) -> bool:
        """Stores what becomes of the due times that have passed; whether it claimed one."""
        id_, incarnation = routine.routine_id, routine.incarnation
        planned = plan(id_, incarnation, routine.state, now, going=going, may_catch_up=may_catch_up)
        if not planned.facts:
            return False
        try:
            await routine.append(*planned.facts)
        except AppendRejectedError:
            # The claim's id is taken: it had its start already, before the clock was set back.
            await routine.append(*map(_not_again, planned.facts))
            return False
        if planned.claims is None:
            return False
        routine.own_runs.add(planned.claims)
        return True

    async def _go_on(self, routine: Routine, now: datetime, *, thorough: bool) -> str | None:
        """Takes each open run one step on; the id of one that has not ended, and is not held."""
        going: str | None = None
        for run in routine.state.runs:
            try:
                is_going = await self._step(routine, run, now, going, thorough=thorough)
            except (_StopsError, *GONE) as error:
                await self._stop_itself(routine, run, str(error))
            except ServerClosingError:
                return going or run.run_id
            except RoutineNotFoundError:
                raise
            except StoreError as error:
                if run.attempt or isinstance(error, AppendRejectedError | AppendConflictError):
                    raise
                await self._try_later(routine, run, now, error)
                going = going or run.run_id
            except PerdureError as error:  # nothing was stored, and the same again cannot help
                await self._end(routine, run, "failed", str(error))
            else:
                going = going or (run.run_id if is_going else None)
        return going

    async def _step(
        self, routine: Routine, run: Run, now: datetime, going: str | None, *, thorough: bool
    ) -> bool:
        """Takes a run one step on; whether it is still going."""
        definition = routine.state.definition
        assert definition is not None
        found: Run | None = run
        if run.attempt == 0:
            if going is not None and not await self._make_way(routine, definition, run):
                return True
            found = await self._start(routine, definition, run, now)
        elif run.resends is not None:
            found = await self._resend(routine, run)
        if found is None:
            return False
        return await self._follow(routine, definition, found, thorough=thorough)

    async def _make_way(self, routine: Routine, definition: Definition, run: Run) -> bool:
        """Whether the run may start although one before it has not ended; that one is ended."""
        if definition.overlap != "interrupt":
            return False
        for other in routine.state.runs:
            if other.run_id == run.run_id:
                break
            cause = f"run {run.run_id} took its place"
            if other.session_id is None or other.turn_id is None or other.message_id is None:
                await self._end(routine, other, "skipped", cause)
                continue
            try:
                await self._sessions.discard_queued(other.session_id, other.message_id)
                await self._end(routine, other, "discarded", cause)
            except QueuedMessageNotFoundError:
                await self._sessions.stop(other.session_id, other.turn_id)
                await self._follow(routine, definition, other, thorough=True, cause=cause)
        return True

    async def _start(
        self, routine: Routine, definition: Definition, run: Run, now: datetime
    ) -> Run | None:
        """Sends the run's message; None where a policy of the routine is against it."""
        key = message_key_of(routine.incarnation, run.run_id)
        session_id, incarnation = await self._session_of(routine, definition, run)
        is_accepted = incarnation is not None and await was_accepted(
            self._store, session_id, incarnation, message_id_of(incarnation, key)
        )
        if not is_accepted and (why := _against(routine, definition, run, now)) is not None:
            await self._end(routine, run, "skipped", why)
            return None
        if incarnation is None:
            incarnation = await self._create(definition, session_id)
        if not is_accepted:
            look = await self._sessions.look(session_id)
            if await is_quarantined(self._store, look):
                raise _StopsError(
                    f"the last turn of session {session_id!r} is in quarantine: the server died in "
                    "it too often; send it a message that completes, then resume the routine"
                )
        if is_accepted:  # before a crash; what the routine says may be something else by now
            message_id, turn_id, may_wait = message_id_of(incarnation, key), None, True
        else:
            sent = await self._sessions.send(
                session_id, definition.parts, idempotency_key=key, source="routine"
            )
            message_id, turn_id, may_wait = sent.message_id, sent.turn_id, sent.queued
        routine.retries = 0
        routine.own_runs.add(run.run_id)
        if may_wait:
            routine.queued_runs.add(run.run_id)
        return await _started(routine, run, session_id, incarnation, message_id, turn_id)

    async def _session_of(
        self, routine: Routine, definition: Definition, run: Run
    ) -> tuple[str, str | None]:
        """The session of this run and its incarnation; None: a new one, which is not made yet."""
        if definition.session_id is not None:
            return definition.session_id, await self._load(definition, definition.session_id)
        session_id = new_session_id_of(
            routine.routine_id, routine.incarnation, run.run_id, run.due_at
        )
        try:
            return session_id, (await self._store.load_session(session_id)).incarnation
        except SessionNotFoundError:
            return session_id, None

    async def _load(self, definition: Definition, session_id: str) -> str:
        """The incarnation of the session that the routine was made for."""
        session = await self._store.load_session(session_id)
        if session.incarnation != definition.incarnation:
            raise _StopsError(
                f"session {session_id!r} was deleted, and the one that has its id now is another; "
                "resume the routine to go on there"
            )
        return session.incarnation

    async def _create(self, definition: Definition, session_id: str) -> str:
        """Makes the session of one run; its incarnation."""
        owner = definition.owner
        if definition.fork_of is None:
            await self._sessions.create(session_id, definition.loop, owner=owner)
        else:
            await self._load(definition, definition.fork_of)
            with suppress(SessionExistsError):
                await self._sessions.fork(definition.fork_of, session_id, owner=owner)
        return (await self._store.load_session(session_id)).incarnation

    async def _try_later(
        self, routine: Routine, run: Run, now: datetime, error: StoreError
    ) -> None:
        if routine.retries >= len(RETRIES):
            routine.retries = 0
            await self._end(routine, run, "failed", str(error))
            return
        routine.retry_at = now + RETRIES[routine.retries]
        routine.retries += 1
        _log.warning("routine %r tries again: %s", routine.routine_id, error)

    async def _follow(
        self,
        routine: Routine,
        definition: Definition,
        run: Run,
        *,
        thorough: bool,
        cause: str | None = None,
    ) -> bool:
        """Stores the run's end, or sends its turn again by the routine's own policy."""
        is_looked_at = thorough or run.run_id in routine.queued_runs
        found = await outcome_of(self._store, self._sessions, run, is_looked_at=is_looked_at)
        if isinstance(found, Going):
            if found.where == "running":
                routine.queued_runs.discard(run.run_id)
            else:
                routine.queued_runs.add(run.run_id)
            return found.where != "held"
        if self._is_to_be_resent(definition, run, found):
            assert run.turn_id is not None
            attempt = run.attempt + 1
            await routine.append(
                RoutineRunResent(run_id=run.run_id, turn_id=run.turn_id, attempt=attempt)
            )
            again = routine.state.run(run.run_id)
            return again is not None and await self._resend(routine, again) is not None
        await self._end(routine, run, found.reason, cause or found.cause)
        if found.quarantined:
            raise _StopsError(found.cause or "the turn is in quarantine")
        return False

    def _is_to_be_resent(self, definition: Definition, run: Run, found: Ended) -> bool:
        is_in_budget = run.attempt <= definition.resends
        is_possible = found.is_last and not self._sessions.is_closing
        return found.reason == "interrupted" and is_in_budget and is_possible

    async def _resend(self, routine: Routine, run: Run) -> Run | None:
        """Sends the run's interrupted turn again, unless that was done; None where it cannot."""
        assert run.session_id is not None
        assert run.incarnation is not None
        assert run.message_id is not None
        assert run.resends is not None
        try:
            sent = await self._sessions.resend(run.session_id, run.resends)
        except (NothingToResendError, TurnRunningError):
            cause = "it was interrupted, and its session went on before it was sent again"
            await self._end(routine, run, "interrupted", cause)
            return None
        return await _started(
            routine, run, run.session_id, run.incarnation, run.message_id, sent.turn_id
        )

    async def _end(self, routine: Routine, run: Run, reason: RunReason, cause: str | None) -> None:
        if routine.state.run(run.run_id) is None:
            return
        await routine.append(_ended(routine, run, reason, cause))
        said = f"run {run.run_id} of routine {routine.routine_id!r}: {reason}"
        _log.info("%s%s", said, f": {cause}" if cause else "")

    async def _stop_itself(self, routine: Routine, run: Run, why: str) -> None:
        """Ends the run, if it has no end, and stops the routine, unless each run has a session."""
        facts: list[Fact] = []
        definition = routine.state.definition
        if (open_run := routine.state.run(run.run_id)) is not None:
            facts.append(_ended(routine, open_run, "failed", why))
        is_own = definition is not None and definition.session_id is not None
        is_whole = is_own or open_run is None or open_run.attempt == 0
        if is_whole and routine.state.status != "stopped":
            facts.append(RoutineSwitched(status="stopped", why=why))
            _log.warning("routine %r has stopped itself: %s", routine.routine_id, why)
        if facts:
            await routine.append(*facts)


def _is_left_over(routine: Routine, run: Run) -> bool:
    """Whether a process that ended had claimed this run and not sent it, as far as is known."""
    return run.attempt == 0 and run.cause != "asked" and run.run_id not in routine.own_runs


def _not_again(fact: Fact) -> Fact:
    if not isinstance(fact, RoutineFired):
        return fact
    why = "it had its start already, before the clock was set back"
    return RoutineSkipped(due_at=datetime.fromisoformat(fact.due_at), why=why)


def _against(routine: Routine, definition: Definition, run: Run, now: datetime) -> str | None:
    """Why a run that was claimed is not to start any more."""
    if run.cause == "asked":
        return None
    if routine.state.status != "enabled":
        return f"the routine was {routine.state.status} before it started"
    late = now - due_start(definition, routine.incarnation, run.due_at)
    if definition.after_outage == "skip" and late > ON_TIME and _is_left_over(routine, run):
        return "the server ended before its message was sent, and what an outage kept is skipped"
    return late_reason(definition, late)


async def _started(
    routine: Routine,
    run: Run,
    session_id: str,
    incarnation: str,
    message_id: str,
    turn_id: str | None,
) -> Run | None:
    attempt = run.attempt + 1
    await routine.append(
        RoutineRunStarted(
            id=started_id_of(routine.incarnation, run.run_id, attempt),
            run_id=run.run_id,
            session_id=session_id,
            incarnation=incarnation,
            message_id=message_id,
            turn_id=turn_id or turn_id_of(incarnation, message_id),
            attempt=attempt,
        )
    )
    return routine.state.run(run.run_id)


def _ended(routine: Routine, run: Run, reason: RunReason, cause: str | None) -> RoutineRunEnded:
    return RoutineRunEnded(
        id=ended_id_of(routine.incarnation, run.run_id),
        run_id=run.run_id,
        reason=reason,
        turn_id=run.turn_id,
        cause=cause,
    )
