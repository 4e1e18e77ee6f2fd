"""What loops share about calls that somebody may have a say in."""

from __future__ import annotations

from collections.abc import Iterable

from perdure.entry import Message, Text, ToolCall, ToolResult
from perdure.loop import LoopContext, Verdict


async def verdict_of(context: LoopContext, call: ToolCall) -> Verdict:
    """The answer that a call which waited has now, or whether a new one may start."""
    answer = context.answers.get(call.call_id)
    return answer if answer is not None else await context.permit(call)


def answered_calls(context: LoopContext, messages: Iterable[Message]) -> list[ToolCall]:
    """The calls at the end of the conversation that waited; a run begins with their results."""
    if not context.answers:
        return []
    calls = (call for message in messages for call in message.tool_calls)
    return list({call.call_id: call for call in calls if call.call_id in context.answers}.values())


def refused_result(call: ToolCall, reason: str) -> ToolResult:
    """The result of a call that was not made, for the model to read."""
    told = Text(f"refused: {reason}")
    return ToolResult(call.call_id, (told,), name=call.name, is_error=True)
