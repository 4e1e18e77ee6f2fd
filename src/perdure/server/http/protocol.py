"""uvicorn's side of one connection, bounded: a head that does not come, or does not end, ends it.

uvicorn waits for the first request, and for the rest of a head, as long as its peer likes, and
keeps as much of it as comes; whoever does that has shown no token yet. Bodies are bounded where
they are read (`body`).
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from perdure.codec import encode
from perdure.server.http.sse import ABORT
from perdure.server.problem import MEDIA_TYPE, document_of

HEAD_WAIT_S = 20.0
"""How long the first head of a connection may take, and each further one from its first byte."""

MAX_HEAD_BYTES = 64 * 1024
"""How long the address and the headers of a request may be together."""


class HeadTooLargeError(Exception):
    """The head of a request has more bytes than it may have."""


class Protocol(HttpToolsProtocol):
    """One connection, which a response may also abort."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._waiting: asyncio.TimerHandle | None = None
        self._is_head = True
        self._head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """Waits for the first head."""
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Waits no more."""
        self._wait_no_more()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Takes what came, unless it is a head without an end."""
        if self._is_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._is_closing() or self.transport.get_protocol() is not self:
            return  # it is closed, or a WebSocket now
        if self._is_head and self._head_bytes > MAX_HEAD_BYTES:
            self._refuse_head()
        elif self._waiting is None and (self.cycle is None or self.cycle.response_complete):
            self._wait()

    def on_message_begin(self) -> None:
        """Starts a request's scope."""
        super().on_message_begin()
        scope: dict[str, Any] = self.scope  # type: ignore[assignment]  # a TypedDict, to be extended
        scope["extensions"] = {ABORT: self.transport.abort}

    def on_headers_complete(self) -> None:
        """Starts to answer."""
        if len(self.url) + sum(len(k) + len(v) + 4 for k, v in self.headers) > MAX_HEAD_BYTES:
            raise HeadTooLargeError
        self._is_head = False
        self._wait_no_more()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Comes to the next head."""
        self._is_head, self._head_bytes = True, 0
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Answers what is no request, or one with too large a head."""
        if self._is_closing():
            return
        if self._is_head and self.headers is not None and self._is_too_large():
            self._refuse_head()
        else:
            self._refuse(400, "invalid_request", "this is no HTTP request that can be read")

    def _is_too_large(self) -> bool:
        return self._head_bytes > MAX_HEAD_BYTES

    def _refuse_head(self) -> None:
        self._refuse(
            431,
            "head_too_large",
            f"the address and the headers of a request have at most {MAX_HEAD_BYTES} bytes",
        )

    def _is_closing(self) -> bool:
        return self.transport.is_closing()

    def _wait(self) -> None:
        self._wait_no_more()
        self._waiting = self.loop.call_later(HEAD_WAIT_S, self._end)

    def _wait_no_more(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _end(self) -> None:
        self._waiting = None
        if self._is_closing():
            return
        if self._is_head and self._head_bytes:
            self._refuse(408, "too_slow", f"the request's head took more than {HEAD_WAIT_S:g} s")
        else:
            self.transport.close()

    def _refuse(self, status: int, code: str, detail: str) -> None:
        """Writes a problem by itself: there is no request that could be answered."""
        content = encode(document_of(status, code, detail))
        head = (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: {MEDIA_TYPE}\r\n"
            f"content-length: {len(content)}\r\ncache-control: no-store\r\n"
            "connection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + content)
        self.transport.close()
