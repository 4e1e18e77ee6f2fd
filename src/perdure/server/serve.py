"""`perdure serve`: binds, owns the store, says its address once it accepts, and ends cleanly.

The first line on standard output is the page's address, with the server's own token if it has one;
everything else goes to the log, on standard error, where no token ever is.
"""

from __future__ import annotations

import asyncio
import gc
import importlib.util
import logging
import os
import resource
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import uvicorn

from perdure.errors import ConfigurationError
from perdure.runtimes import reaper
from perdure.runtimes.link import MAX_FRAME_BYTES
from perdure.server.config import Settings
from perdure.server.hook.setup import load_hooks
from perdure.server.http.app import create_app
from perdure.server.http.protocol import Protocol
from perdure.server.named_loop import NamedLoops
from perdure.server.own_token import load_keyring, load_token
from perdure.server.plugin_setting import installed_plugins
from perdure.server.served_store import as_journal_store, own_store
from perdure.server.service import Service
from perdure.server.session.port import make_loop
from perdure.server.telemetry import logs
from perdure.stores import open_store, shown_url

log = logging.getLogger(__name__)

SHUTDOWN_S = 3
OPEN_FILES = 65536
KEEP_ALIVE_S = 75
"""How long a connection stays between two requests: for longer than clients and proxies keep theirs
(5 to 60 seconds), so that none sends a request into one that is being closed."""

DEAD_PEER_S = 10.0
"""A peer that acknowledges nothing for so long is gone, where the settings do not say otherwise."""


def run(settings: Settings) -> None:
    """Serves until SIGTERM or SIGINT; returns when everything is closed.

    Raises:
        ConfigurationError: nothing was started; the text says why and what to do.
        StoreUnavailableError: another server has the store, which the text names; or it is none.

    """
    logs.set_up(settings.log_format)
    allow_many_connections()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(serve(settings, say=_say_and_settle))


def _say_and_settle(line: str) -> None:
    _print(line)
    settle_collector()


def allow_many_connections() -> None:
    """Raises the usual limit of open files, 1024, as far as this process may: each viewer is one.

    Source: systemd, "File Descriptor Limits": the soft limit is for programs that use select().
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if most == resource.RLIM_INFINITY else min(OPEN_FILES, most)
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def settle_collector() -> None:
    """Lets garbage be looked for less often, and never among what a start has made; it stays.

    With 1,000 turns at once it took a fifth of the server's time, and stopped all of them for a
    tenth of a second each time it looked through everything. Cycles are rare here: nearly all goes
    by its count of references.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ModuleNotFoundError:  # there is none for this system
        return None
    return uvloop.new_event_loop


def _reap() -> None:
    """Ends what commands of servers and runtimes left behind that are dead."""
    if reaped := reaper.reap():
        log.warning("processes %s were ended: their runtime is dead", reaped)


async def serve(settings: Settings, *, say: Callable[[str], None] | None = None) -> None:
    """Serves inside the running event loop; `say` is told the address once it accepts."""
    settings.check()
    token = load_token(settings)
    load_keyring(settings, token)  # to see that somebody can come in
    plugins = installed_plugins(settings)
    plugins.check()
    hooks = load_hooks(settings.hook_files, plugins, folder=Path(settings.workspace))
    loops = NamedLoops(settings, plugins)
    make_loop(loops, loops.default)  # to see that it can start; its library is imported now
    listener = bind(settings.host, settings.port, dead_peer_s=settings.heartbeat_s)
    try:
        port = listener.getsockname()[1]
        address = address_of(settings.host, port)
        address_to_open = f"{address}/" if token is None else f"{address}/?token={token}"
        opened = open_store(settings.store_url, plugins=plugins)
        store = as_journal_store(opened, settings.store_url)
        async with opened, own_store(store, f"the server at {address} (process {os.getpid()})"):
            await asyncio.to_thread(_reap)
            app = create_app(settings, store=store, loops=loops, plugins=plugins, hooks=hooks)
            server = Server(app, lambda: (say or _print)(address_to_open), proxies=settings.proxies)
            shown = shown_url(settings.store_url)
            log.info("serving %s with the loop %s", shown, loops.default)
            await server.serve(sockets=[listener])
    finally:
        listener.close()
    log.info("stopped")


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def bind(host: str, port: int, *, dead_peer_s: float = DEAD_PEER_S) -> socket.socket:
    """A listening socket's address, taken.

    A connection whose peer acknowledges nothing of what was sent for `dead_peer_s` is closed: with
    heartbeats that finds viewers whose machine is gone, without a word of theirs.

    Raises:
        ConfigurationError: somebody has the port, or the host is none of this machine's.

    """
    try:
        found = socket.getaddrinfo(
            host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (socket.gaierror, UnicodeError) as error:
        raise ConfigurationError(f"host {host!r} is no address of this machine: {error}") from error
    family, kind, protocol, _, address = found[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            listener.setsockopt(
                socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(dead_peer_s * 1000)
            )
        listener.bind(address)
        listener.listen(2048)  # now, so that a port in use is found before anything is started
    except OSError as error:
        listener.close()
        raise ConfigurationError(
            f"cannot listen on {host}, port {port}: {error.strerror}; choose another port "
            "(--port 0 takes any free one)"
        ) from error
    listener.setblocking(False)
    return listener


def address_of(host: str, port: int) -> str:
    """The address to open in a browser on this machine."""
    name = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host.strip("[]"), host.strip("[]"))
    return f"http://[{name}]:{port}" if ":" in name and name[0] != "[" else f"http://{name}:{port}"


def _websockets() -> Literal["websockets-sansio", "none"]:
    """What serves WebSockets, where the extra `runtimes` is installed."""
    return "none" if importlib.util.find_spec("websockets") is None else "websockets-sansio"


class Server(uvicorn.Server):
    """uvicorn, told to say when it accepts and to end its streams before it waits for them."""

    def __init__(
        self, app: Any, on_accept: Callable[[], None], *, proxies: Sequence[str] = ()
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=Protocol,
                ws=_websockets(),
                ws_max_size=MAX_FRAME_BYTES,
                ws_ping_interval=None,  # a link has heartbeats of its own
                ws_per_message_deflate=False,
                loop="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=bool(proxies),
                forwarded_allow_ips=list(proxies),
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=SHUTDOWN_S,
            )
        )
        self._app = app
        self._on_accept = on_accept

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accepts, then says so."""
        await super().startup(sockets)
        if self.started:
            self._on_accept()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Lets running turns end for a while, then ends the streams, then everything else.

        Meanwhile it still answers, that it is not ready among others; a second signal ends the
        wait.
        """
        service: Service = self._app.state.service
        draining = asyncio.create_task(service.drain())
        while not self.force_exit and not draining.done():
            await asyncio.wait([draining], timeout=0.1)
        draining.cancel()
        await asyncio.wait([draining])
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal ends the server, and the process then ends with success."""
        if self.should_exit:
            self.force_exit = True
        self.should_exit = True
