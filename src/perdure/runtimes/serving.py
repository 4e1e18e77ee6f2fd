"""A runtime's own end of a link: an MCP server over its tools.

When the other side cancels a call, its tool is ended. When the link is lost, the tool goes on, and
its result is kept for the next link (late.py).
"""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import mcp_types as types
from mcp.server import Server
from mcp.server.context import ServerRequestContext

from perdure.entry import ToolCall, ToolResult
from perdure.errors import RuntimeLostError
from perdure.runtimes.content import from_meta, to_mcp_result, to_mcp_tools
from perdure.runtimes.contract import CallOrigin
from perdure.runtimes.late import LateCall, LateResults
from perdure.runtimes.late_message import LATE, STORED, LateAnswer, StoredParams
from perdure.runtimes.link import Link
from perdure.runtimes.local import LocalRuntime
from perdure.runtimes.mcp_stream import ReadStream, WriteStream
from perdure.runtimes.seen import Run

PACE_S = 1 / 30

Context = ServerRequestContext[Any, Any]


class Serving:
    """Serves a runtime over one link after the other."""

    def __init__(self, runtime: LocalRuntime) -> None:
        self._runtime = runtime
        self._late = LateResults()
        self._going_on = set[asyncio.Task[None]]()

    async def serve(self, link: Link) -> str:
        """Serves until the link is over, and says why it is."""
        server: Server[Any] = Server(
            "perdure",
            on_list_tools=self._list_tools,
            on_call_tool=lambda context, params: self._call_tool(link, context, params),
        )
        server.add_request_handler(LATE, types.RequestParams, self._next_late)
        server.add_notification_handler(STORED, StoredParams, self._stored)
        running = asyncio.create_task(
            server.run(ReadStream(link), WriteStream(link), server.create_initialization_options())
        )
        try:
            await asyncio.wait([running])
        finally:
            # First of all the link: what is cancelled by its end is not answered over it.
            await link.close("the runtime ends")
            await asyncio.wait([running])
            self._late.lost()
        running.result()
        return link.cause or "it is over"

    async def close(self) -> None:
        """Ends what still runs, and the runtime."""
        await self._runtime.close()
        await asyncio.gather(*self._going_on, return_exceptions=True)

    async def _list_tools(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=to_mcp_tools(await self._runtime.tools()))

    async def _call_tool(
        self, link: Link, context: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        call_id, origin = from_meta(context.meta)
        call = ToolCall(call_id, params.name, params.arguments)
        output = _Output(context)
        run, is_new = self._runtime.begin(call, params.arguments, origin, output.show)
        showing = asyncio.create_task(output.send())
        try:
            if run.task is not None:
                await asyncio.wait([run.task])
            result = self._result_of(call, run, is_new)
            await output.finish(showing)
        except asyncio.CancelledError:
            if link.cause is not None:
                self._go_on(call, origin, run, is_new)
            elif is_new:
                await self._runtime.end(run)
            raise
        finally:
            showing.cancel()
        self._late.sent(LateCall(origin, result))
        return to_mcp_result(result)

    def _result_of(self, call: ToolCall, run: Run, is_new: bool) -> ToolResult:
        if is_new and run.result is not None:
            return run.result
        if is_new and self._runtime.is_closed:
            raise RuntimeLostError(self._runtime.runtime_id, "it was closed")
        return self._runtime.first_result(call, run)

    def _go_on(self, call: ToolCall, origin: CallOrigin, run: Run, is_new: bool) -> None:
        task = asyncio.create_task(self._miss(call, origin, run, is_new))
        self._going_on.add(task)
        task.add_done_callback(self._going_on.discard)

    async def _miss(self, call: ToolCall, origin: CallOrigin, run: Run, is_new: bool) -> None:
        if run.task is not None:
            await asyncio.wait([run.task])
        if not self._runtime.is_closed:
            self._late.missed(LateCall(origin, self._result_of(call, run, is_new)))

    async def _next_late(self, context: Context, params: types.RequestParams) -> LateAnswer:
        late = await self._late.next()
        origin, result = late.origin, late.result
        return LateAnswer(
            session_id=origin.session_id,
            turn_id=origin.turn_id,
            call_id=result.call_id,
            name=result.name or "",
            key=origin.key,
            result=to_mcp_result(result),
        )

    async def _stored(self, context: Context, params: StoredParams) -> None:
        self._late.stored(params.key)


class _Output:
    """What a tool shows, sent as progress; what comes while that takes its time goes in one."""

    def __init__(self, context: Context) -> None:
        self._session = context.session
        self._waiting: list[str] = []
        self._sent = 0
        self._changed = asyncio.Event()
        self._is_over = False

    def show(self, text: str) -> None:
        """Takes more output."""
        self._waiting.append(text)
        self._changed.set()

    async def send(self) -> None:
        """Sends output until it is over."""
        while not self._is_over or self._waiting:
            await self._changed.wait()
            self._changed.clear()
            if self._waiting:
                text = "".join(self._waiting)
                self._waiting.clear()
                self._sent += len(text)
                try:
                    await self._session.report_progress(self._sent, message=text)
                except anyio.ClosedResourceError:
                    return  # the link is over; the result is kept, and comes late
                await asyncio.sleep(0 if self._is_over else PACE_S)

    async def finish(self, sending: asyncio.Task[None]) -> None:
        """Sends what is left, before the result."""
        self._is_over = True
        self._changed.set()
        await sending
