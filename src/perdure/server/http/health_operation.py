"""The operations of the server itself: liveness and readiness."""

from __future__ import annotations

from collections.abc import Mapping

from perdure.server.http import health_route
from perdure.server.http.shape import STRING, Operation, make_list, make_object

_HEALTH = make_object(status={"const": "ok"}, version=STRING, store=STRING, loop=STRING)
_READY: Mapping[str, object] = {
    "type": "object",
    "required": ["status"],
    "properties": {"status": {"const": "ready"}, "warnings": make_list(STRING)},
}

HEALTH_OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "GET",
        "/v1/health",
        "health",
        "Liveness, and what the server runs on",
        health_route.health,
        {200: _HEALTH},
        is_public=True,
    ),
    Operation(
        "GET",
        "/v1/ready",
        "ready",
        "Readiness: 503 while the store refuses, and from the moment the server is told to stop",
        health_route.ready,
        {200: _READY},
        (503,),
        is_public=True,
    ),
)
