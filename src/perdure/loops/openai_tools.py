"""The tools of an agent of the OpenAI Agents SDK, each asked for, started and ended as a run wants.

All tools that the SDK finds (functions, those of MCP servers, and those of agents that it hands
over to) go through one place, and the tools around the run are added there. A call that waits for a
person waits there, too, until all others of its batch have ended: then the run does.
"""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from agents import Agent, FunctionTool, Handoff, Tool
from agents.tool_context import ToolContext as SdkToolContext

from perdure.entry import Json, Message, ToolCall, ToolResult
from perdure.errors import PerdureError
from perdure.loop import (
    Allowed,
    CallWaits,
    LoopContext,
    Refused,
    ToolEnded,
    ToolSpec,
    ToolStarted,
    Verdict,
    Waits,
)
from perdure.loops.bridge import Bridge
from perdure.loops.current import calling
from perdure.loops.openai_items import parts_of_output
from perdure.loops.permission import refused_result, verdict_of
from perdure.loops.tool import ToolContext, failed_result


class Tools:
    """The tools of one run, and the calls of the message that was stored last."""

    def __init__(
        self,
        context: LoopContext,
        bridge: Bridge,
        around: Sequence[ToolSpec],
        limit_chars: int | None,
    ) -> None:
        self.rest = asyncio.Event()
        """All calls that are open wait for somebody's approval."""
        self.lost: PerdureError | None = None
        """What ended the run beneath the SDK, which would tell it as an error of a tool."""
        self.waiting: dict[str, CallWaits] = {}
        self._context = context
        self._bridge = bridge
        self._around = around
        self._limit_chars = limit_chars
        self._names: set[str] = set()
        self._open: dict[str, ToolCall] = {}
        self._ended: dict[str, ToolResult] = {}

    def adopt(self, agent: Agent[Any], known: dict[int, Agent[Any]] | None = None) -> Agent[Any]:
        """A copy of the agent, and of those it hands over to, whose tools go through here."""
        seen: dict[int, Agent[Any]] = {} if known is None else known
        if id(agent) in seen:
            return seen[id(agent)]
        adopted = seen[id(agent)] = copy.copy(agent)

        async def get_all_tools(run_context: Any) -> list[Tool]:
            return self._gated(await agent.get_all_tools(run_context))

        adopted.get_all_tools = get_all_tools  # type: ignore[method-assign] # for this copy alone
        adopted.handoffs = [self._adopt_handoff(each, seen) for each in agent.handoffs]
        return adopted

    def _adopt_handoff(self, given: Any, seen: dict[int, Agent[Any]]) -> Any:
        if isinstance(given, Agent):
            return self.adopt(given, seen)
        if not isinstance(given, Handoff):
            return given

        async def invoke(context: Any, arguments: str) -> Any:
            return self.adopt(await given.on_invoke_handoff(context, arguments), seen)

        return replace(given, on_invoke_handoff=invoke)

    def _gated(self, tools: Sequence[Tool]) -> list[Tool]:
        gated = [self._gate(tool) if isinstance(tool, FunctionTool) else tool for tool in tools]
        own = {tool.name for tool in gated}
        gated += [self._gate(self._offer(spec)) for spec in self._around if spec.name not in own]
        self._names.update(tool.name for tool in gated if isinstance(tool, FunctionTool))
        return gated

    def _gate(self, tool: FunctionTool) -> FunctionTool:
        """The tool as the SDK runs it; whether it needs an approval is asked in here."""
        gated = copy.copy(tool)

        async def invoke(context: SdkToolContext[Any], arguments: str) -> Any:
            call = self._open.get(context.tool_call_id)
            if call is None:
                return await tool.on_invoke_tool(context, arguments)
            try:
                verdict = await self._verdict(tool, context, call)
                if isinstance(verdict, Waits):
                    waits = CallWaits(call.call_id, verdict.reason, verdict.arguments)
                    self.waiting[call.call_id] = waits
                    self._check_rest()
                    await asyncio.Event().wait()
                return await self._run(tool, context, call, verdict)
            except PerdureError as error:
                self.lost = error
                self.rest.set()
                raise

        gated.on_invoke_tool = invoke
        gated.needs_approval = False
        return gated

    async def _verdict(self, tool: FunctionTool, context: Any, call: ToolCall) -> Verdict:
        verdict = await verdict_of(self._context, call)
        if not isinstance(verdict, Allowed) or call.call_id in self._context.answers:
            return verdict
        needs = tool.needs_approval
        if not isinstance(needs, bool):
            given = call.arguments if isinstance(call.arguments, dict) else {}
            needs = await needs(context, given, call.call_id)
        changed = verdict.arguments if verdict.arguments != call.arguments else None
        return Waits(None, changed) if needs else verdict

    async def _run(self, tool: FunctionTool, context: Any, call: ToolCall, verdict: Verdict) -> Any:
        """Runs a call that may run, or says why it does not; its result is stored."""
        if not isinstance(verdict, Allowed):
            reason = verdict.reason if isinstance(verdict, Refused) else None
            result = refused_result(call, reason or "it was not approved")
            await self.end(result)
            return result.text
        await self._bridge.say(ToolStarted(call.call_id))
        show = self._show(call.call_id)
        here = self._context
        key = here.idempotency_key(call.call_id)
        with calling(ToolContext(here.session_id, here.turn_id, call.call_id, key, show)):
            output = await tool.on_invoke_tool(context, _raw(verdict.arguments))
        if isinstance(output, ToolResult):
            result, output = output, output.text
        else:
            parts = parts_of_output(output)
            result = ToolResult(call.call_id, parts, name=call.name, limit_chars=self._limit_chars)
        await self._bridge.flush()
        await self.end(result)
        return output

    def _show(self, call_id: str) -> Any:
        return partial(self._bridge.show, call_id)

    def _offer(self, spec: ToolSpec) -> FunctionTool:
        """A tool around the run; its result is stored as it came."""

        async def invoke(context: SdkToolContext[Any], raw: str) -> Any:
            call = self._open[context.tool_call_id]
            arguments: Json = json.loads(raw or "{}")
            return await self._context.call_tool(call, arguments, self._show(call.call_id))

        schema: Any = spec.schema
        return FunctionTool(spec.name, spec.description, schema, invoke, strict_json_schema=False)

    def begin(self, calls: Sequence[ToolCall]) -> None:
        """The calls of a message that is stored now, or those that were answered."""
        self._open = {call.call_id: call for call in calls}
        self._ended = {}

    async def end(self, result: ToolResult) -> None:
        """Stores a result, once."""
        if self._open.pop(result.call_id, None) is not None:
            self._ended[result.call_id] = result
            await self._bridge.say(ToolEnded(result))
            self._check_rest()

    async def end_others(self, results: dict[str, tuple[Any, str | None]]) -> None:
        """Stores the results that the SDK gave by itself, such as those of a handoff."""
        for call_id, (output, name) in results.items():
            await self.end(ToolResult(call_id, parts_of_output(output), name=name))

    async def leave(self) -> None:
        """Leaves the calls that wait to whoever approves; no other is made any more."""
        for call in [*self._open.values()]:
            if call.call_id not in self.waiting:
                await self.end(failed_result(call, "it was not made: other calls wait"))
        for waits in self.waiting.values():
            await self._bridge.say(waits)

    def _check_rest(self) -> None:
        running = {call.call_id for call in self._open.values() if call.name in self._names}
        if self.waiting and running <= self.waiting.keys():
            self.rest.set()

    async def resume(
        self, agent: Agent[Any], run_context: Any, calls: Sequence[ToolCall]
    ) -> list[Message]:
        """Runs the calls that have their answers now; returns their results, in call order."""
        self.begin(calls)
        found = {tool.name: tool for tool in await agent.get_all_tools(run_context)}

        async def one(call: ToolCall) -> None:
            tool = found.get(call.name)
            verdict = self._context.answers[call.call_id]
            if isinstance(tool, FunctionTool):
                raw = _raw(call.arguments)
                there = SdkToolContext(
                    run_context.context,
                    tool_name=call.name,
                    tool_call_id=call.call_id,
                    tool_arguments=raw,
                )
                await tool.on_invoke_tool(there, raw)
            elif isinstance(verdict, Refused):
                await self.end(refused_result(call, verdict.reason))
            else:
                await self.end(failed_result(call, f"there is no tool {call.name!r} any more"))

        async with asyncio.TaskGroup() as group:
            for call in calls:
                group.create_task(one(call))
        return [Message("tool", (self._ended[call.call_id],)) for call in calls]


def _raw(arguments: Json) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
