"""The operations of runtimes."""

from __future__ import annotations

from perdure.server.http import runtime_route
from perdure.server.http.shape import ID_OR_NULL, STRING, Operation, make_list, make_object

_RUNTIME = make_object(
    name=STRING,
    kind={"enum": ["in-process", "subprocess", "remote"]},
    status={"enum": ["idle", "attached", "lost"]},
    since={"type": "string", "format": "date-time"},
    runtime_id=ID_OR_NULL,
    workspace=ID_OR_NULL,
    sessions={"type": "integer"},
    calls={"type": "integer"},
    cause=ID_OR_NULL,
    troubles={"type": "object", "additionalProperties": STRING},
)

RUNTIME_OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "GET",
        "/v1/runtimes",
        "list_runtimes",
        "What runtimes there are, and whether they are attached; starts none",
        runtime_route.list_runtimes,
        {200: make_object(runtimes=make_list(_RUNTIME))},
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
)
