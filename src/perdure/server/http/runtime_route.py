"""`/v1/runtimes`: what runtimes there are, and the WebSocket by which one dials in."""

from __future__ import annotations

import asyncio
import logging
import re
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from perdure.errors import (
    ConfigurationError,
    InvalidSessionIdError,
    MissingExtraError,
    RuntimeLostError,
    SessionDeletedError,
    SessionNotFoundError,
)
from perdure.runtimes.late import LateCall, OnLate
from perdure.runtimes.link import Link, WireClosedError
from perdure.server.access.principal import Grant
from perdure.server.http.auth import Access, check_right, grant_of, grant_of_request
from perdure.server.http.lifespan import service_of
from perdure.server.http.session_route import answer
from perdure.server.problem import Refused
from perdure.server.runtime.remote import NameTakenError, RemoteSlot
from perdure.server.service import Service

if TYPE_CHECKING:
    from perdure.runtimes.linked import LinkedRuntime

log = logging.getLogger(__name__)

LOST_AFTER = "perdure-lost-after"
"""The header of the answer that says after how many silent seconds the link is lost."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_LIFE = re.compile(r"[0-9a-f]{32}")
_MAX_WORKSPACE = 4096
_CLOSE_S = 2.0


async def list_runtimes(service: Service, request: Request) -> Response:
    """What is shown of the runtimes; starts none."""
    grant = grant_of_request(request)
    return answer({"runtimes": service.runtimes.looks(grant.has)})


async def tell_how_to_connect(service: Service, request: Request) -> Response:
    """Refuses a request that is no WebSocket, or that the server could not take for one."""
    if find_spec("websockets") is None:
        raise MissingExtraError("a runtime that dials in", "runtimes")
    raise Refused(
        426,
        "upgrade_required",
        "a runtime dials in here, by a WebSocket: perdure runtime --connect does; a proxy in "
        "between has to let WebSockets through",
        headers={"upgrade": "websocket", "connection": "upgrade"},
    )


class ConnectEndpoint:
    """`/v1/runtimes/connect`: a runtime dials in, and is attached for as long as its link lasts."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuses before it accepts, or holds the link."""
        service = await service_of(scope["app"])
        access: Access = scope["app"].state.access
        grant = grant_of(scope)
        assert grant is not None
        check_right(grant, "dial_in")
        name, life, workspace = _asked(scope)
        slot = _slot(service, grant, name)
        runtime_id = f"{name}/{life}"
        _check_free(slot, runtime_id)
        try:  # in a thread: it takes too long for the event loop
            linked = await asyncio.to_thread(import_module, "perdure.runtimes.linked")
        except ModuleNotFoundError as error:
            raise MissingExtraError("a runtime that dials in", "runtimes") from error
        websocket = WebSocket(scope, receive, send)
        with access.connections.hold(grant) as hold:
            lost_after_s = slot.table.lost_after_s
            await websocket.accept(headers=[(LOST_AFTER.encode(), b"%g" % lost_after_s)])
            link = Link(_WebSocketWire(websocket), lost_after_s=lost_after_s)
            ending: list[asyncio.Task[None]] = []
            hold.ends_by(
                lambda: ending.append(
                    asyncio.create_task(link.close("its token does not count any more"))
                )
            )
            link.start()
            runtime: LinkedRuntime = linked.LinkedRuntime(
                link, runtime_id, on_late=_keeping(service, slot)
            )
            try:
                await runtime.start()
                await slot.attach(runtime, workspace)
                await link.until_lost()
            except RuntimeLostError:
                return
            except NameTakenError:
                await link.close("another runtime of this name is attached")
            finally:
                await runtime.close()
                await asyncio.gather(*ending)


def _asked(scope: Scope) -> tuple[str, str, str | None]:
    query = parse_qs(scope["query_string"].decode("latin-1"))
    name, life = (query.get(key, [""])[-1] for key in ("name", "life"))
    workspace = query.get("workspace", [""])[-1][:_MAX_WORKSPACE]
    if not _NAME.fullmatch(name):
        raise Refused(
            422,
            "invalid_runtime",
            "a runtime has a name of up to 64 letters, digits, '.', '_' and '-', that begins with "
            "a letter or digit",
        )
    if not _LIFE.fullmatch(life):
        raise Refused(422, "invalid_runtime", "life is 32 lowercase hexadecimal digits")
    return name, life, workspace or None


def _slot(service: Service, grant: Grant, name: str) -> RemoteSlot:
    try:
        return service.runtimes.guest(name, grant.owner)
    except ConfigurationError as error:
        raise Refused(422, "invalid_runtime", str(error)) from error


def _check_free(slot: RemoteSlot, runtime_id: str) -> None:
    try:
        slot.check_free(runtime_id)
    except NameTakenError as error:
        raise Refused(
            409,
            "runtime_name_taken",
            f"the runtime {error} is attached by this name; end it, or choose another name with "
            "--name. If it is gone, this is noticed soon",
            headers={"retry-after": "5"},
        ) from error


def _keeping(service: Service, slot: RemoteSlot) -> OnLate | None:
    """Keeps late results of the sessions that the runtime may serve, and drops all others."""
    keep = service.runtimes.on_late
    if keep is None:
        return None

    async def on_late(late: LateCall) -> None:
        session_id = late.origin.session_id
        try:
            if slot.is_shared or await service.store.load_owner(session_id) == slot.owner:
                await keep(late)
            else:
                log.warning("runtime %s has no session %r: dropped", slot.name, session_id)
        except (SessionNotFoundError, SessionDeletedError, InvalidSessionIdError):
            log.info("a late result of session %r is dropped: it is not there", session_id)

    return on_late


class _WebSocketWire:
    """The frames of a link as text messages of a WebSocket."""

    def __init__(self, websocket: WebSocket) -> None:
        self._websocket = websocket

    async def send(self, frame: str) -> None:
        try:
            await self._websocket.send_text(frame)
        except (WebSocketDisconnect, RuntimeError, OSError) as error:
            raise WireClosedError("the connection was closed") from error

    async def receive(self) -> str:
        try:
            return await self._websocket.receive_text()
        except WebSocketDisconnect as error:
            why = f": {error.reason}" if error.reason else ""
            raise WireClosedError(f"the connection was closed{why}") from error
        except (RuntimeError, KeyError) as error:
            raise WireClosedError("it sent what is no frame") from error

    async def close(self, why: str) -> None:
        with suppress(RuntimeError, OSError, WebSocketDisconnect, TimeoutError):
            async with asyncio.timeout(_CLOSE_S):
                await self._websocket.close(1001, why.encode()[:120].decode("utf-8", "ignore"))
