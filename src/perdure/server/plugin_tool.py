"""The tools of the plugins, as what stands around a run: listed as specs, called by name.

They run in the server's own process. Their schemas come from the functions' type hints, by the
layer that `Model` uses, and so need the extra `models`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from perdure.clock import monotonic
from perdure.entry import Json, ToolCall, ToolResult
from perdure.errors import ConfigurationError, MissingExtraError
from perdure.loop import ToolSpec
from perdure.loops.tool import Tool, ToolContext, failed_result
from perdure.plugin import Plugins

LIMIT_CHARS = 50_000
"""So much of a result is shown to a model; all of it is stored."""


class PluginTools:
    """Every tool of every plugin, made once: in a thread, for it imports a library that is slow.

    Raises:
        MissingExtraError: there are some, and the extra `models` is not installed.
        ConfigurationError: a function cannot be a tool, or two have the same name.

    """

    def __init__(self, plugins: Plugins) -> None:
        self._tools: dict[str, Tool] = {}
        self._specs: list[ToolSpec] = []
        for plugin in plugins.sound.values():
            for function in plugin.tools:
                self._add(plugin.name, function)

    def _add(self, plugin: str, function: Callable[..., Any]) -> None:
        try:
            tool = Tool(function)
        except ModuleNotFoundError as error:
            if error.name not in ("pydantic_ai", "pydantic"):
                raise
            raise MissingExtraError(f"the plugin {plugin!r}, which has tools,", "models") from error
        except ConfigurationError as error:
            raise ConfigurationError(f"a tool of the plugin {plugin!r}: {error}") from error
        if tool.name in self._tools:
            raise ConfigurationError(
                f"the plugin {plugin!r}: a tool {tool.name!r} is there already"
            )
        self._tools[tool.name] = tool
        schema: Json = tool.definition.parameters_json_schema
        self._specs.append(ToolSpec(tool.name, tool.definition.description or "", schema))

    @property
    def names(self) -> Mapping[str, Tool]:
        """The tools by their names."""
        return self._tools

    async def tools(self) -> Sequence[ToolSpec]:
        """What a model is told of."""
        return self._specs

    async def call(
        self,
        call: ToolCall,
        arguments: Json,
        *,
        session_id: str,
        turn_id: str,
        key: str,
        show: Callable[[str], object],
    ) -> ToolResult:
        """Runs one with these arguments; whatever goes wrong in it is a result with `is_error`."""
        tool = self._tools.get(call.name)
        if tool is None:
            return failed_result(call, f"there is no tool {call.name!r}")
        began = monotonic()
        context = ToolContext(session_id, turn_id, call.call_id, key, show)
        permitted = ToolCall(call.call_id, call.name, arguments)
        try:
            is_error, parts = await tool.run(permitted, context)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            return failed_result(call, "the tool cancelled itself")
        return ToolResult(
            call.call_id,
            parts,
            name=call.name,
            is_error=is_error,
            limit_chars=LIMIT_CHARS,
            provider={"seconds": round(monotonic() - began, 3)},
        )
