"""What stands between a pydantic-ai agent and its tools: permission, and the tools around the run.

A capability of the run asks `permit` for each call before its arguments are validated, so that
changed ones are. A call that waits for an approval is deferred, as pydantic-ai has it: all others
of its batch end first, then the run does, and the answer starts another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pydantic_ai.capabilities.abstract import AbstractCapability
from pydantic_ai.exceptions import ApprovalRequired, ToolFailed
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, RunContext, ToolDefinition
from pydantic_ai.toolsets.abstract import AbstractToolset, ToolsetTool
from pydantic_core import SchemaValidator, core_schema

from perdure.entry import Json, ToolCall, ToolResult
from perdure.loop import Allowed, CallWaits, LoopContext, Refused, ToolStarted, Waits
from perdure.loops.bridge import Bridge
from perdure.loops.current import calling
from perdure.loops.permission import verdict_of
from perdure.loops.tool import ToolContext, definition_of, parse_arguments


class Rest(Exception):
    """Ends a run whose calls wait for approvals."""


@dataclass
class Batch:
    """The calls of the message that was stored last: what became of each, by its id.

    Results of tools around the run are kept as they came; the agent is given their text.
    """

    calls: dict[str, ToolCall] = field(default_factory=dict)
    verdicts: dict[str, Allowed | Refused | Waits] = field(default_factory=dict)
    results: dict[str, ToolResult] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)

    def begin(self, calls: Mapping[str, ToolCall]) -> None:
        """The calls of a message that is stored now."""
        self.calls = dict(calls)
        self.verdicts, self.results, self.ended = {}, {}, set()


@dataclass(kw_only=True)
class Gate(AbstractCapability[Any]):
    """Asks for permission, and says when a tool starts."""

    context: LoopContext
    bridge: Bridge
    batch: Batch
    id: str | None = "perdure_gate"

    async def before_tool_validate(
        self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: ToolDefinition, args: Any
    ) -> Any:
        """Asks whether the call may start; its arguments may be others then."""
        known = self.batch.calls.get(call.tool_call_id)
        if known is None:
            return args
        verdict = self.batch.verdicts.get(known.call_id)
        if verdict is None:
            verdict = self.batch.verdicts[known.call_id] = await verdict_of(self.context, known)
        changed = getattr(verdict, "arguments", None)
        is_changed = changed is not None and changed != parse_arguments(args)
        return changed if is_changed and isinstance(changed, dict) else args

    async def wrap_tool_execute(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: Any,
        handler: Any,
    ) -> Any:
        """Starts the tool of a stored call that may, or says why it does not."""
        known = self.batch.calls.get(call.tool_call_id)
        if known is None:
            return await handler(args)
        match self.batch.verdicts.get(known.call_id):
            case Refused(reason=reason):
                raise ToolFailed(f"refused: {reason}")
            case Waits() if not ctx.tool_call_approved:
                raise ApprovalRequired
        await self.bridge.say(ToolStarted(known.call_id))
        with calling(tool_context(self.context, self.bridge, known.call_id)):
            return await handler(args)

    async def handle_deferred_tool_calls(
        self, ctx: RunContext[Any], *, requests: DeferredToolRequests
    ) -> DeferredToolResults | None:
        """All other calls have ended: leaves those that wait to whoever approves."""
        if requests.calls:
            told = "calls that are run outside the agent are not supported: nobody runs them"
            return DeferredToolResults(
                calls={call.tool_call_id: ToolFailed(told) for call in requests.calls}
            )
        for call in requests.approvals:
            known = self.batch.calls[call.tool_call_id]
            verdict = self.batch.verdicts.get(known.call_id)
            reason = verdict.reason if isinstance(verdict, Waits) else None
            changed = getattr(verdict, "arguments", None)
            is_changed = changed is not None and changed != known.arguments
            await self.bridge.say(CallWaits(known.call_id, reason, changed if is_changed else None))
        raise Rest


class AroundToolset(AbstractToolset[Any]):
    """The tools around the run, for an agent that has others of its own."""

    def __init__(self, context: LoopContext, bridge: Bridge, batch: Batch) -> None:
        self._context = context
        self._bridge = bridge
        self._batch = batch
        self._definitions: list[ToolDefinition] = []

    @property
    def id(self) -> str | None:
        """The toolset's name."""
        return "perdure"

    async def load(self, own: frozenset[str] = frozenset()) -> None:
        """Asks what tools there are; those with a name of the agent's own are left out."""
        specs = await self._context.tools()
        self._definitions = [definition_of(spec) for spec in specs if spec.name not in own]

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """The tools."""
        any_arguments = SchemaValidator(core_schema.dict_schema())
        return {
            each.name: ToolsetTool(
                toolset=self, tool_def=each, max_retries=0, args_validator=any_arguments
            )
            for each in self._definitions
        }

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Runs one where it is."""
        known = self._batch.calls[ctx.tool_call_id or ""]
        arguments: Json = tool_args
        result = await self._context.call_tool(known, arguments, shows(self._bridge, known.call_id))
        self._batch.results[known.call_id] = result
        if result.is_error:
            raise ToolFailed(result.text)
        from perdure.loops.model_messages import content_of

        return content_of(result)


def tool_context(context: LoopContext, bridge: Bridge, call_id: str) -> ToolContext:
    """What the tool of a call may know of it."""
    return ToolContext(
        context.session_id,
        context.turn_id,
        call_id,
        context.idempotency_key(call_id),
        shows(bridge, call_id),
    )


def shows(bridge: Bridge, call_id: str) -> Any:
    """A function that streams the output of a call."""
    return partial(bridge.show, call_id)
