"""What one run is given: its messages, the keys of its calls, and what stands around it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType

from perdure import clock
from perdure.around import ALONE, Around
from perdure.entry import Ending, Json, Message, ToolCall, ToolResult
from perdure.errors import LoopError
from perdure.fact import ToolDispatched
from perdure.loop import Answer, Purpose, ToolSpec, Verdict


def call_key(turn_id: str, message_id: str, call_id: str) -> str:
    """The idempotency key of a call: of the turn, and of the message that made it."""
    return f"{turn_id}:{message_id}:{call_id}"


class RunContext:
    """One run's `LoopContext`.

    `ending` is how a message that is cut off by cancellation ends; the owner of the run may set it
    before it cancels.
    """

    def __init__(
        self,
        session_id: str,
        *,
        turn_id: str | None = None,
        input: Sequence[Message] = (),
        messages: Callable[[], Awaitable[Sequence[Message]]],
        purpose: Purpose = "turn",
        around: Around = ALONE,
        answers: Mapping[str, Answer] = MappingProxyType({}),
    ) -> None:
        self.session_id = session_id
        self.turn_id = turn_id or clock.new_id()
        self.purpose: Purpose = purpose
        self.input = tuple(input)
        self.ending: Ending = "stopped"
        self.around = around
        self._answers = dict(answers)
        self._messages = messages
        self._keys: dict[str, str] = {}

    @property
    def answers(self) -> Mapping[str, Answer]:
        """The answers to the calls at the leaf; a new call of the same id has none."""
        return MappingProxyType(self._answers)

    async def messages(self) -> Sequence[Message]:
        """The model view up to and with the input."""
        return await self._messages()

    def idempotency_key(self, call_id: str) -> str:
        """The stable key of a dispatched call; LoopError for any other."""
        try:
            return self._keys[call_id]
        except KeyError:
            raise LoopError(f"call {call_id!r} was not yielded in a message of this run") from None

    async def tools(self) -> Sequence[ToolSpec]:
        """The tools around the run; none for a summary."""
        return await self.around.tools() if self.purpose == "turn" else ()

    async def call_tool(
        self, call: ToolCall, arguments: Json, show: Callable[[str], object]
    ) -> ToolResult:
        """Runs one of the tools around the run."""
        return await self.around.call_tool(
            call, arguments, self.idempotency_key(call.call_id), show
        )

    async def permit(self, call: ToolCall) -> Verdict:
        """Whether the call may start."""
        return await self.around.permit(call)

    async def ask(self, call: ToolCall, reason: str | None = None) -> Answer:
        """Waits for a person's answer."""
        return await self.around.ask(call, reason)

    async def joined(self) -> Sequence[Message]:
        """What joined the run since this was asked last."""
        return await self.around.joined()

    def remembered(self, key: str) -> Json:
        """What was remembered last with this key."""
        return self.around.remembered(key)

    def dispatch(self, message_id: str, call: ToolCall) -> ToolDispatched:
        """The fact that makes a call of the message `message_id` durable before it starts."""
        self._answers.pop(call.call_id, None)
        return ToolDispatched(
            turn_id=self.turn_id,
            call_id=call.call_id,
            name=call.name,
            arguments=call.arguments,
            idempotency_key=self.key(message_id, call.call_id),
        )

    def key(self, message_id: str, call_id: str) -> str:
        """The idempotency key of a call of this message, known to the loop from here on."""
        key = self._keys[call_id] = call_key(self.turn_id, message_id, call_id)
        return key
