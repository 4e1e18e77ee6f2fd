"""The operations of loops."""

from __future__ import annotations

from perdure.server.http import loop_route
from perdure.server.http.shape import BOOLEAN, ID_OR_NULL, STRING, Operation, make_list, make_object

_LOOP = make_object(
    name=STRING,
    kind=STRING,
    origin={"enum": ["configuration", "application", "plugin", "setting", "built-in"]},
    is_default=BOOLEAN,
    missing=ID_OR_NULL,
)
_VENDOR = make_object(
    name=STRING,
    kind={"enum": ["model", "command"]},
    is_usable=BOOLEAN,
    how=ID_OR_NULL,
    loop=STRING,
)

LOOP_OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "GET",
        "/v1/loops",
        "list_loops",
        "The loops that a session may choose; the vendors, and how to enable them",
        loop_route.list_loops,
        {200: make_object(default=STRING, loops=make_list(_LOOP), vendors=make_list(_VENDOR))},
    ),
)
