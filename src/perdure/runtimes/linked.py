"""A runtime at the other end of a link: its tools are listed and called by MCP.

It is lost when its link is: calls in flight raise `RuntimeLostError`, once. Their results, if they
still come, come as late ones, over whatever link that life of the runtime has next.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress

import mcp_types as types
from mcp.client.session import ClientSession
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from perdure.entry import Json, Text, ToolCall, ToolResult
from perdure.errors import RuntimeLostError
from perdure.loop import ToolSpec
from perdure.runtimes.content import from_mcp_result, from_mcp_tool, to_meta
from perdure.runtimes.contract import CallOrigin, Show
from perdure.runtimes.late import LateCall, OnLate
from perdure.runtimes.late_message import (
    LateAnswer,
    LateRequest,
    StoredNotification,
    StoredParams,
)
from perdure.runtimes.link import Link
from perdure.runtimes.mcp_stream import ReadStream, WriteStream

log = logging.getLogger(__name__)

START_S = 30.0
"""A session has to begin within so long."""

_LATE_AGAIN_S = 5.0


class LinkedRuntime:
    """One life of a runtime, for as long as one link to it lasts; `start` begins the session."""

    def __init__(self, link: Link, runtime_id: str, *, on_late: OnLate | None = None) -> None:
        self._link = link
        self._runtime_id = runtime_id
        self._on_late = on_late
        self._session: ClientSession | None = None
        self._holding: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()

    @property
    def runtime_id(self) -> str:
        """The id of this life."""
        return self._runtime_id

    async def start(self) -> None:
        """Begins the session.

        Raises:
            RuntimeLostError: the other side does not answer as a runtime does.

        """
        self._holding = asyncio.create_task(self._hold())
        ready = asyncio.create_task(self._ready.wait())
        try:
            await asyncio.wait(
                [ready, self._holding], timeout=START_S, return_when=asyncio.FIRST_COMPLETED
            )
            if not self._ready.is_set():
                raise self._lost(f"it gave no answer within {START_S:g} seconds")
        except BaseException:
            await self.close()
            raise
        finally:
            ready.cancel()

    async def tools(self) -> Sequence[ToolSpec]:
        """The tools that it has now.

        Raises:
            RuntimeLostError: it is lost.

        """
        found: list[ToolSpec] = []
        cursor: str | None = None
        try:
            while True:
                page = await self._open_session().list_tools(
                    params=types.PaginatedRequestParams(cursor=cursor)
                )
                found += [from_mcp_tool(tool) for tool in page.tools]
                cursor = page.next_cursor
                if cursor is None:
                    return found
        except MCPError as error:
            raise self._lost(str(error)) from error

    async def call(
        self, call: ToolCall, arguments: Json, origin: CallOrigin, show: Show
    ) -> ToolResult:
        """Runs a tool there; cancelling tells the runtime to end it.

        Raises:
            RuntimeLostError: the link was lost; the result may come late.

        """

        async def progress(progress: float, total: float | None, message: str | None) -> None:
            if message:
                show(message)

        session = self._open_session()
        if arguments is not None and not isinstance(arguments, dict):
            return _failed(call, f"the arguments are no JSON object: {arguments!r}")
        request = types.CallToolRequest(
            params=types.CallToolRequestParams(
                name=call.name,
                arguments=arguments,
                _meta=to_meta(call.call_id, origin),  # type: ignore[arg-type]  # an open map
            )
        )
        try:
            result = await session.send_request(
                request, types.CallToolResult, progress_callback=progress
            )
        except MCPError as error:
            if self._link.cause is not None or error.code == types.CONNECTION_CLOSED:
                raise self._lost(str(error)) from error
            return _failed(call, f"the runtime refused the call: {error}")
        except (ValidationError, ValueError) as error:
            return _failed(call, f"the runtime's answer is no result: {error}")
        return from_mcp_result(result, call.call_id, call.name)

    async def confirm(self, key: str) -> None:
        """Tells the runtime that this result is stored."""
        if key and self._session is not None:
            stored = StoredNotification(params=StoredParams(key=key))
            await self._session.send_notification(stored)  # type: ignore[arg-type]  # one of our own

    async def until_lost(self) -> str:
        """Waits until the link is over, and says why."""
        return await self._link.until_lost()

    async def close(self) -> None:
        """Ends the link; what a runtime elsewhere runs is its own business."""
        await self._link.close("the link was closed")
        if self._holding is not None:
            self._holding.cancel()
            await asyncio.wait([self._holding])

    async def _hold(self) -> None:
        """Holds the session open for as long as the link lasts; the link ends with it."""
        why = "its session ended"
        try:
            session = ClientSession(ReadStream(self._link), WriteStream(self._link))
            async with session:
                await session.initialize()
                self._session = session
                self._ready.set()
                late = asyncio.create_task(self._take_late(session, self._on_late))
                try:
                    await self._link.until_lost()
                finally:
                    self._session = None
                    late.cancel()
                    await asyncio.wait([late])
        except (MCPError, ValidationError, RuntimeError) as error:
            why = f"it is no runtime: {error}"
        finally:
            await self._link.close(why)

    async def _take_late(self, session: ClientSession, on_late: OnLate | None) -> None:
        if on_late is None:
            return  # they stay where they are
        with suppress(MCPError):
            while True:
                request = LateRequest(params=types.RequestParams())
                answer = await session.send_request(request, LateAnswer)
                result = from_mcp_result(answer.result, answer.call_id, answer.name)
                origin = CallOrigin(answer.session_id, answer.turn_id, answer.key)
                try:
                    await on_late(LateCall(origin, result))
                except Exception:  # the outermost frame of somebody else's callback
                    log.exception("a late result could not be stored; it is asked for again")
                    await asyncio.sleep(_LATE_AGAIN_S)
                    continue
                await self.confirm(answer.key)

    def _open_session(self) -> ClientSession:
        if self._session is None or self._link.cause is not None:
            raise self._lost()
        return self._session

    def _lost(self, why: str = "it is not attached") -> RuntimeLostError:
        return RuntimeLostError(self._runtime_id, self._link.cause or why)


def _failed(call: ToolCall, why: str) -> ToolResult:
    return ToolResult(call.call_id, (Text(why),), name=call.name, is_error=True)
