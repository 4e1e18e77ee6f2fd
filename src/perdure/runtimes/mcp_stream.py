"""MCP over a link: the two streams that the sides of a session read and write."""

from __future__ import annotations

from types import TracebackType
from typing import Self

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import INTERNAL_ERROR, ErrorData, JSONRPCError, JSONRPCResponse
from mcp_types.jsonrpc import jsonrpc_message_adapter
from pydantic import ValidationError

from perdure.runtimes.link import Link, LinkLostError, MessageTooBigError


class _Stream:
    def __init__(self, link: Link) -> None:
        self._link = link

    async def aclose(self) -> None:
        """Does nothing: a link is its owner's to close."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> bool | None:
        return None


class ReadStream(_Stream):
    """The messages that come over a link; it ends with the link."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def receive(self) -> SessionMessage | Exception:
        """The next message, or what is wrong with it."""
        try:
            text = await self._link.receive()
        except LinkLostError:
            raise anyio.EndOfStream from None
        try:
            return SessionMessage(jsonrpc_message_adapter.validate_json(text, by_name=False))
        except ValidationError as error:
            return error


class WriteStream(_Stream):
    """The messages that go over a link. An answer that is too big becomes an error."""

    async def send(self, item: SessionMessage, /) -> None:
        """Sends a message; waits while the peer does not read."""
        try:
            await self._link.send(_spelled(item))
        except LinkLostError:
            raise anyio.ClosedResourceError from None
        except MessageTooBigError:
            await self._refuse(item)

    async def _refuse(self, item: SessionMessage) -> None:
        message = item.message
        if isinstance(message, JSONRPCResponse):
            error = ErrorData(code=INTERNAL_ERROR, message="the result is too big to be sent")
            await self.send(SessionMessage(JSONRPCError(jsonrpc="2.0", id=message.id, error=error)))
        else:
            raise ValueError("the message is too big to be sent")


def _spelled(item: SessionMessage) -> str:
    return item.message.model_dump_json(by_alias=True, exclude_unset=True)
