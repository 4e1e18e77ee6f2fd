"""Every error that leaves Perdure, and what each says about the data.

PerdureError
├─ InvalidSessionIdError   ├─ SessionNotFoundError   ├─ SessionExistsError   ├─ SessionDeletedError
├─ EntryNotFoundError      ├─ SessionBusyError       ├─ SessionClosedError   ├─ NoLoopError
├─ CursorVoidError         ├─ RunEndedError          ├─ FormatTooNewError
├─ UnknownSchemeError      ├─ MissingExtraError      ├─ ConfigurationError
├─ LoopError
│   └─ ModelError              a model's provider failed; status
├─ TurnRunningError        ├─ MessageRejectedError   ├─ SteeringUnsupportedError
├─ IdempotencyConflictError ├─ NothingToResendError  ├─ NothingHeldError
├─ QueuedMessageNotFoundError ├─ ServerClosingError ├─ NothingToSalvageError
├─ ApprovalNotFoundError   ├─ ApprovalAnsweredError
├─ HookRefusedError        ├─ HookFailedError        ├─ RuntimeLostError
├─ RoutineNotFoundError    ├─ RoutineExistsError     ├─ InvalidRoutineError
├─ RoutineBusyError        ├─ WorkflowNotFoundError  ├─ WorkflowExistsError
├─ WorkflowConflictError   ├─ InvalidWorkflowError   ├─ StepNotFoundError
├─ StoreError
│   ├─ AppendRejectedError     certainly not stored; the session is well
│   ├─ AppendConflictError     certainly not stored; another writer is ahead
│   ├─ AppendUncertainError    may be stored: reload, then decide
│   └─ StoreUnavailableError   nothing was attempted
└─ UnrecoverableError          never shown as a healthy session
    ├─ JournalCorruptError     session_id, seq, place
    └─ StateUnreplayableError

An error carries fields, not only text, and its text says what to do. A driver's own exception
never crosses a store's edge; it stays as `__cause__`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class PerdureError(Exception):
    """The root: catching it catches everything that Perdure raises on purpose."""


class _SessionError(PerdureError):
    def __init__(self, session_id: str, message: str) -> None:
        super().__init__(message)
        self.session_id = session_id


class InvalidSessionIdError(PerdureError):
    """The session id breaks the rules of `store.check_session_id`; nothing was attempted."""

    def __init__(self, session_id: object, reason: str) -> None:
        super().__init__(
            f"invalid session id: {reason}. A session id is a string of 1 to 512 UTF-8 bytes "
            "without control characters or lone surrogates, and not '.' or '..'"
        )
        self.session_id = session_id
        self.reason = reason


class SessionNotFoundError(_SessionError):
    """No session has this id in this store; nothing was stored."""

    def __init__(self, session_id: str) -> None:
        super().__init__(
            session_id, f"no session {session_id!r} in this store; check the id, or create it"
        )


class SessionExistsError(_SessionError):
    """The id is taken; the existing session is untouched and nothing was stored."""

    def __init__(self, session_id: str) -> None:
        super().__init__(
            session_id, f"session {session_id!r} exists already; open it, or choose another id"
        )


class SessionDeletedError(_SessionError):
    """The incarnation that the caller holds was deleted; certainly not stored."""

    def __init__(self, session_id: str, incarnation: str | None = None) -> None:
        super().__init__(
            session_id,
            f"session {session_id!r} was deleted (incarnation {incarnation}); "
            "a new session of this id starts empty: open it anew",
        )
        self.incarnation = incarnation


class EntryNotFoundError(_SessionError):
    """The session has no such entry; nothing was changed."""

    def __init__(self, session_id: str, entry_id: str, detail: str = "no such entry") -> None:
        where = f" in session {session_id!r}" if session_id else ""
        super().__init__(session_id, f"entry {entry_id!r}{where}: {detail}")
        self.entry_id = entry_id


class SessionBusyError(_SessionError):
    """A run is active; the new one was not started and stored nothing."""

    def __init__(self, session_id: str) -> None:
        super().__init__(
            session_id,
            f"session {session_id!r} has a run in progress; await it, or leave its iteration, "
            "before starting another",
        )


class SessionClosedError(_SessionError):
    """The agent was closed; nothing was attempted."""

    def __init__(self, session_id: str) -> None:
        super().__init__(session_id, f"the agent of session {session_id!r} is closed; open it anew")


class NoLoopError(_SessionError):
    """The agent was opened without a loop, so it cannot run; nothing was stored."""

    def __init__(self, session_id: str) -> None:
        super().__init__(
            session_id,
            f"session {session_id!r} was opened without a loop: it records, branches and reads, "
            "but cannot run; pass a loop to perdure.open()",
        )


class CursorVoidError(PerdureError):
    """The cursor belongs to another incarnation, or is none at all; start again from 0."""

    def __init__(self, cursor: str, detail: str) -> None:
        super().__init__(f"cursor {cursor!r} is void: {detail}; read again from 0")
        self.cursor = cursor


class RunEndedError(PerdureError):
    """The run was left before its end; what it had stored stays stored."""

    def __init__(self, message: str = "the run was left before its end") -> None:
        super().__init__(f"{message}; what it had stored stays stored. Start a new run to go on")


class FormatTooNewError(PerdureError):
    """The log was written by a newer format: it opens for reading and refuses to be written."""

    def __init__(self, place: str, found: int, known: int) -> None:
        super().__init__(
            f"{place} has format {found}, this Perdure writes up to {known}: it can be read, "
            "not written; upgrade perdure to write it"
        )
        self.place = place
        self.found = found
        self.known = known


class UnknownSchemeError(PerdureError):
    """The store URL has a scheme that no installed store serves."""

    def __init__(self, url: str, schemes: tuple[str, ...]) -> None:
        super().__init__(
            f"unknown store URL {url!r}; known are "
            + ", ".join(schemes)
            + " (three slashes: relative, four: absolute); another scheme needs a plugin installed"
        )
        self.url = url
        self.schemes = schemes


class MissingExtraError(PerdureError):
    """Something optional is not installed; the text is the command that installs it."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f'{what} needs the extra "{extra}": pip install "perdure[{extra}]"')
        self.extra = extra


class ConfigurationError(PerdureError):
    """A setting, an argument or a combination of them cannot work; nothing was started."""


class LoopError(PerdureError):
    """The inner loop failed or broke the Loop contract; what it had yielded is stored."""


class TurnRunningError(_SessionError):
    """A turn runs, and this cannot be done meanwhile; nothing was stored."""

    def __init__(self, session_id: str, turn_id: str) -> None:
        super().__init__(
            session_id,
            f"turn {turn_id} of session {session_id!r} is running; wait for its end, or stop it",
        )
        self.turn_id = turn_id


class MessageRejectedError(_SessionError):
    """The message met a running turn and asked to be rejected then; it was not stored."""

    def __init__(self, session_id: str, turn_id: str) -> None:
        super().__init__(
            session_id,
            f"turn {turn_id} of session {session_id!r} is running, and the message asked to be "
            'rejected then; send it later, or with "if_running": "queue"',
        )
        self.turn_id = turn_id


class SteeringUnsupportedError(_SessionError):
    """The session's loop cannot take a message into a running turn; it was not stored."""

    def __init__(self, session_id: str) -> None:
        super().__init__(
            session_id,
            f"the loop of session {session_id!r} cannot be steered; "
            'send the message with "if_running": "queue" or "interrupt"',
        )


class IdempotencyConflictError(_SessionError):
    """The idempotency key was used with another message, which stays; this one was not stored."""

    def __init__(self, session_id: str, message_id: str) -> None:
        super().__init__(
            session_id,
            f"this idempotency key made message {message_id} of session {session_id!r}, which has "
            "other content; use a new key for a new message",
        )
        self.message_id = message_id


class NothingToResendError(_SessionError):
    """The session's last turn completed, or it has none; nothing was stored."""

    def __init__(self, session_id: str) -> None:
        super().__init__(
            session_id,
            f"session {session_id!r} has no turn that ended before it completed; send a message",
        )


class NothingHeldError(_SessionError):
    """No message waits to be run; nothing was stored."""

    def __init__(self, session_id: str) -> None:
        super().__init__(session_id, f"no message waits in session {session_id!r}; send one")


class NothingToSalvageError(_SessionError):
    """The session is healthy, or nothing of it is sound; no session was made."""

    def __init__(self, session_id: str, why: str) -> None:
        super().__init__(session_id, f"session {session_id!r} is not salvaged: {why}")


class QueuedMessageNotFoundError(_SessionError):
    """No message of this id waits: it ran, was discarded, or never was; nothing was stored."""

    def __init__(self, session_id: str, message_id: str) -> None:
        super().__init__(
            session_id, f"no message {message_id!r} waits in the queue of session {session_id!r}"
        )
        self.message_id = message_id


class ApprovalNotFoundError(_SessionError):
    """No call of this id waits for an approval in the session; nothing was stored."""

    def __init__(self, session_id: str, call_id: str) -> None:
        super().__init__(
            session_id,
            f"no call {call_id!r} waits for an approval in session {session_id!r}; it may have "
            "run by now, its turn may have been stopped, or the request has expired",
        )
        self.call_id = call_id


class ApprovalAnsweredError(_SessionError):
    """The call was answered before, otherwise; the first answer counts and nothing was stored."""

    def __init__(self, session_id: str, call_id: str) -> None:
        super().__init__(
            session_id, f"call {call_id!r} of session {session_id!r} was answered already"
        )
        self.call_id = call_id


class HookRefusedError(PerdureError):
    """A hook refused what was about to happen; it did not. `reason` is the hook's own word."""

    def __init__(self, event: str, reason: str) -> None:
        super().__init__(f"refused by a hook ({event}): {reason}")
        self.event = event
        self.reason = reason


class HookFailedError(PerdureError):
    """A hook could not be run, or not to its end; what it stood before goes on without it."""


class RuntimeLostError(PerdureError):
    """The runtime went away; what its calls did in the world is not known, nothing else is lost."""

    def __init__(self, runtime_id: str, cause: str) -> None:
        super().__init__(
            f"the runtime {runtime_id!r} was lost: {cause}. Send the turn again once it is back"
        )
        self.runtime_id = runtime_id
        self.cause = cause


class _RoutineError(PerdureError):
    def __init__(self, routine_id: str, message: str) -> None:
        super().__init__(message)
        self.routine_id = routine_id


class RoutineNotFoundError(_RoutineError):
    """No routine has this id; nothing was stored."""

    def __init__(self, routine_id: str) -> None:
        super().__init__(routine_id, f"there is no routine {routine_id!r}; perdure routine ls")


class RoutineExistsError(_RoutineError):
    """The id is taken by a routine that does something else, which stays; nothing was stored."""

    def __init__(self, routine_id: str) -> None:
        super().__init__(
            routine_id,
            f"routine {routine_id!r} exists and does something else; change it, or choose "
            "another id",
        )


class RoutineBusyError(_RoutineError):
    """A run of the routine has not ended, and it takes no other meanwhile; nothing was stored."""

    def __init__(self, routine_id: str, run_id: str) -> None:
        super().__init__(
            routine_id,
            f"run {run_id} of routine {routine_id!r} has not ended; wait for it, stop its turn, "
            'or let runs overlap ("overlap": "queue" or "interrupt")',
        )
        self.run_id = run_id


class InvalidRoutineError(PerdureError):
    """A routine cannot be like this; nothing was stored. `field` is what is wrong."""

    def __init__(self, field: str, detail: str) -> None:
        super().__init__(f"{field}: {detail}")
        self.field = field


class _WorkflowError(PerdureError):
    def __init__(self, workflow_id: str, message: str) -> None:
        super().__init__(message)
        self.workflow_id = workflow_id


class WorkflowNotFoundError(_WorkflowError):
    """No workflow has this id; nothing was stored."""

    def __init__(self, workflow_id: str) -> None:
        super().__init__(workflow_id, f"there is no workflow {workflow_id!r}; perdure workflow ls")


class WorkflowExistsError(_WorkflowError):
    """The id is taken by another workflow, which stays; nothing was stored."""

    def __init__(self, workflow_id: str) -> None:
        super().__init__(
            workflow_id, f"workflow {workflow_id!r} exists and is another one; choose another id"
        )


class StepNotFoundError(_WorkflowError):
    """The workflow has no step of this id; nothing was stored."""

    def __init__(self, workflow_id: str, step: str, known: Sequence[str]) -> None:
        super().__init__(workflow_id, f"there is no step {step!r}; there are {', '.join(known)}")
        self.step = step


class WorkflowConflictError(_WorkflowError):
    """The workflow stands where this cannot be done; nothing was stored. `step` is which, if any.

    The text says how it stands, and what can be done.
    """

    def __init__(self, workflow_id: str, detail: str, *, step: str | None = None) -> None:
        super().__init__(workflow_id, detail)
        self.step = step


class WorkflowProblem(NamedTuple):
    """What is wrong with a workflow: where, by line (from 1) and field, and what is allowed."""

    line: int | None
    field: str
    detail: str

    def __str__(self) -> str:
        """`line 3, steps[0].prompt: …`."""
        place = ", ".join([*([f"line {self.line}"] if self.line else []), self.field]).rstrip(", ")
        return f"{place}: {self.detail}" if place else self.detail


class InvalidWorkflowError(PerdureError):
    """A workflow cannot be like this; nothing was stored, and nothing runs.

    `problems` are all that were found; `line` and `field` are those of the first one.
    """

    def __init__(self, problems: Sequence[WorkflowProblem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)
        self.line = problems[0].line
        self.field = problems[0].field


class ServerClosingError(PerdureError):
    """The server is shutting down; nothing was stored. Try again when it is back."""

    def __init__(self) -> None:
        super().__init__("the server is shutting down and takes no more commands; try again")


class ModelError(LoopError):
    """A model's provider failed, or the connection to it; what had been finished is stored.

    `status` is the HTTP status that the provider gave, or None. `is_transient` says that the same
    request may well succeed later: a limit, an overload, a lost connection; `retry_after_s` is how
    long the provider asked to wait, or None.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        is_transient: bool = False,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.is_transient = is_transient
        self.retry_after_s = retry_after_s


class StoreError(PerdureError):
    """A store could not do what was asked; the subclass says what became of the data."""


class AppendRejectedError(StoreError):
    """Certainly not stored, and retrying the same entries cannot help; the session is well."""


class AppendConflictError(StoreError):
    """Certainly not stored: another writer appended first. Reload, then append anew."""

    def __init__(self, session_id: str, expected_seq: int, actual_seq: int) -> None:
        super().__init__(
            f"session {session_id!r} stands at seq {actual_seq}, not at {expected_seq}: another "
            "writer is ahead; reload the session, then append anew"
        )
        self.session_id = session_id
        self.expected_seq = expected_seq
        self.actual_seq = actual_seq


class AppendUncertainError(StoreError):
    """May be stored: reload, compare the entry ids, and retry the same ids if they are absent."""


class StoreUnavailableError(StoreError):
    """Nothing was attempted: the store is closed, locked, or cannot be reached."""


class UnrecoverableError(PerdureError):
    """The session cannot be shown as healthy until an operator has acted."""


class JournalCorruptError(UnrecoverableError):
    """The log is damaged at `place`; nothing was changed. `perdure verify` lists all damage."""

    def __init__(self, session_id: str, seq: int | None, place: str, detail: str) -> None:
        super().__init__(
            f"the journal of session {session_id!r} is damaged at {place}"
            + (f" (seq {seq})" if seq is not None else "")
            + f": {detail}. It is left as it is; restore it from a copy, or keep what is sound "
            "of it: perdure salvage"
        )
        self.session_id = session_id
        self.seq = seq
        self.place = place
        self.detail = detail


class StateUnreplayableError(UnrecoverableError):
    """The entries are sound but do not fold into a state; nothing was changed."""
