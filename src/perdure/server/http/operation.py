"""The server's operations: one table that routes and the OpenAPI document are both made from."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import Response

from perdure.server.http import loop_route, runtime_route, session_route, view_route
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
)
from perdure.server.http.routine_operation import ROUTINE_OPERATIONS
from perdure.server.http.shape import KEY, LIMIT, STRING
from perdure.server.http.shape import Operation as Operation
from perdure.server.http.workflow_operation import WORKFLOW_OPERATIONS
from perdure.server.service import Service, version
from perdure.server.session.command import Sent, Stopped
from perdure.server.session.look import STATUSES, SessionLook
from perdure.server.session.outline import OutlinePage


async def health(service: Service, request: Request) -> Response:
    """That it lives, and what it runs on."""
    scheme = service.settings.store_url.partition(":")[0]
    return session_route.answer(
        {"status": "ok", "version": version(), "store": scheme, "loop": service.loops.default}
    )


async def ready(service: Service, request: Request) -> Response:
    """That it can take commands and read its store."""
    await service.check_ready()
    problem = request.app.state.access.keyring.problem
    warnings = {} if problem is None else {"warnings": [problem]}
    return session_route.answer({"status": "ready", **warnings})


_SEQ: Mapping[str, object] = {
    "type": "string",
    "pattern": r"^[0-9]+(\.[0-9A-Za-z_-]+)?$",
    "description": "a seq, or a wire cursor `seq.incarnation`",
}
_ENTRY: Mapping[str, object] = {
    "type": "object",
    "required": ["session_id", "seq", "id", "type", "created_at"],
    "properties": {
        "session_id": STRING,
        "seq": {"type": "integer", "minimum": 1},
        "id": STRING,
        "type": STRING,
        "created_at": {"type": "string", "format": "date-time"},
        "parent_id": {"type": ["string", "null"]},
    },
    "additionalProperties": True,
}


def _object(**properties: object) -> Mapping[str, object]:
    return {"type": "object", "required": list(properties), "properties": properties}


def _list(items: object) -> Mapping[str, object]:
    return {"type": "array", "items": items}


_BOOLEAN: Mapping[str, object] = {"type": "boolean"}
_ID_OR_NULL: Mapping[str, object] = {"type": ["string", "null"]}
_HEALTH = _object(status={"const": "ok"}, version=STRING, store=STRING, loop=STRING)
_READY: Mapping[str, object] = {
    "type": "object",
    "required": ["status"],
    "properties": {"status": {"const": "ready"}, "warnings": _list(STRING)},
}
_PAGE = _object(entries=_list(_ENTRY), has_more=_BOOLEAN, last_seq={"type": "integer"})
_TRANSCRIPT = _object(
    entries=_list(
        {**_ENTRY, "properties": {**_ENTRY["properties"], "siblings": _list(STRING)}}  # type: ignore[dict-item]  # a JSON object
    ),
    has_more=_BOOLEAN,
    leaf_id=_ID_OR_NULL,
)
_RUNTIME = _object(
    name=STRING,
    kind={"enum": ["in-process", "subprocess", "remote"]},
    status={"enum": ["idle", "attached", "lost"]},
    since={"type": "string", "format": "date-time"},
    runtime_id=_ID_OR_NULL,
    workspace=_ID_OR_NULL,
    sessions={"type": "integer"},
    calls={"type": "integer"},
    cause=_ID_OR_NULL,
    troubles={"type": "object", "additionalProperties": STRING},
)
_LOOP = _object(
    name=STRING,
    kind=STRING,
    origin={"enum": ["configuration", "application", "plugin", "setting", "built-in"]},
    is_default=_BOOLEAN,
    missing=_ID_OR_NULL,
)
_VENDOR = _object(
    name=STRING,
    kind={"enum": ["model", "command"]},
    is_usable=_BOOLEAN,
    how=_ID_OR_NULL,
    loop=STRING,
)
_COMPACTED = _object(entry={"oneOf": [_ENTRY, {"type": "null"}]}, leaf_id=_ID_OR_NULL)
_BYTES: Mapping[str, object] = {"type": "string", "format": "binary"}
_RANGE = {"Range": {**STRING, "description": "one range of bytes"}}
_SESSION = "/v1/sessions/{session_id}"
_PART = f"{_SESSION}/entries/{{seq}}/parts/{{n}}"

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "GET",
        "/v1/health",
        "health",
        "Liveness, and what the server runs on",
        health,
        {200: _HEALTH},
        is_public=True,
    ),
    Operation(
        "GET",
        "/v1/ready",
        "ready",
        "Readiness: 503 while the store refuses, and from the moment the server is told to stop",
        ready,
        {200: _READY},
        (503,),
        is_public=True,
    ),
    Operation(
        "POST",
        "/v1/sessions",
        "create_session",
        "Creates a session; 200 if it exists",
        session_route.create,
        {201: SessionLook, 200: SessionLook},
        (400, 409, 413, 422),
        body=CreateBody,
    ),
    Operation(
        "GET",
        "/v1/sessions",
        "list_sessions",
        "Lists sessions, newest activity first",
        session_route.list_sessions,
        {200: (SessionLook, "listing")},
        (422,),
        query={
            "limit": LIMIT,
            "after": {**STRING, "description": "`next` of the page before"},
            "match": {**STRING, "description": "what the id or the title holds, in any case"},
            "status": {"enum": list(STATUSES)},
        },
    ),
    Operation(
        "GET",
        _SESSION,
        "look",
        "Looks at a session; wakes and writes nothing",
        session_route.look,
        {200: SessionLook},
        (404, 422),
    ),
    Operation(
        "DELETE",
        _SESSION,
        "delete_session",
        "Deletes a session: stops it and ends its streams",
        session_route.delete,
        {204: None},
        (404, 422),
    ),
    Operation(
        "GET",
        f"{_SESSION}/entries",
        "list_entries",
        "A page of the journal, ascending; with neither bound the newest",
        session_route.entries,
        {200: _PAGE},
        (404, 422),
        query={"before": _SEQ, "after": _SEQ, "limit": LIMIT},
    ),
    Operation(
        "GET",
        f"{_SESSION}/entries/{{seq}}",
        "get_entry",
        "One entry whole",
        session_route.entry,
        {200: _ENTRY},
        (404, 422),
    ),
    Operation(
        "GET",
        _PART,
        "get_part",
        "The bytes of one part",
        session_route.part,
        {200: _BYTES, 206: _BYTES},
        (404, 416, 422),
        headers=_RANGE,
        media_type="*/*",
    ),
    Operation(
        "GET",
        f"{_PART}/{{m}}",
        "get_inner_part",
        "The bytes of one part inside a tool result",
        session_route.part,
        {200: _BYTES, 206: _BYTES},
        (404, 416, 422),
        headers=_RANGE,
        media_type="*/*",
    ),
    Operation(
        "GET",
        f"{_SESSION}/entries/{{seq}}/fields/{{name}}",
        "get_field",
        "What one field of an entry holds, where it is elided in pages",
        session_route.field,
        {200: _BYTES, 206: _BYTES},
        (404, 416, 422),
        headers=_RANGE,
        media_type="*/*",
    ),
    Operation(
        "GET",
        f"{_SESSION}/transcript",
        "get_transcript",
        "A page of the active path, or of the path to `leaf`, newest last",
        session_route.transcript,
        {200: _TRANSCRIPT},
        (404, 422),
        query={
            "before": STRING,
            "after": {**STRING, "description": "an entry of the path; empty is its start"},
            "limit": LIMIT,
            "leaf": STRING,
            "through": {**STRING, "description": "the path to the newest leaf through it"},
        },
    ),
    Operation(
        "GET",
        f"{_SESSION}/tree",
        "get_tree",
        "A page of the tree in outline: where each entry grows, and how it begins",
        view_route.tree,
        {200: OutlinePage},
        (404, 422),
        query={"after": _SEQ, "limit": LIMIT},
    ),
    Operation(
        "GET",
        f"{_SESSION}/export",
        "export_session",
        "The whole session as JSON lines, verified; `perdure import` takes them",
        view_route.export,
        {200: STRING},
        (404, 422),
        media_type=view_route.LINES_TYPE,
    ),
    Operation(
        "GET",
        "/v1/loops",
        "list_loops",
        "The loops that a session may choose; the vendors, and how to enable them",
        loop_route.list_loops,
        {200: _object(default=STRING, loops=_list(_LOOP), vendors=_list(_VENDOR))},
    ),
    Operation(
        "GET",
        "/v1/runtimes",
        "list_runtimes",
        "What runtimes there are, and whether they are attached; starts none",
        runtime_route.list_runtimes,
        {200: _object(runtimes=_list(_RUNTIME))},
    ),
    Operation(
        "GET",
        "/v1/runtimes/connect",
        "connect_runtime",
        "A WebSocket by which a runtime dials in",
        runtime_route.tell_how_to_connect,
        {101: None},
        (409, 422, 426),
        query={
            "name": {**STRING, "description": "what sessions call it"},
            "life": {**STRING, "pattern": "^[0-9a-f]{32}$"},
            "workspace": {**STRING, "description": "where it is; shown, and nothing else"},
        },
        right="dial_in",
    ),
    Operation(
        "GET",
        "/v1/stream",
        "stream",
        "The event stream of some sessions",
        None,
        {200: STRING},
        (404, 422),
        query={
            "session": {**_list(STRING), "description": "repeated"},
            "after": {**_list(STRING), "description": "a cursor for each session, or none"},
            "listing": {"enum": ["0", "1"], "default": "0"},
        },
        headers={"Last-Event-ID": {**STRING, "description": "wins over `after`"}},
        media_type="text/event-stream",
    ),
    Operation(
        "POST",
        f"{_SESSION}/messages",
        "send_message",
        "Sends a message; it is durable when this answers",
        session_route.send,
        {202: Sent},
        (400, 404, 409, 413, 422),
        body=SendBody,
        headers=KEY,
    ),
    Operation(
        "POST",
        f"{_SESSION}/stop",
        "stop",
        "Stops a turn",
        session_route.stop,
        {200: Stopped},
        (400, 404, 413, 422),
        body=StopBody,
    ),
    Operation(
        "POST",
        f"{_SESSION}/resend",
        "resend",
        "Sends an interrupted or failed turn again, as a new turn from its input",
        session_route.resend,
        {202: Sent},
        (400, 404, 409, 413, 422),
        body=ResendBody,
    ),
    Operation(
        "POST",
        f"{_SESSION}/go-on",
        "go_on",
        "Runs a held queue",
        session_route.go_on,
        {202: Sent},
        (400, 404, 409, 413, 422),
        body=EmptyBody,
    ),
    Operation(
        "POST",
        f"{_SESSION}/reopen",
        "reopen",
        "Opens a session again that was unrecoverable, once the cause is gone",
        session_route.reopen,
        {200: SessionLook},
        (400, 404, 413, 422),
        body=EmptyBody,
    ),
    Operation(
        "DELETE",
        f"{_SESSION}/queue/{{message_id}}",
        "discard_message",
        "Discards one message that waits",
        session_route.discard,
        {204: None},
        (404, 422),
    ),
    Operation(
        "PUT",
        f"{_SESSION}/queue/{{message_id}}",
        "edit_queued_message",
        "Gives a message that waits other parts; it keeps its place",
        session_route.edit_queued,
        {200: Sent},
        (400, 404, 413, 422),
        body=EditBody,
    ),
    Operation(
        "POST",
        f"{_SESSION}/approvals/{{call_id}}",
        "answer_approval",
        "Answers a tool call that waits for an approval; the last answer resumes the turn",
        session_route.answer_approval,
        {202: SessionLook},
        (400, 404, 409, 413, 422),
        body=AnswerBody,
    ),
    Operation(
        "POST",
        f"{_SESSION}/branch",
        "branch",
        "Moves the leaf to a tree entry, or before the first one (null)",
        session_route.branch,
        {200: SessionLook},
        (400, 404, 409, 413, 422),
        body=BranchBody,
    ),
    Operation(
        "POST",
        f"{_SESSION}/fork",
        "fork",
        "Copies the path into a new session",
        session_route.fork,
        {201: SessionLook},
        (400, 404, 409, 413, 422),
        body=ForkBody,
    ),
    Operation(
        "POST",
        f"{_SESSION}/compact",
        "compact",
        "Appends a summary of all but the newest turns; removes nothing",
        session_route.compact,
        {200: _COMPACTED},
        (400, 404, 409, 413, 422, 502),
        body=CompactBody,
    ),
    *ROUTINE_OPERATIONS,
    *WORKFLOW_OPERATIONS,
)
