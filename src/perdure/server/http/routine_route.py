"""What the addresses of routines do: each reads its request, asks the routines, and answers.

A routine belongs to the principal who made it; that of somebody else is not there (guard.py).
"""

from __future__ import annotations

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from perdure.server.http.auth import grant_of_request
from perdure.server.http.body import EmptyBody, read_body
from perdure.server.http.segment import limit_of, text_of
from perdure.server.http.session_route import answer, idempotency_key
from perdure.server.routine.definition import Wanted
from perdure.server.routine.look import RoutineLook
from perdure.server.routine.registry import Switch
from perdure.server.service import Service


class RoutineBody(Wanted, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Makes a routine; without an id it gets one."""

    routine_id: str | None = None
    status: Switch = "enabled"


class RoutineChange(Wanted, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Changes a routine: what is given, and whether it rests."""

    status: Switch | None = None


class RoutinePage(Struct, frozen=True):
    """Some routines; `next` is the `after` of the page that follows, None on the last."""

    routines: tuple[RoutineLook, ...]
    next: str | None


def _wanted(body: Wanted) -> Wanted:
    return Wanted(**body.given(*Wanted.__struct_fields__))


async def list_routines(service: Service, request: Request) -> Response:
    """A page of the listing."""
    after = request.query_params.get("after")
    scope = grant_of_request(request).scope
    looks, following = service.routines.list(limit=limit_of(request), after=after, scope=scope)
    return answer(RoutinePage(tuple(looks), following))


async def create(service: Service, request: Request) -> Response:
    """Makes a routine; 200 if the same one is there already."""
    body = await read_body(request, RoutineBody, service.settings.max_body_bytes)
    grant = grant_of_request(request)
    look, is_new = await service.routines.create(
        body.routine_id,
        _wanted(body),
        status=body.status,
        owner=grant.owner,
        scope=grant.scope,
    )
    return answer(look, 201 if is_new else 200)


async def preview(service: Service, request: Request) -> Response:
    """When a schedule would be due next."""
    body = await read_body(request, Wanted, service.settings.max_body_bytes)
    return answer(service.routines.preview(body))


async def look(service: Service, request: Request) -> Response:
    """A look at a routine."""
    return answer(service.routines.look(text_of(request, "routine_id")))


async def change(service: Service, request: Request) -> Response:
    """Changes a routine."""
    routine_id = text_of(request, "routine_id")
    body = await read_body(request, RoutineChange, service.settings.max_body_bytes)
    scope = grant_of_request(request).scope
    return answer(
        await service.routines.change(routine_id, _wanted(body), status=body.status, scope=scope)
    )


async def delete(service: Service, request: Request) -> Response:
    """Deletes a routine."""
    await service.routines.delete(text_of(request, "routine_id"))
    return Response(status_code=204)


async def runs(service: Service, request: Request) -> Response:
    """A page of the run history."""
    after = request.query_params.get("after")
    routine_id = text_of(request, "routine_id")
    return answer(await service.routines.runs(routine_id, limit=limit_of(request), after=after))


async def run(service: Service, request: Request) -> Response:
    """Starts a run now."""
    routine_id = text_of(request, "routine_id")
    key = idempotency_key(request)
    await read_body(request, EmptyBody, service.settings.max_body_bytes)
    return answer(await service.routines.run(routine_id, idempotency_key=key), 202)
