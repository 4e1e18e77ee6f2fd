"""An MCP server as a source of tools: started or reached when it is first needed, and again then.

Each call carries its idempotency key in its metadata. A server that goes away costs the calls that
it was running a result that says so, and nothing else: the next need starts it anew. One that
cannot be started costs what it takes to find out, and is left alone for `RESTS` times as long.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED, REQUEST_TIMEOUT
from msgspec.structs import replace

from perdure.clock import monotonic
from perdure.codec import clean_text
from perdure.entry import Json
from perdure.loop import ToolSpec
from perdure.runtimes import reaper
from perdure.runtimes.content import MCP, from_mcp_tool, parts_of, to_meta
from perdure.runtimes.contract import CallOrigin, Show
from perdure.runtimes.error_tail import ErrorTail
from perdure.runtimes.table import McpServer
from perdure.runtimes.tool import Outcome, Tool, ToolFailure, no_object

log = logging.getLogger(__name__)

GRACE_S = 1.0

RESTS = 10
"""A server that cannot be started is left alone for so many times as long as that took."""

_KEEPER = Path(__file__).with_name("keeper.py")
_PAGES = 100


class McpSource:
    """The tools of one MCP server."""

    def __init__(self, name: str, server: McpServer, workspace: str | os.PathLike[str]) -> None:
        self._name = name
        self._server = server
        self._workspace = Path(workspace)
        self._starting = asyncio.Lock()
        self._held: _Held | None = None
        self._errors: ErrorTail | None = None
        self._rest: tuple[float, str] | None = None
        self._is_closed = False

    @property
    def name(self) -> str:
        """What it is called in the configuration."""
        return self._name

    async def tools(self) -> Sequence[Tool]:
        """The tools that it lists now.

        Raises:
            ToolFailure: it cannot be started or reached, or does not answer in time.

        """
        for is_last in (False, True):
            held = await self._hold()
            try:
                async with asyncio.timeout(self._server.start_within_s):
                    return await self._list(held)
            except (MCPError, OSError, ValueError, TimeoutError) as error:
                await self._drop(held)
                if is_last and isinstance(error, TimeoutError):
                    raise self._resting("it did not list its tools") from error
                if is_last:
                    raise ToolFailure(f"it does not list its tools: {_say(error)}") from error
        raise AssertionError

    async def _list(self, held: _Held) -> Sequence[Tool]:
        found: list[Tool] = []
        cursor: str | None = None
        seen = set[str]()
        for _ in range(_PAGES):
            page = await held.client.list_tools(cursor=cursor)
            for tool in page.tools:
                full_name = clean_text(f"{MCP}{self._name}__{tool.name}")
                spec = replace(from_mcp_tool(tool), full_name=full_name)
                found.append(McpTool(self, spec, tool.name))
            cursor = page.next_cursor
            if cursor is None or cursor in seen:
                break
            seen.add(cursor)
        return found

    async def call(self, name: str, arguments: Json, origin: CallOrigin, show: Show) -> Outcome:
        """Calls a tool of the server.

        Raises:
            ToolFailure: it could not be called, or did not answer.

        """

        async def progress(progress: float, total: float | None, message: str | None) -> None:
            if message:
                show(message + "\n")

        if arguments is not None and not isinstance(arguments, dict):
            raise no_object(arguments)
        held = await self._hold()
        try:
            result = await held.client.call_tool(
                name,
                arguments,
                read_timeout_seconds=self._server.timeout_s,
                progress_callback=progress,
                meta=to_meta("", origin),  # type: ignore[arg-type]  # an open map
            )
        except MCPError as error:
            if error.code == REQUEST_TIMEOUT:
                raise ToolFailure(
                    f"{self._name} gave no result within {self._server.timeout_s:g} seconds, and "
                    "was told to stop; what the call did is not known"
                ) from error
            if error.code != CONNECTION_CLOSED:
                raise ToolFailure(f"{self._name} refused the call: {error}") from error
            await self._drop(held)
            raise ToolFailure(
                f"{self._name} went away; what the call did is not known. It is started again "
                "when it is needed next"
            ) from error
        except (RuntimeError, ValueError) as error:
            raise ToolFailure(f"the answer of {self._name} is no result: {error}") from error
        return Outcome(parts_of(result), result.is_error)

    async def close(self) -> None:
        """Ends the connection, and the program where it was started here; none starts again."""
        self._is_closed = True
        if self._held is not None:
            await self._drop(self._held)

    async def _hold(self) -> _Held:
        async with self._starting:
            if self._is_closed:
                raise ToolFailure("it was let go of: its runtime is closed")
            if self._held is None or self._held.is_over:
                if self._rest is not None and monotonic() < self._rest[0]:
                    raise ToolFailure(self._rest[1])
                self._held = held = _Held(self._open())
                began = monotonic()
                try:
                    async with asyncio.timeout(self._server.start_within_s):
                        await held.start()
                except TimeoutError as error:
                    failure = self._resting("it did not answer")
                    await self._drop(held)
                    raise failure from error
                except BaseException as error:
                    if isinstance(error, ToolFailure):
                        took_s = monotonic() - began
                        self._rest = (monotonic() + took_s * RESTS, str(error))
                    await self._drop(held)
                    raise
            return self._held

    def _resting(self, what: str) -> ToolFailure:
        wait_s = self._server.start_within_s
        why = (
            f"{what} within {wait_s:g} seconds{self._said()}; it is not waited for again for "
            f"{wait_s * RESTS:g} seconds"
        )
        self._rest = (monotonic() + wait_s * RESTS, why)
        return ToolFailure(why)

    def _said(self) -> str:
        last = self._errors.last_line if self._errors is not None else ""
        return f" (its last error: {last})" if last else ""

    async def _drop(self, held: _Held) -> None:
        if self._held is held:
            self._held = None
        await held.close()

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[Client]:
        async with AsyncExitStack() as stack:
            if self._server.url is not None:
                http = httpx2.AsyncClient(
                    headers=dict(self._server.headers),
                    timeout=httpx2.Timeout(
                        self._server.start_within_s, read=self._server.timeout_s
                    ),
                )
                await stack.enter_async_context(http)
                transport = streamable_http_client(self._server.url, http_client=http)
            else:
                self._errors = stack.enter_context(ErrorTail())
                stack.callback(setattr, self, "_errors", None)
                transport = stdio_client(self._parameters(), errlog=self._errors.writer)
            try:
                client = await stack.enter_async_context(Client(transport, cache=None))
            except Exception as error:  # the edge of somebody else's server
                raise ToolFailure(f"it cannot be started: {_say(error)}{self._said()}") from error
            yield client

    def _parameters(self) -> StdioServerParameters:
        assert self._server.command is not None
        keeper = ["-I", "-S", str(_KEEPER), str(os.getpid()), str(GRACE_S)]
        return StdioServerParameters(
            command=sys.executable,
            args=[*keeper, self._server.command, *self._server.args],
            env={**self._server.env, reaper.VARIABLE: reaper.mark()},
            cwd=self._workspace,
        )


class McpTool:
    """One tool of an MCP server."""

    def __init__(self, source: McpSource, spec: ToolSpec, name: str) -> None:
        self._source = source
        self._spec = spec
        self._name = name

    @property
    def spec(self) -> ToolSpec:
        """The tool as a model is told of it."""
        return self._spec

    async def run(self, arguments: Json, origin: CallOrigin, show: Show) -> Outcome:
        """Calls it."""
        return await self._source.call(self._name, arguments, origin, show)


class _Held:
    """A client that one task opens, holds and closes: what it is made of must not change tasks."""

    def __init__(self, opening: AbstractAsyncContextManager[Client]) -> None:
        self._opening = opening
        self._client: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._let_go = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def client(self) -> Client:
        """The client, once it has started."""
        return self._client.result()

    @property
    def is_over(self) -> bool:
        """Whether the task that holds it has ended."""
        return self._task is None or self._task.done()

    async def start(self) -> None:
        """Opens it.

        Raises:
            ToolFailure: it cannot be opened.

        """
        self._task = asyncio.create_task(self._hold())
        either: list[asyncio.Future[Any]] = [self._task, self._client]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not self._client.done():
            if not self._task.cancelled():
                self._task.result()
            raise ToolFailure("it ended as it was started")

    async def close(self) -> None:
        """Lets it go; returns when it is gone."""
        self._let_go.set()
        if self._task is None:
            return
        if not self._client.done():
            self._task.cancel()
        await asyncio.wait([self._task])
        if not self._task.cancelled() and (error := self._task.exception()) is not None:
            log.debug("it ended: %s", error)

    async def _hold(self) -> None:
        try:
            async with self._opening as client:
                self._client.set_result(client)
                await self._let_go.wait()
        except ToolFailure:
            raise
        except Exception as error:  # the outermost frame of somebody else's server
            raise ToolFailure(f"it cannot be started: {_say(error)}") from error


def _say(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) or type(error).__name__
