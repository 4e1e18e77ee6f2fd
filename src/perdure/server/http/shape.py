"""What one operation of the server is, and the shapes that many of them share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.responses import Response

from perdure.server.access.principal import Right
from perdure.server.service import Service

Handler = Callable[[Service, Request], Awaitable[Response]]

JSON = "application/json"


@dataclass(frozen=True)
class Operation:
    """One verb on one address. `handler` None is the stream, which answers by itself.

    `answers` has the schema (a type, or JSON Schema) and media type of each good status;
    `refusals` the statuses of problems, beyond those that any request can get.
    """

    method: str
    path: str
    name: str
    says: str
    handler: Handler | None
    answers: Mapping[int, object]
    refusals: tuple[int, ...] = ()
    body: type | None = None
    query: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    headers: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    media_type: str = JSON
    is_public: bool = False
    right: Right | None = None
    """What a role needs for it, where it is not `read` for a GET and `write` for the rest."""

    @property
    def needs(self) -> Right:
        """The right that a token's role needs."""
        return self.right or ("read" if self.method == "GET" else "write")


STRING: Mapping[str, object] = {"type": "string"}
LIMIT: Mapping[str, object] = {"type": "integer", "minimum": 1, "maximum": 500, "default": 50}
KEY = {"Idempotency-Key": {**STRING, "pattern": "^[!-~]{1,255}$"}}
PAGED = {"limit": LIMIT, "after": {**STRING, "description": "`next` of the page before"}}
BOOLEAN: Mapping[str, object] = {"type": "boolean"}
ID_OR_NULL: Mapping[str, object] = {"type": ["string", "null"]}


def make_object(**properties: object) -> Mapping[str, object]:
    """The JSON Schema of an object that always has all these properties."""
    return {"type": "object", "required": list(properties), "properties": properties}


def make_list(items: object) -> Mapping[str, object]:
    """The JSON Schema of an array."""
    return {"type": "array", "items": items}
