"""What the addresses of sessions do: each reads its request, asks the registry, and answers."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from perdure.codec import encode
from perdure.errors import CursorVoidError, EntryNotFoundError, SessionExistsError
from perdure.server.feed.cursor import Cursor, pair_cursors
from perdure.server.feed.wire import EntryWriter, find_field, find_part, part_content
from perdure.server.http.auth import grant_of_request
from perdure.server.http.body import (
    AnswerBody,
    BranchBody,
    CompactBody,
    CreateBody,
    EditBody,
    EmptyBody,
    ForkBody,
    ResendBody,
    SendBody,
    StopBody,
    read_body,
)
from perdure.server.http.content import content_response
from perdure.server.http.guard import check_free
from perdure.server.http.segment import (
    bound_of,
    limit_of,
    number_of,
    root_of,
    session_id_of,
    text_of,
)
from perdure.server.problem import Refused
from perdure.server.service import Service
from perdure.server.session.look import STATUSES, SessionLook
from perdure.server.session.shown import look_json
from perdure.server.session.wanted import EVERY_SESSION, Wanted
from perdure.store import check_session_id

MAX_STREAM_SESSIONS = 200
_KEY = re.compile(r"[!-~]{1,255}")


def answer(value: object, status: int = 200) -> Response:
    """A JSON answer."""
    return _json(encode(value), status)


def _json(data: bytes, status: int = 200) -> Response:
    headers = {"cache-control": "no-store"}
    return Response(data, status, headers=headers, media_type="application/json")


def _shown(look: SessionLook, request: Request, status: int = 200) -> Response:
    return _json(look_json(look, root_of(request)), status)


async def create(service: Service, request: Request) -> Response:
    """Creates a session; 200 if it is there already."""
    body = await read_body(request, CreateBody, service.settings.max_body_bytes)
    grant = grant_of_request(request)
    await check_free(service, grant, body.session_id)
    look, is_new = await service.registry.create(
        body.session_id, body.loop, body.runtime, owner=grant.owner
    )
    if not is_new and not grant.has(look.owner):
        raise SessionExistsError(look.session_id)
    return _shown(look, request, 201 if is_new else 200)


async def list_sessions(service: Service, request: Request) -> Response:
    """A page of the listing."""
    query = request.query_params
    wanted = EVERY_SESSION
    if (status := query.get("status") or None) is not None and status not in STATUSES:
        raise Refused(422, "invalid_status", f"status is one of {', '.join(STATUSES)}")
    if (match := query.get("match", "")) or status is not None:
        wanted = Wanted(match, status)
    looks, following = await service.registry.list(
        limit=limit_of(request),
        after=query.get("after"),
        wanted=wanted,
        owner=grant_of_request(request).scope,
    )
    shown = b",".join(look_json(look, root_of(request)) for look in looks)
    return _json(b'{"sessions":[%b],"next":%b}' % (shown, encode(following)))


async def look(service: Service, request: Request) -> Response:
    """A look at a session."""
    return _shown(await service.registry.look(session_id_of(request)), request)


async def delete(service: Service, request: Request) -> Response:
    """Deletes a session."""
    await service.registry.delete(session_id_of(request))
    return Response(status_code=204)


async def entries(service: Service, request: Request) -> Response:
    """A page of the journal."""
    session_id = session_id_of(request)
    limit = limit_of(request)
    before, after = bound_of(request, "before"), bound_of(request, "after")
    for cursor in (before, after):
        if cursor is not None and cursor.incarnation is not None:
            await _check_incarnation(service, session_id, cursor)
    page = await service.registry.entries(
        session_id,
        before=None if before is None else before.seq,
        after=None if after is None else after.seq,
        limit=limit,
    )
    writer = EntryWriter(session_id, root_of(request))
    return _json(
        b'{"entries":[%b],"has_more":%b,"last_seq":%d}'
        % (
            b",".join(writer.elided(stored) for stored in page.entries),
            encode(page.has_more),
            page.last_seq,
        )
    )


async def _check_incarnation(service: Service, session_id: str, cursor: Cursor) -> None:
    shown = await service.registry.look(session_id)
    if not shown.cursor.endswith(f".{cursor.incarnation}"):
        raise CursorVoidError(str(cursor), "it is of another incarnation of the session")


async def entry(service: Service, request: Request) -> Response:
    """One entry whole."""
    session_id = session_id_of(request)
    stored = await service.registry.entry(session_id, number_of(request, "seq"))
    return _json(EntryWriter(session_id).whole(stored))


async def part(service: Service, request: Request) -> Response:
    """The bytes of one part, or of a part inside a tool result."""
    session_id, seq = session_id_of(request), number_of(request, "seq")
    place = [number_of(request, name) for name in ("n", "m") if name in request.path_params]
    stored = await service.registry.entry(session_id, seq)
    found = find_part(stored.raw, place)
    if found is None:
        where = "/".join(map(str, place))
        raise EntryNotFoundError(session_id, stored.id, f"it has no part {where}")
    return content_response(part_content(found), request.headers.get("range"))


async def field(service: Service, request: Request) -> Response:
    """One field of an entry."""
    session_id, seq = session_id_of(request), number_of(request, "seq")
    name = text_of(request, "name")
    stored = await service.registry.entry(session_id, seq)
    content = find_field(stored.raw, name)
    if content is None:
        raise EntryNotFoundError(session_id, stored.id, f"it has no field {name!r}")
    return content_response(content, request.headers.get("range"))


async def transcript(service: Service, request: Request) -> Response:
    """A page of the transcript."""
    session_id = session_id_of(request)
    query = request.query_params
    if query.get("before") is not None and query.get("after") is not None:
        raise Refused(422, "two_bounds", "a page of the transcript is before an entry or after one")
    page = await service.registry.transcript(
        session_id,
        before=query.get("before"),
        after=query.get("after"),
        limit=limit_of(request),
        leaf=query.get("leaf"),
        through=query.get("through"),
    )
    writer = EntryWriter(session_id, root_of(request))
    shown = (writer.elided(each.stored, each.siblings) for each in page.entries)
    return _json(
        b'{"entries":[%b],"has_more":%b,"leaf_id":%b}'
        % (b",".join(shown), encode(page.has_more), encode(page.leaf_id))
    )


async def send(service: Service, request: Request) -> Response:
    """Sends a message."""
    session_id = session_id_of(request)
    key = idempotency_key(request)
    body = await read_body(request, SendBody, service.settings.max_body_bytes)
    sent = await service.registry.send(
        session_id, body.content(), idempotency_key=key, if_running=body.if_running
    )
    return answer(sent, 202)


def idempotency_key(request: Request) -> str | None:
    """The request's `Idempotency-Key`.

    Raises:
        Refused: 422, it is none.

    """
    keys = request.headers.getlist("idempotency-key")
    if not keys:
        return None
    if len(keys) > 1 or not _KEY.fullmatch(keys[0]):
        raise Refused(
            422,
            "invalid_idempotency_key",
            "Idempotency-Key is one header of 1 to 255 visible ASCII characters",
        )
    return keys[0]


async def stop(service: Service, request: Request) -> Response:
    """Stops a turn."""
    session_id = session_id_of(request)
    body = await read_body(request, StopBody, service.settings.max_body_bytes)
    stopped = await service.registry.stop(
        session_id, body.turn_id, discard_queued=body.discard_queued
    )
    return answer(stopped)


async def reopen(service: Service, request: Request) -> Response:
    """Opens a session again that was unrecoverable."""
    session_id = session_id_of(request)
    await read_body(request, EmptyBody, service.settings.max_body_bytes)
    return answer(await service.registry.reopen(session_id))


async def resend(service: Service, request: Request) -> Response:
    """Sends the last turn again."""
    session_id = session_id_of(request)
    body = await read_body(request, ResendBody, service.settings.max_body_bytes)
    return answer(await service.registry.resend(session_id, body.turn_id), 202)


async def go_on(service: Service, request: Request) -> Response:
    """Runs a held queue."""
    session_id = session_id_of(request)
    await read_body(request, EmptyBody, service.settings.max_body_bytes)
    return answer(await service.registry.go_on(session_id), 202)


async def discard(service: Service, request: Request) -> Response:
    """Discards a message that waits."""
    message_id = text_of(request, "message_id")
    await service.registry.discard_queued(session_id_of(request), message_id)
    return Response(status_code=204)


async def edit_queued(service: Service, request: Request) -> Response:
    """Gives a message that waits other parts."""
    message_id = text_of(request, "message_id")
    body = await read_body(request, EditBody, service.settings.max_body_bytes)
    sent = await service.registry.edit_queued(session_id_of(request), message_id, body.content())
    return answer(sent)


async def answer_approval(service: Service, request: Request) -> Response:
    """Answers a call that waits for an approval."""
    session_id, call_id = session_id_of(request), text_of(request, "call_id")
    body = await read_body(request, AnswerBody, service.settings.max_body_bytes)
    await service.registry.answer(
        session_id,
        call_id,
        approve=body.approve,
        reason=body.reason,
        arguments=body.arguments,
    )
    return _shown(await service.registry.look(session_id), request, 202)


async def branch(service: Service, request: Request) -> Response:
    """Moves the leaf."""
    session_id = session_id_of(request)
    body = await read_body(request, BranchBody, service.settings.max_body_bytes)
    return _shown(await service.registry.branch(session_id, body.entry_id), request)


async def fork(service: Service, request: Request) -> Response:
    """Forks a session."""
    session_id = session_id_of(request)
    body = await read_body(request, ForkBody, service.settings.max_body_bytes)
    grant = grant_of_request(request)
    await check_free(service, grant, body.session_id)
    child = await service.registry.fork(
        session_id, body.session_id, entry_id=body.entry_id, owner=grant.owner
    )
    return _shown(child, request, 201)


async def compact(service: Service, request: Request) -> Response:
    """Appends a summary; `entry` is null where there was nothing to summarise."""
    session_id = session_id_of(request)
    body = await read_body(request, CompactBody, service.settings.max_body_bytes)
    done = await service.registry.compact(session_id, keep_turns=body.keep_turns)
    writer = EntryWriter(session_id, root_of(request))
    shown = b"null" if done.entry is None else writer.elided(done.entry)
    return _json(b'{"entry":%b,"leaf_id":%b}' % (shown, encode(done.leaf_id)))


def wanted_of(request: Request) -> tuple[list[tuple[str, Cursor | None]], bool]:
    """The sessions and cursors of a stream's address, and whether it is a listing's too.

    Raises:
        Refused: 422, there is nothing to stream, too much, or one session twice.
        InvalidSessionIdError, CursorVoidError: one of them is none.

    """
    query = QueryParams(
        parse_qsl(
            request.scope["query_string"].decode("latin-1"),
            keep_blank_values=True,
            errors="surrogateescape",  # what is not UTF-8 is no session id
        )
    )
    sessions = [check_session_id(each) for each in query.getlist("session")]
    listing = query.get("listing", "0")
    if listing not in {"0", "1"}:
        raise Refused(422, "invalid_listing", f"listing is 0 or 1, not {listing!r}")
    if not sessions and listing == "0":
        raise Refused(422, "no_session", "a stream names at least one session, or listing=1")
    if len(sessions) > MAX_STREAM_SESSIONS:
        detail = f"a stream has at most {MAX_STREAM_SESSIONS} sessions; open another one"
        raise Refused(422, "too_many_sessions", detail)
    if len(set(sessions)) < len(sessions):
        raise Refused(422, "duplicate_session", "a stream names each of its sessions once")
    last = request.headers.get("last-event-id")
    cursors = pair_cursors(len(sessions), query.getlist("after"), last)
    return list(zip(sessions, cursors, strict=True)), listing == "1"
