"""Stands before every operation: what the role may, and whose the session is.

A session of somebody else is *not there*: it is refused as a missing one is, with the same words,
before anything of it is read or told. Whoever adds an operation has nothing to do for it: the table
says which ones are about a session, and what right each one needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from starlette.requests import Request

from perdure.errors import SessionExistsError, SessionNotFoundError
from perdure.server.access.principal import Grant, Right
from perdure.server.http.auth import Access, check_right, grant_of
from perdure.server.http.body import receive_body
from perdure.server.http.segment import session_id_of, text_of
from perdure.server.service import Service


async def guard(
    service: Service,
    request: Request,
    needs: Right,
    *,
    take: Callable[[int], None] | None = None,
) -> None:
    """Returns if the request may go on to the handler of its operation.

    `take` is told how much of the body came, if the operation has one; it may refuse more.

    Raises:
        Refused: 403, the role may not; 413, 408, 429 or 400, the body did not come whole; 401, the
            token was revoked meanwhile.
        InvalidSessionIdError, SessionNotFoundError: of the session in the path.
        RoutineNotFoundError, WorkflowNotFoundError: of the routine or workflow in the path.

    """
    grant = grant_of(request.scope)
    if grant is None:
        return
    check_right(grant, needs)
    if take is not None:
        # Nobody decides first and takes a day to send the rest: the token may be revoked by then,
        # and the session another one.
        await receive_body(request, service.settings.max_body_bytes, take)
        access: Access = request.app.state.access
        access.check_again(grant)
    is_about = {"session_id", "routine_id", "workflow_id"} & request.path_params.keys()
    if grant.scope is None or not is_about:
        return
    session_id = session_id_of(request) if "session_id" in is_about else None
    if "workflow_id" in is_about:
        await service.workflows.check_scope(text_of(request, "workflow_id"), grant.scope)
        return
    if session_id is None:
        service.routines.check_scope(text_of(request, "routine_id"), grant.scope)
        return
    await admit(service, grant, [session_id])


async def admit(service: Service, grant: Grant, session_ids: Iterable[str]) -> None:
    """Returns if all these sessions are there for the grant; O(1) for each.

    Raises:
        InvalidSessionIdError: one is none.
        SessionNotFoundError: one is not there, or somebody else's.

    """
    if grant.scope is None:
        return
    for session_id in session_ids:
        if not grant.has(await service.store.load_owner(session_id)):
            raise SessionNotFoundError(session_id)


async def check_free(service: Service, grant: Grant, session_id: str | None) -> None:
    """Returns if nobody else has a session of the id that a new one is to get.

    Ids are the server's, not a principal's: that one is taken is told, and nothing else of it.

    Raises:
        InvalidSessionIdError: it is none.
        SessionExistsError: somebody else has it.

    """
    if session_id is None or grant.scope is None:
        return
    try:
        owner = await service.store.load_owner(session_id)
    except SessionNotFoundError:
        return
    if not grant.has(owner):
        raise SessionExistsError(session_id)
