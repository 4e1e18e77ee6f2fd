"""Refusals as RFC 9457 problem documents: what went wrong, a stable code, and what to do.

Every error that Perdure raises has its status and code in one table here; nothing else decides
them. What nobody foresaw is `internal`, is logged, and shows the client nothing of itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from perdure import errors
from perdure.codec import encode
from perdure.errors import PerdureError
from perdure.server.folder import without_folders

MEDIA_TYPE = "application/problem+json"

NOTE = "perdure.note"
"""The key of a request's scope whose value has a `code` to be set."""

PROBLEMS: dict[type[PerdureError], tuple[int, str]] = {
    errors.PerdureError: (500, "perdure"),
    errors.InvalidSessionIdError: (422, "invalid_session_id"),
    errors.SessionNotFoundError: (404, "session_not_found"),
    errors.SessionExistsError: (409, "session_exists"),
    errors.NothingToSalvageError: (409, "nothing_to_salvage"),
    errors.SessionDeletedError: (404, "session_deleted"),
    errors.EntryNotFoundError: (404, "entry_not_found"),
    errors.SessionBusyError: (409, "session_busy"),
    errors.SessionClosedError: (503, "session_closed"),
    errors.NoLoopError: (409, "no_loop"),
    errors.CursorVoidError: (422, "invalid_cursor"),
    errors.RunEndedError: (409, "run_ended"),
    errors.FormatTooNewError: (409, "format_too_new"),
    errors.UnknownSchemeError: (422, "unknown_scheme"),
    errors.MissingExtraError: (422, "missing_extra"),
    errors.ConfigurationError: (422, "configuration"),
    errors.LoopError: (502, "loop_failed"),
    errors.ModelError: (502, "model_failed"),
    errors.TurnRunningError: (409, "turn_running"),
    errors.MessageRejectedError: (409, "message_rejected"),
    errors.SteeringUnsupportedError: (422, "steering_unsupported"),
    errors.IdempotencyConflictError: (422, "idempotency_conflict"),
    errors.NothingToResendError: (409, "nothing_to_resend"),
    errors.NothingHeldError: (409, "nothing_held"),
    errors.QueuedMessageNotFoundError: (404, "queued_message_not_found"),
    errors.ApprovalNotFoundError: (404, "approval_not_found"),
    errors.ApprovalAnsweredError: (409, "approval_answered"),
    errors.HookRefusedError: (409, "hook_refused"),
    errors.HookFailedError: (502, "hook_failed"),
    errors.RuntimeLostError: (502, "runtime_lost"),
    errors.RoutineNotFoundError: (404, "routine_not_found"),
    errors.RoutineExistsError: (409, "routine_exists"),
    errors.RoutineBusyError: (409, "routine_busy"),
    errors.InvalidRoutineError: (422, "invalid_routine"),
    errors.WorkflowNotFoundError: (404, "workflow_not_found"),
    errors.StepNotFoundError: (404, "step_not_found"),
    errors.WorkflowExistsError: (409, "workflow_exists"),
    errors.WorkflowConflictError: (409, "workflow_conflict"),
    errors.InvalidWorkflowError: (422, "invalid_workflow"),
    errors.ServerClosingError: (503, "server_closing"),
    errors.StoreError: (500, "store_failed"),
    errors.AppendRejectedError: (422, "append_rejected"),
    errors.AppendConflictError: (409, "append_conflict"),
    errors.AppendUncertainError: (503, "append_uncertain"),
    errors.StoreUnavailableError: (503, "store_unavailable"),
    errors.UnrecoverableError: (500, "unrecoverable"),
    errors.JournalCorruptError: (500, "journal_corrupt"),
    errors.StateUnreplayableError: (500, "state_unreplayable"),
}


REFUSALS: dict[str, int] = {
    "body_too_large": 413,
    "cut_off": 400,
    "duplicate_session": 422,
    "empty_message": 422,
    "foreign_origin": 403,
    "head_too_large": 431,
    "host_not_allowed": 421,
    "http": 400,
    "internal": 500,
    "invalid_body": 422,
    "invalid_idempotency_key": 422,
    "invalid_json": 400,
    "invalid_limit": 422,
    "invalid_listing": 422,
    "invalid_number": 422,
    "invalid_request": 400,
    "invalid_runtime": 422,
    "invalid_status": 422,
    "invalid_text": 400,
    "method_not_allowed": 405,
    "no_session": 422,
    "not_allowed": 403,
    "not_found": 404,
    "not_ready": 503,
    "range_not_satisfiable": 416,
    "too_many_requests": 429,
    "too_slow": 408,
    "runtime_name_taken": 409,
    "too_many_sessions": 422,
    "too_many_streams": 429,
    "two_bounds": 422,
    "unauthorised": 401,
    "upgrade_required": 426,
}
"""The codes of refusals that are no PerdureError, and their statuses."""

CODES = frozenset(REFUSALS) | {code for _, code in PROBLEMS.values()}
"""Every code that a problem can have."""

_RESERVED = frozenset({"type", "title", "status", "detail", "instance", "code", "headers"})


class Refused(Exception):
    """A request that the server refuses by itself, before any session has heard of it."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        **fields: object,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.headers = headers
        self.fields = fields


class Problem(Response):
    """A response that tells its request's note which code it has."""

    code = "internal"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends it."""
        if (note := scope.get(NOTE)) is not None:
            note.code = self.code
        await super().__call__(scope, receive, send)


def problem(
    status: int,
    code: str,
    detail: str,
    *,
    headers: Mapping[str, str] | None = None,
    **fields: object,
) -> Response:
    """The response of a problem; `fields` are members of its own."""
    document = fields | document_of(status, code, detail)
    sent = {"cache-control": "no-store", **(headers or {})}
    response = Problem(encode(document), status, headers=sent, media_type=MEDIA_TYPE)
    response.code = code
    return response


def document_of(status: int, code: str, detail: str) -> dict[str, object]:
    """What every problem document has."""
    return {
        "type": f"urn:perdure:problem:{code}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "code": code,
    }


def problem_of(error: Exception, *, has_folders: bool = False) -> Response:
    """The response of an error that was foreseen; paths have their folders only if asked for."""
    if isinstance(error, Refused):
        return problem(
            error.status, error.code, error.detail, headers=error.headers, **error.fields
        )
    if isinstance(error, PerdureError):
        status, code = next(PROBLEMS[kind] for kind in type(error).__mro__ if kind in PROBLEMS)
        headers = {"retry-after": "1"} if status == 503 else None
        detail, fields = str(error), _fields(error)
        if not has_folders and isinstance(error, errors.StoreError | errors.UnrecoverableError):
            detail = without_folders(detail)
            fields = {
                name: without_folders(value) if isinstance(value, str) else value
                for name, value in fields.items()
            }
        return problem(status, code, detail, headers=headers, **fields)
    raise error


def _fields(error: PerdureError) -> dict[str, object]:
    """What an error carries, as far as it is plain and no problem has a member of that name."""
    return {
        name: value
        for name, value in vars(error).items()
        if name not in _RESERVED
        and not name.startswith("_")
        and isinstance(value, str | int | None)
    }
