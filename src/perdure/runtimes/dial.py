"""A runtime dials in to a server, and dials again whenever it loses it.

Between two attempts it waits ever longer, up to a bound, and never quite as long as others do. What
runs when the link is lost goes on; its results are handed over on the next link.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import urlencode, urlsplit, urlunsplit

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI

from perdure.clock import monotonic, new_id, sleep
from perdure.errors import ConfigurationError
from perdure.runtimes.link import MAX_FRAME_BYTES, Link, WireClosedError
from perdure.runtimes.serving import Serving

log = logging.getLogger(__name__)

FIRST_WAIT_S = 0.25
LONGEST_WAIT_S = 20.0
CONNECT_S = 10.0
STEADY_S = 10.0
"""A link that lasted so long was a good one; after a shorter one the wait grows too."""

PATH = "/v1/runtimes/connect"
LOST_AFTER = "perdure-lost-after"

_CLOSE_S = 1.0
_FINAL = frozenset({400, 401, 403, 404, 405, 421, 422})


async def dial(
    serving: Serving,
    url: str,
    *,
    token: str,
    name: str,
    life: str,
    workspace: str,
    say: Callable[[str], object] = log.info,
) -> None:
    """Dials in, serves, and dials again, until it is cancelled.

    Raises:
        ConfigurationError: the server will never have it: the token, the name or the URL is wrong.

    """
    address = connect_url(url, name=name, life=life, workspace=workspace)
    attempt = 0
    while True:
        try:
            connection = await _connect(address, token)
        except (OSError, TimeoutError, InvalidHandshake, InvalidURI) as error:
            _check_hopeful(error, url)
            wait_s = backoff_s(attempt)
            attempt += 1
            say(f"{_reason(error)}; tries again in {wait_s:.1f} seconds")
            await sleep(wait_s)
            continue
        say(f"attached to {url} as {name}")
        began = monotonic()
        try:
            cause = await _serve(serving, connection)
        finally:
            await _ConnectionWire(connection).close("the runtime ends")
        say(f"the link was lost: {cause}")
        attempt = 0 if monotonic() - began >= STEADY_S else attempt
        await sleep(backoff_s(attempt))
        attempt += 1


def connect_url(url: str, *, name: str, life: str, workspace: str) -> str:
    """The address to dial, of a server's URL as a browser opens it.

    Raises:
        ConfigurationError: it is no such URL.

    """
    wrong = f"{url!r} is no address of a server: write http://HOST:PORT or https://HOST"
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port  # a port is looked at only when it is asked for
    except ValueError as error:
        raise ConfigurationError(f"{wrong} ({error})") from error
    scheme = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}.get(parts.scheme)
    if scheme is None or not host or parts.username is not None:
        raise ConfigurationError(wrong)
    path = parts.path.rstrip("/")
    path = path if path.endswith(PATH) else path + PATH
    query = urlencode({"name": name, "life": life, "workspace": workspace}, errors="replace")
    return urlunsplit((scheme, parts.netloc, path, query, ""))


def backoff_s(attempt: int) -> float:
    """How long to wait before the next attempt: up to twice as long each time, and never alike."""
    longest: float = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2 ** min(attempt, 20))
    return longest * (0.5 + int(new_id()[-8:], 16) / 0x1_FFFF_FFFE)


async def _connect(address: str, token: str) -> ClientConnection:
    return await connect(
        address,
        additional_headers={"Authorization": f"Bearer {token}"},
        open_timeout=CONNECT_S,
        close_timeout=_CLOSE_S,
        ping_interval=None,  # a link has heartbeats of its own
        max_size=MAX_FRAME_BYTES,
        compression=None,
    )


async def _serve(serving: Serving, connection: ClientConnection) -> str:
    assert connection.response is not None
    try:
        lost_after_s = float(connection.response.headers[LOST_AFTER])
    except (KeyError, ValueError):
        return "the server does not say that it takes runtimes"
    link = Link(_ConnectionWire(connection), lost_after_s=lost_after_s)
    link.start()
    try:
        return await serving.serve(link)
    finally:
        await link.close("the runtime ends")


def _check_hopeful(error: Exception, url: str) -> None:
    """Raises ConfigurationError where trying again cannot help."""
    if isinstance(error, ssl.SSLCertVerificationError):
        raise ConfigurationError(f"the certificate of {url} does not count: {error}") from error
    if isinstance(error, InvalidStatus) and error.response.status_code in _FINAL:
        raise ConfigurationError(f"{url} refuses the runtime: {_reason(error)}") from error
    if isinstance(error, InvalidURI):
        raise ConfigurationError(str(error)) from error


def _reason(error: Exception) -> str:
    if isinstance(error, InvalidStatus):
        return f"it answered {error.response.status_code}: {_detail(error.response.body)}"
    if isinstance(error, TimeoutError):
        return f"no answer within {CONNECT_S:g} seconds"
    return f"no connection: {error}"


def _detail(body: bytes | bytearray | None) -> str:
    with suppress(msgspec.DecodeError):
        document = msgspec.json.decode(body or b"")
        if isinstance(document, dict) and isinstance(document.get("detail"), str):
            return str(document["detail"])
    return (body or b"").decode("utf-8", "replace")[:200]


class _ConnectionWire:
    """The frames of a link as text messages of a WebSocket."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection

    async def send(self, frame: str) -> None:
        try:
            await self._connection.send(frame)
        except ConnectionClosed as error:
            raise WireClosedError(_closed(error)) from error

    async def receive(self) -> str:
        try:
            frame = await self._connection.recv()
        except ConnectionClosed as error:
            raise WireClosedError(_closed(error)) from error
        if isinstance(frame, bytes):
            raise WireClosedError("it sent what is no frame")
        return frame

    async def close(self, why: str) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_S * 2):
                await self._connection.close(1001, why.encode()[:120].decode("utf-8", "ignore"))
        self._connection.transport.abort()


def _closed(error: ConnectionClosed) -> str:
    reason = error.rcvd.reason if error.rcvd is not None else ""
    return f"the connection was closed{f': {reason}' if reason else ''}"
