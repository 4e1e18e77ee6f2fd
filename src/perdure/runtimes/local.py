"""A runtime in this process: the tools of a workspace, and those of other sources beside them.

This is what runs tools, wherever it is: in the server, in a subprocess, on another machine.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from hashlib import sha256
from pathlib import Path
from typing import Protocol

from msgspec.structs import replace

from perdure.clock import new_id
from perdure.codec import clean_text, encode
from perdure.entry import File, Json, ResultPart, Text, ToolCall, ToolResult
from perdure.errors import AppendRejectedError, ConfigurationError, RuntimeLostError
from perdure.loop import ToolSpec
from perdure.runtimes import reaper
from perdure.runtimes.command_tool import CommandLimits, CommandTool
from perdure.runtimes.contract import SEEN_BEFORE, CallOrigin, Show
from perdure.runtimes.file_tool import FileTools
from perdure.runtimes.search_tool import SearchTool
from perdure.runtimes.seen import Run, SeenKeys
from perdure.runtimes.tool import Outcome, Tool, ToolFailure
from perdure.runtimes.workspace import Workspace

log = logging.getLogger(__name__)

EXCERPT_CHARS = 50_000
"""How much of a result's text a model is shown, where nothing else is set."""


class ToolSource(Protocol):
    """Further tools of a runtime, such as those of an MCP server."""

    @property
    def name(self) -> str:
        """What it is called; stands before the name of a tool that is there already."""

    async def tools(self) -> Sequence[Tool]:
        """The tools that it has now; starts it, where it has to be.

        Raises:
            ToolFailure: it cannot be reached; its tools are left out for now.

        """
        ...

    async def close(self) -> None:
        """Lets go of it, also while it is being started; afterwards it has no tools."""
        ...


class LocalRuntime:
    """A runtime over a workspace, in this process; `open_local` makes one.

    `chosen` names the tools of the workspace that it has; None is all. `excerpt_chars` is kept
    with each result as its `limit_chars`.
    """

    def __init__(
        self,
        workspace: Workspace,
        *,
        name: str = "local",
        life: str | None = None,
        sources: Sequence[ToolSource] = (),
        chosen: Sequence[str] | None = None,
        limits: CommandLimits | None = None,
        excerpt_chars: int | None = EXCERPT_CHARS,
    ) -> None:
        limits = limits or CommandLimits()
        self._workspace = workspace
        self._runtime_id = f"{name}/{life or new_id()}"
        self._sources = tuple(sources)
        self._excerpt_chars = excerpt_chars
        self._own = {
            tool.spec.name: tool
            for family in (
                CommandTool(workspace, limits),
                FileTools(workspace),
                SearchTool(workspace, limits),
            )
            for tool in family.tools
        }
        if chosen is not None:
            if unknown := sorted(set(chosen) - set(self._own)):
                raise ConfigurationError(
                    f"a workspace has no tool {', '.join(unknown)}; it has {', '.join(self._own)}"
                )
            self._own = {name: self._own[name] for name in chosen}
        self._named: Mapping[str, Tool] = dict(self._own)
        self._seen = SeenKeys()
        self._runs = set[asyncio.Task[ToolResult]]()
        self._lost: asyncio.Future[str] | None = None
        self._is_closed = False
        self.troubles: Mapping[str, str] = {}
        """Why the tools of a source are missing, by the source's name."""

    @property
    def runtime_id(self) -> str:
        """The id of this life."""
        return self._runtime_id

    @property
    def folder(self) -> Path:
        """Where its workspace is."""
        return self._workspace.path

    @property
    def is_closed(self) -> bool:
        """Whether it is closed, or being closed."""
        return self._is_closed

    async def tools(self) -> Sequence[ToolSpec]:
        """The tools of the workspace, then those of each source that can be reached.

        A tool whose name is taken is called `source_name`, and so is one whose name no model could
        spell.

        Raises:
            RuntimeLostError: it was closed.

        """
        self._check_open()
        found = await asyncio.gather(*(self._tools_of(source) for source in self._sources))
        named = dict(self._own)
        for source, tools in zip(self._sources, found, strict=True):
            for tool in tools:
                named[_free_name(tool.spec.name, source.name, named)] = tool
        self._named = named
        return [replace(tool.spec, name=name) for name, tool in named.items()]

    async def call(
        self, call: ToolCall, arguments: Json, origin: CallOrigin, show: Show
    ) -> ToolResult:
        """Runs a tool; cancelling ends it.

        Raises:
            RuntimeLostError: it was closed, now or before.

        """
        run, is_new = self.begin(call, arguments, origin, show)
        if run.task is None:
            return self.first_result(call, run)
        try:
            result = await asyncio.shield(run.task)
        except asyncio.CancelledError:
            if is_new and run.task is not None and not run.task.cancelled():
                await self.end(run)
            if self._is_closed and not _is_cancelling():
                raise RuntimeLostError(self._runtime_id, "it was closed") from None
            if run.was_ended and not _is_cancelling():
                return self.first_result(call, run)
            raise
        return result if is_new else self.first_result(call, run)

    def begin(
        self, call: ToolCall, arguments: Json, origin: CallOrigin, show: Show
    ) -> tuple[Run, bool]:
        """The run of a call, and whether it begins now; a key that was seen has its run already.

        Raises:
            RuntimeLostError: it was closed.

        """
        self._check_open()
        what = _fingerprint(call.name, arguments)
        known = self._seen.find(origin.key)
        if known is not None:
            if known.what != what:
                refusal = self._failed(call, "this idempotency key was used with another call")
                return Run(what, None, refusal), True
            return known, False
        run = self._seen.begin(origin.key, what, lambda: self._run(call, arguments, origin, show))
        assert run.task is not None
        self._runs.add(run.task)
        run.task.add_done_callback(self._runs.discard)
        return run, True

    async def end(self, run: Run) -> None:
        """Ends a run; nothing of its tool is left when this returns."""
        if run.task is not None:
            run.task.cancel()
            await asyncio.wait([run.task])

    def first_result(self, call: ToolCall, run: Run) -> ToolResult:
        """What a run that is over came to, for a call that did not begin it."""
        if run.result is None:
            why = "it was ended before it had one" if run.was_ended else "it is no longer kept"
            text = f"this call ran before, and is not run again; its result: {why}"
            result = self._failed(call, text)
        else:
            result = replace(run.result, call_id=call.call_id)
        provider = result.provider if isinstance(result.provider, dict) else {}
        return replace(result, provider={**provider, SEEN_BEFORE: True})

    async def confirm(self, key: str) -> None:
        """Does nothing: what was returned in this process has arrived."""

    async def until_lost(self) -> str:
        """Waits until it is closed."""
        if self._is_closed:
            return "it was closed"
        if self._lost is None:
            self._lost = asyncio.get_running_loop().create_future()
        return await asyncio.shield(self._lost)

    async def close(self) -> None:
        """Ends its calls, lets go of its sources and of the workspace."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._lost is not None and not self._lost.done():
            self._lost.set_result("it was closed")
        runs = tuple(self._runs)
        for task in runs:
            task.cancel()
        async with AsyncExitStack() as closing:  # each whatever becomes of the others
            closing.callback(self._workspace.close)
            for source in self._sources:
                closing.push_async_callback(source.close)
            await asyncio.gather(*runs, return_exceptions=True)

    def _check_open(self) -> None:
        if self._is_closed:
            raise RuntimeLostError(self._runtime_id, "it was closed")

    async def _tools_of(self, source: ToolSource) -> Sequence[Tool]:
        try:
            tools = await source.tools()
        except ToolFailure as error:
            if self.troubles.get(source.name) != str(error):
                log.warning("the tools of %s are missing: %s", source.name, error)
            self.troubles = {**self.troubles, source.name: str(error)}
            return ()
        self.troubles = {k: why for k, why in self.troubles.items() if k != source.name}
        return tools

    async def _run(
        self, call: ToolCall, arguments: Json, origin: CallOrigin, show: Show
    ) -> ToolResult:
        tool = self._named.get(call.name)
        if tool is None and self._sources:
            await self.tools()  # a call can come before anybody has asked for them
            tool = self._named.get(call.name)
        if tool is None:
            known = ", ".join(self._named) or "none"
            return self._failed(call, f"there is no tool {call.name!r}; the tools are: {known}")
        try:
            outcome = await tool.run(arguments, origin, show)
        except ToolFailure as error:
            return self._failed(call, str(error))
        except OSError as error:
            return self._failed(call, error.strerror or str(error))
        except Exception as error:  # a tool's outermost frame
            log.exception("the tool %s failed", call.name)
            return self._failed(call, f"{type(error).__name__}: {error}")
        return self._result(call, outcome)

    def _failed(self, call: ToolCall, why: str) -> ToolResult:
        return self._result(call, Outcome((Text(why),), is_error=True))

    def _result(self, call: ToolCall, outcome: Outcome) -> ToolResult:
        return ToolResult(
            call.call_id,
            tuple(_clean(part) for part in outcome.parts),
            name=call.name,
            is_error=outcome.is_error,
            limit_chars=self._excerpt_chars,
            provider=dict(outcome.provider) if outcome.provider else None,
        )


async def open_local(
    folder: str | os.PathLike[str],
    *,
    name: str = "local",
    life: str | None = None,
    sources: Sequence[ToolSource] = (),
    chosen: Sequence[str] | None = None,
    limits: CommandLimits | None = None,
    excerpt_chars: int | None = EXCERPT_CHARS,
) -> LocalRuntime:
    """A runtime over a folder; what dead runtimes of this machine left running is ended first.

    Raises:
        ConfigurationError: there is no such folder, or no such tool.

    """
    opening = asyncio.ensure_future(asyncio.to_thread(Workspace, folder))
    try:
        workspace = await asyncio.shield(opening)
    except asyncio.CancelledError:
        opening.add_done_callback(_let_go)
        raise
    except OSError as error:
        raise ConfigurationError(
            f"the workspace {os.fspath(folder)!r} cannot be opened: {error.strerror}; create it, "
            "or name another"
        ) from error
    try:
        if reaped := await asyncio.to_thread(reaper.reap):
            log.warning("processes %s were ended: their runtime is dead", reaped)
        return LocalRuntime(
            workspace,
            name=name,
            life=life,
            sources=sources,
            chosen=chosen,
            limits=limits,
            excerpt_chars=excerpt_chars,
        )
    except BaseException:
        workspace.close()
        raise


def _let_go(opening: asyncio.Future[Workspace]) -> None:
    """Closes a workspace that was opened when nobody waited for it any more."""
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()


def _clean(part: ResultPart) -> ResultPart:
    match part:
        case Text():
            return replace(part, text=clean_text(part.text))
        case File():
            return part


def _fingerprint(name: str, arguments: Json) -> bytes:
    """What tells one call from another; of fixed size, for very many are kept."""
    try:
        said = encode([name, arguments])
    except AppendRejectedError:  # no JSON: no tool takes it either
        said = repr((name, arguments)).encode("utf-8", "backslashreplace")
    return sha256(said).digest()


def _free_name(name: str, source: str, taken: Mapping[str, Tool]) -> str:
    spelled = "".join(c if c.isascii() and (c.isalnum() or c in "_-") else "_" for c in name)
    if spelled == name and name not in taken and 0 < len(name) <= 64:
        return name
    base = f"{source}_{spelled}"[:64]
    free, number = base, 2
    while free in taken:
        free = f"{base[:60]}_{number}"
        number += 1
    return free


def _is_cancelling() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
