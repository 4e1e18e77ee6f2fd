"""The operations that read sessions: they wake nothing and write nothing."""

from __future__ import annotations

from collections.abc import Mapping

from perdure.server.http import session_route, view_route
from perdure.server.http.session_shape import ENTRY, SESSION
from perdure.server.http.shape import (
    BOOLEAN,
    ID_OR_NULL,
    LIMIT,
    STRING,
    Operation,
    make_list,
    make_object,
)
from perdure.server.session.look import STATUSES, SessionLook
from perdure.server.session.outline import OutlinePage

_SEQ: Mapping[str, object] = {
    "type": "string",
    "pattern": r"^[0-9]+(\.[0-9A-Za-z_-]+)?$",
    "description": "a seq, or a wire cursor `seq.incarnation`",
}
_PAGE = make_object(entries=make_list(ENTRY), has_more=BOOLEAN, last_seq={"type": "integer"})
_TRANSCRIPT = make_object(
    entries=make_list(
        {**ENTRY, "properties": {**ENTRY["properties"], "siblings": make_list(STRING)}}  # type: ignore[dict-item]  # a JSON object
    ),
    has_more=BOOLEAN,
    leaf_id=ID_OR_NULL,
)
_BYTES: Mapping[str, object] = {"type": "string", "format": "binary"}
_RANGE = {"Range": {**STRING, "description": "one range of bytes"}}
_PART = f"{SESSION}/entries/{{seq}}/parts/{{n}}"

READING_OPERATIONS: tuple[Operation, ...] = (
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
        SESSION,
        "look",
        "Looks at a session; wakes and writes nothing",
        session_route.look,
        {200: SessionLook},
        (404, 422),
    ),
    Operation(
        "GET",
        f"{SESSION}/entries",
        "list_entries",
        "A page of the journal, ascending; with neither bound the newest",
        session_route.entries,
        {200: _PAGE},
        (404, 422),
        query={"before": _SEQ, "after": _SEQ, "limit": LIMIT},
    ),
    Operation(
        "GET",
        f"{SESSION}/entries/{{seq}}",
        "get_entry",
        "One entry whole",
        session_route.entry,
        {200: ENTRY},
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
        f"{SESSION}/entries/{{seq}}/fields/{{name}}",
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
        f"{SESSION}/transcript",
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
        f"{SESSION}/tree",
        "get_tree",
        "A page of the tree in outline: where each entry grows, and how it begins",
        view_route.tree,
        {200: OutlinePage},
        (404, 422),
        query={"after": _SEQ, "limit": LIMIT},
    ),
    Operation(
        "GET",
        f"{SESSION}/export",
        "export_session",
        "The whole session as JSON lines, verified; `perdure import` takes them",
        view_route.export,
        {200: STRING},
        (404, 422),
        media_type=view_route.LINES_TYPE,
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
            "session": {**make_list(STRING), "description": "repeated"},
            "after": {**make_list(STRING), "description": "a cursor for each session, or none"},
            "listing": {"enum": ["0", "1"], "default": "0"},
        },
        headers={"Last-Event-ID": {**STRING, "description": "wins over `after`"}},
        media_type="text/event-stream",
    ),
)
