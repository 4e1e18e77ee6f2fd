"""The server as an ASGI application: its routes, and what stands around them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from perdure.codec import encode
from perdure.errors import MissingExtraError, PerdureError
from perdure.loop import LoopFactory
from perdure.plugin import Plugins
from perdure.server.config import Settings, settings_of
from perdure.server.hook.hooks import Hooks
from perdure.server.hook.setup import load_hooks
from perdure.server.http.auth import (
    Access,
    check_right,
    grant_of,
    grant_of_request,
    is_operator,
)
from perdure.server.http.guard import admit, guard
from perdure.server.http.lifespan import OwnLifespan, service_of
from perdure.server.http.openapi import make_document
from perdure.server.http.operation import OPERATIONS
from perdure.server.http.outer import Outer
from perdure.server.http.page import get_asset, get_page
from perdure.server.http.runtime_route import ConnectEndpoint
from perdure.server.http.segment import root_of
from perdure.server.http.session_route import wanted_of
from perdure.server.http.shape import Operation
from perdure.server.http.sse import DIRECT_SEND, HEADERS, send_stream
from perdure.server.journal import JournalStore
from perdure.server.named_loop import NamedLoops
from perdure.server.own_token import load_keyring, load_token
from perdure.server.plugin_setting import installed_plugins
from perdure.server.plugin_tool import PluginTools
from perdure.server.problem import Refused, problem, problem_of
from perdure.server.runtime.runtimes import make_runtimes
from perdure.server.served_store import as_journal_store, own_store
from perdure.server.service import open_service
from perdure.server.session.port import Loops
from perdure.stores import open_store


def create_app(
    config: Settings | Mapping[str, object] | None = None,
    *,
    store: JournalStore | None = None,
    loops: Loops | Mapping[str, LoopFactory] | None = None,
    plugins: Plugins | None = None,
    hooks: Hooks | None = None,
) -> Starlette:
    """The application. At its startup its store opens and becomes its own; both end with it.

    A `store` that is given is the caller's to own and to close. Without `loops` they are those that
    this machine can run; factories that are given by name are added to those. `plugins` are what
    is installed and not disabled, and `hooks` those of the settings' files and the plugins. Where
    nobody runs its lifespan, it starts at its first request and ends with the event loop.

    Raises:
        ConfigurationError: the settings cannot work, or a plugin or a file of hooks is broken.

    """
    settings = settings_of(config)
    settings.check()
    added = installed_plugins(settings) if plugins is None else plugins
    added.check()
    make_runtimes(settings)  # to see that the tables are in order
    known = loops_of(settings, added, loops)
    if hooks is None:
        hooks = load_hooks(settings.hook_files, added, folder=Path(settings.workspace))
    access = Access(
        load_keyring(settings, load_token(settings)),
        host=settings.host,
        hosts=settings.hosts,
        origins=settings.origins,
        requests_per_s=settings.requests_per_s,
        max_streams=settings.max_streams,
        max_body_bytes=settings.max_body_bytes,
    )

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            served = store
            if served is None:
                url = settings.store_url
                served = as_journal_store(
                    await stack.enter_async_context(open_store(url, plugins=added)), url
                )
                await stack.enter_async_context(
                    own_store(served, f"an application in process {os.getpid()}")
                )
            plugin_tools = await asyncio.to_thread(PluginTools, added)
            app.state.service = await stack.enter_async_context(
                open_service(settings, served, known, hooks=hooks, plugin_tools=plugin_tools)
            )
            await stack.enter_async_context(_keeping_up(access))
            yield

    app = App(
        routes=[*make_routes(), *plugin_routes(added)],
        lifespan=lifespan,
        middleware=[Middleware(Outer, access=access)],
        exception_handlers={
            HTTPException: _answer_http_exception,
            Refused: _answer_refusal,
            PerdureError: _answer_refusal,
        },
    )
    app.router.redirect_slashes = False
    app.state.own_lifespan = OwnLifespan(app)
    app.state.hooks = hooks
    app.state.access = access
    return app


def loops_of(
    settings: Settings, plugins: Plugins, given: Loops | Mapping[str, LoopFactory] | None
) -> Loops:
    """The loops that were given, or those of this machine and those that were given by name."""
    if given is None or isinstance(given, Mapping):
        return NamedLoops(settings, plugins, given)
    return given


@asynccontextmanager
async def _keeping_up(access: Access) -> AsyncIterator[None]:
    """Inside the block the tokens file is followed, and streams end when their token does."""
    watching = asyncio.create_task(access.keyring.watch(access.connections.end_invalid))
    try:
        yield
    finally:
        watching.cancel()
        await asyncio.wait([watching])


class App(Starlette):
    """Starlette, which lets a stream send past the layers that care for a response's start."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Takes one connection."""
        if scope["type"] == "http":
            scope["extensions"] = {**scope.get("extensions", {}), DIRECT_SEND: send}
        await super().__call__(scope, receive, send)


def make_routes() -> list[BaseRoute]:
    """One route for each address, whatever its verbs."""
    by_path: dict[str, list[Operation]] = {}
    for operation in OPERATIONS:
        by_path.setdefault(operation.path, []).append(operation)
    routes = [_route(path, operations) for path, operations in by_path.items()]
    return [
        *routes,
        WebSocketRoute("/v1/runtimes/connect", ConnectEndpoint()),
        Route("/openapi.json", _get_document),
        Route("/metrics", _get_metrics),
        Route("/", get_page),
        Route("/assets/{name}", get_asset),
    ]


def plugin_routes(plugins: Plugins) -> list[Mount]:
    """The routes of each plugin that has some, under its own address; they are for admins."""
    return [
        Mount(
            f"/v1/plugins/{plugin.name}",
            routes=plugin.routes,
            middleware=[Middleware(ForAdmins)],
        )
        for plugin in plugins.sound.values()
        if plugin.routes
    ]


class ForAdmins:
    """ASGI middleware around what does not ask whose a session is."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Lets an admin's request in."""
        grant = grant_of(scope)
        if grant is not None:
            check_right(grant, "operate")
        await self._app(scope, receive, send)


def _route(path: str, operations: Sequence[Operation]) -> Route:
    methods = [operation.method for operation in operations]
    segments = path.replace("}", ":segment}")
    if operations[0].handler is None:
        return Route(segments, StreamEndpoint(), methods=methods, name=operations[0].name)
    by_method = {operation.method: operation for operation in operations}

    async def endpoint(request: Request) -> Response:
        service = await service_of(request.app)
        operation = by_method["GET" if request.method == "HEAD" else request.method]
        assert operation.handler is not None
        grant = grant_of(request.scope)
        if operation.body is None or grant is None:
            await guard(service, request, operation.needs)
            return await operation.handler(service, request)
        access: Access = request.app.state.access
        with access.bodies.hold(grant.principal) as take:
            await guard(service, request, operation.needs, take=take)
            return await operation.handler(service, request)

    return Route(segments, endpoint, methods=methods, name=operations[0].name)


class StreamEndpoint:
    """`GET /v1/stream`: refuses before it starts, or streams."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Streams until one side ends it."""
        request = Request(scope)
        service = await service_of(request.app)
        access: Access = request.app.state.access
        grant = grant_of_request(request)
        check_right(grant, "read")
        wanted, listing = wanted_of(request)
        await admit(service, grant, (session_id for session_id, _ in wanted))
        if request.method == "HEAD":
            for session_id, _ in wanted:
                await service.registry.look(session_id)
            await Response(headers={k.decode(): v.decode() for k, v in HEADERS})(
                scope, receive, send
            )
            return
        with access.connections.hold(grant) as hold:
            viewer = await service.feed.watch(
                wanted,
                look=service.registry.look,
                partials=service.registry.partials,
                listing=listing,
                owner=grant.scope,
                root=root_of(request),
            )
            hold.ends_by(viewer.expel)
            await send_stream(service.feed, viewer, scope, receive, send)


@cache
def _document() -> bytes:
    """The same for everybody, who may ask without a token, so it is made once."""
    return encode(make_document())


async def _get_document(request: Request) -> Response:
    return Response(_document(), media_type="application/json")


async def _get_metrics(request: Request) -> Response:
    check_right(grant_of_request(request), "measure")
    metrics = (await service_of(request.app)).metrics
    if metrics is None:
        raise MissingExtraError("/metrics", "metrics")
    headers = {"cache-control": "no-store", "content-type": metrics.media_type}
    return Response(metrics.render(), headers=headers)


async def _answer_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path = request.scope["path"]
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "")
        detail = f"{request.method} cannot be done on {path}; it takes {allowed}"
        return problem(405, "method_not_allowed", detail, headers=error.headers)
    if error.status_code == 404:
        return problem(404, "not_found", f"there is nothing at {path}; /openapi.json says what is")
    return problem(error.status_code, "http", error.detail, headers=error.headers)


async def _answer_refusal(request: Request, error: Exception) -> Response:
    return problem_of(error, has_folders=is_operator(request.scope))
