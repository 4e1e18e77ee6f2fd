"""The outermost frame of every request: access, safe headers, and a problem for whatever raises.

It also hands the path on as it was sent: a session id is one percent-encoded segment, so the path
is split before it is decoded.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable
from urllib.parse import quote, unquote

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from perdure import clock
from perdure.errors import PerdureError
from perdure.server.http.auth import GRANT, Access, is_operator
from perdure.server.http.page import refusal_page, wants_html
from perdure.server.problem import NOTE, Refused, problem, problem_of
from perdure.server.telemetry.told import RequestNote

log = logging.getLogger(__name__)

REQUEST_ID = b"x-request-id"
_REQUEST_ID = re.compile(r"[A-Za-z0-9._~+/=-]{1,128}")
_SESSION = re.compile(r"/v1/sessions/([^/]+)")

SAFE_HEADERS = {
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-resource-policy": b"same-origin",
    b"cross-origin-opener-policy": b"same-origin",
    b"content-security-policy": b"default-src 'none'; frame-ancestors 'none'; sandbox",
}


class Outer:
    """ASGI middleware around the routes."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    def _count(self, scope: Scope, status: int) -> None:
        service = getattr(scope["app"].state, "service", None)
        if service is not None and service.metrics is not None:
            service.metrics.answered(scope["method"], status)
            if (code := scope[NOTE].code) is not None:
                service.metrics.refused(code)

    def _exchange(self, scope: Scope) -> Response | None:
        try:
            return self._access.exchange(scope)
        except Refused as error:
            accept = Headers(scope=scope).get("accept", "")
            if not wants_html(accept):
                raise
            return refusal_page(error, scope.get("root_path", ""))

    async def _connect(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Lets a WebSocket in; before it is accepted a refusal is a problem, as for a request."""
        accepted = False

        def noting_send(message: Message) -> Awaitable[None]:
            nonlocal accepted
            accepted = accepted or message["type"] == "websocket.accept"
            return send(message)

        scope = {**scope, **_paths_as_sent(scope)}
        try:
            scope[GRANT] = self._access.check(scope)
            await self._app(scope, receive, noting_send)
            return
        except (Refused, PerdureError) as error:
            response = problem_of(error, has_folders=is_operator(scope))
        except Exception:
            log.exception("the connection to %s failed", scope["path"])
            response = problem(500, "internal", "something went wrong here; the log says what")
        if accepted:
            await send({"type": "websocket.close", "code": 1011})
        elif "websocket.http.response" in scope.get("extensions", {}):
            await response(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Lets the request in, or answers it with a problem."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] == "websocket":
            await self._connect(scope, receive, send)
            return
        started = False

        def safe_send(message: Message) -> Awaitable[None]:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                self._count(scope, message["status"])
                headers = list(message.get("headers", ()))
                own = {name.lower() for name, _ in headers}
                headers += [(k, v) for k, v in SAFE_HEADERS.items() if k not in own]
                headers.append((REQUEST_ID, scope[NOTE].request_id.encode()))
                message["headers"] = headers
            return send(message)

        scope = {**scope, **_paths_as_sent(scope)}
        scope[NOTE] = _note_of(scope)
        try:
            scope[GRANT] = self._access.check(scope)
            response = None
            if scope["path"] == f"{scope.get('root_path', '')}/":
                response = self._exchange(scope)
            if response is None:
                await self._app(scope, receive, safe_send)
                return
        except (Refused, PerdureError) as error:
            if started:
                raise
            response = problem_of(error, has_folders=is_operator(scope))
        except Exception:
            log.exception("%s %s failed", scope["method"], scope["path"])
            if started:
                raise
            response = problem(500, "internal", "something went wrong here; the log says what")
        await response(scope, receive, safe_send)


def _note_of(scope: Scope) -> RequestNote:
    """What the log tells of it, by the id that it brought, if that is plain, or a new one."""
    given = Headers(scope=scope).get("x-request-id", "")
    request_id = given if _REQUEST_ID.fullmatch(given) else clock.new_id()
    path = scope["path"].removeprefix(scope["root_path"])
    found = _SESSION.match(path)
    return RequestNote(request_id, unquote(found[1], errors="replace") if found else None)


def _paths_as_sent(scope: Scope) -> dict[str, str]:
    """The path, and where the server is mounted: both percent-encoded."""
    raw = scope.get("raw_path")
    path = quote(scope["path"]) if raw is None else bytes(raw).partition(b"?")[0].decode("latin-1")
    root = scope.get("root_path", "").rstrip("/")
    encoded_root = quote(root)
    if root and unquote(path).startswith(f"{root}/"):
        rest = path.split("/", root.count("/") + 1)[-1]
        path = f"{encoded_root}/{rest}"
    return {"path": path, "root_path": encoded_root}
