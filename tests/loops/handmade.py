"""A hand-made LoopContext, and a driver that takes a loop's events as they come."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from perdure.around import Alone
from perdure.entry import Json, Message, ToolCall, ToolResult, text
from perdure.loop import Answer, Loop, LoopEvent, MessageEnded, Purpose, ToolEnded


@dataclass
class Context(Alone):
    """One run over a conversation that grows as the run goes on; nothing stands around it."""

    input: Sequence[Message] = ()
    before: Sequence[Message] = ()
    session_id: str = "s-1"
    turn_id: str = "turn-1"
    purpose: Purpose = "turn"
    added: list[Message] = field(default_factory=list)
    answers: Mapping[str, Answer] = field(default_factory=dict)

    async def messages(self) -> Sequence[Message]:
        return [*self.before, *self.input]

    def idempotency_key(self, call_id: str) -> str:
        return f"{self.session_id}:{self.turn_id}:{call_id}"

    async def call_tool(  # type: ignore[override] # a loop's side of it has no key
        self, call: ToolCall, arguments: Json, show: Callable[[str], object]
    ) -> ToolResult:
        return await super().call_tool(call, arguments, "", show)

    async def ask(self, call: ToolCall, reason: str | None = None) -> Answer:
        return await super().ask(call, reason)

    def take(self, event: LoopEvent) -> None:
        """Stores what an event ends, as a run would."""
        if isinstance(event, MessageEnded):
            self.added.append(Message("assistant", event.parts, provider=event.provider))
        elif isinstance(event, ToolEnded):
            self.added.append(Message("tool", (event.result,)))

    @property
    def conversation(self) -> list[Message]:
        """Everything so far, results in call order."""
        return [*self.before, *self.input, *self.added]


def ask(content: str, before: Sequence[Message] = (), purpose: Purpose = "turn") -> Context:
    """The context of a run that was given one user message."""
    return Context(input=(text(content),), before=before, purpose=purpose)


async def collect(loop: Loop, context: Context) -> list[LoopEvent]:
    """Runs a loop to its end."""
    events: list[LoopEvent] = []
    async with aclosing(loop(context)) as running:
        async for event in running:
            context.take(event)
            events.append(event)
    return events
