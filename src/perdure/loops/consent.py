"""Whether a command-line agent may make a call that it asks about: hooks first, then a person."""

from __future__ import annotations

from perdure.encoding import encode
from perdure.entry import Json, ToolCall
from perdure.loop import Allowed, Answer, LoopContext, Refused, Waits


async def consent(
    context: LoopContext,
    call: ToolCall,
    reason: str | None,
    *,
    asks_people: bool,
    can_change: bool,
) -> Answer:
    """The answer to a call that is stored and has not started.

    Hooks may refuse it. What they let pass is asked of a person, unless `asks_people` is false.
    Where the protocol has no place for other arguments (`can_change` is false), an answer with
    other arguments is a refusal that says so: the call would run with its own.
    """
    verdict = await context.permit(call)
    match verdict:
        case Refused():
            return verdict
        case Waits(reason=why, arguments=changed):
            arguments = call.arguments if changed is None else changed
            answer = await _ask(context, call, why or reason, arguments, can_change=can_change)
        case Allowed(arguments=arguments):
            if asks_people:
                answer = await _ask(context, call, reason, arguments, can_change=can_change)
            else:
                answer = verdict
    return answer if can_change else _unchanged(answer, call.arguments)


async def _ask(
    context: LoopContext, call: ToolCall, reason: str | None, arguments: Json, *, can_change: bool
) -> Answer:
    if arguments == call.arguments:
        return await context.ask(call, reason)
    if not can_change:
        return Allowed(arguments)
    asked = ToolCall(call.call_id, call.name, arguments, provider=call.provider)
    return await context.ask(asked, reason)


def _unchanged(answer: Answer, arguments: Json) -> Answer:
    if isinstance(answer, Allowed) and answer.arguments != arguments:
        wanted = encode(answer.arguments).decode()
        return Refused(
            "approved with other arguments, which this agent's protocol cannot pass on, so it did "
            f"not run. Make the call anew with: {wanted}"
        )
    return answer
