"""Frames over a connected stream socket: four bytes of length, then UTF-8."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress

from perdure.runtimes.link import MAX_FRAME_BYTES, WireClosedError

_LENGTH_BYTES = 4


class SocketWire:
    """A wire over a socket pair between two processes of one machine."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._sending = asyncio.Lock()

    @classmethod
    async def over(cls, connected: socket.socket) -> SocketWire:
        """The wire over a socket, which is its own from here on."""
        connected.setblocking(False)
        return cls(*await asyncio.open_unix_connection(sock=connected))

    async def send(self, frame: str) -> None:
        """Hands a frame over; waits while the peer does not read."""
        data = frame.encode("utf-8", "replace")
        try:
            async with self._sending:
                self._writer.write(len(data).to_bytes(_LENGTH_BYTES) + data)
                await self._writer.drain()
        except (OSError, RuntimeError) as error:
            raise WireClosedError(f"its process is gone ({error})") from error

    async def receive(self) -> str:
        """The next frame."""
        try:
            length = int.from_bytes(await self._reader.readexactly(_LENGTH_BYTES))
            if length > MAX_FRAME_BYTES:
                raise WireClosedError("it sent what is no frame")
            return (await self._reader.readexactly(length)).decode("utf-8", "replace")
        except (asyncio.IncompleteReadError, OSError) as error:
            raise WireClosedError("its process is gone") from error

    async def close(self, why: str) -> None:
        """Closes the socket; what was not taken is dropped."""
        self._writer.transport.abort()
        with suppress(OSError):
            await self._writer.wait_closed()
