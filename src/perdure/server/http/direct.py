"""A stream's way to its connection without a task in between, where uvicorn is the server.

An ASGI server is told of each write by a coroutine, and to run one for each viewer costs more than
the write. This writes to the connection what `send` would write, under the same flow control, and
only between two `send`s. Where another server runs the application there is no such way, and every
write goes by `send`.
Source: RFC 9112, section 7.1 (chunked transfer coding).
"""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

_last: tuple[bytes, bytes] = (b"", b"")
"""The newest write, plain and as a chunk: viewers of one session get the same bytes."""


def _chunk_of(data: bytes) -> bytes:
    global _last
    if _last[0] is not data:
        _last = (data, b"%x\r\n%b\r\n" % (len(data), data))
    return _last[1]


class DirectWriter:
    """Writes to the connection of one response that has started and is chunked."""

    __slots__ = ("_cycle", "_flow", "_write")

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle
        self._flow = cycle.flow
        self._write = cycle.transport.write

    @property
    def is_free(self) -> bool:
        """Whether the connection takes more without being waited for."""
        return not (self._flow.write_paused or self._cycle.disconnected)

    def write(self, data: bytes) -> None:
        """Writes some bytes of the response's body, which are not empty."""
        self._write(_chunk_of(data))


def direct_writer(send: Any) -> DirectWriter | None:
    """The way of a response that has started, by the server's own `send`; None: there is none."""
    cycle = getattr(send, "__self__", None)
    if isinstance(cycle, RequestResponseCycle) and cycle.chunked_encoding:
        return DirectWriter(cycle)
    return None
