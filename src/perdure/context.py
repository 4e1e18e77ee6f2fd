"""What one run is given: its messages, and what stands around it.

`Around` is what a run asks of its surroundings. In the library nothing stands around a run, and
that is `ALONE`; a server has tools, hooks and people there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from perdure import clock
from perdure.codec import StoredEntry
from perdure.entry import Ending, Json, Message, Text, ToolCall, ToolResult
from perdure.errors import LoopError
from perdure.fact import LoopRemembered, ToolDispatched
from perdure.loop import Allowed, Answer, Purpose, Refused, ToolSpec, Verdict


class Around(Protocol):
    """The surroundings of one run; see `LoopContext` for what each promises to a loop."""

    async def tools(self) -> Sequence[ToolSpec]:
        """The tools around the run."""
        ...

    async def call_tool(
        self, call: ToolCall, arguments: Json, key: str, show: Callable[[str], object]
    ) -> ToolResult:
        """Runs one of them; `key` is the call's idempotency key."""
        ...

    async def permit(self, call: ToolCall) -> Verdict:
        """Whether a call may start."""
        ...

    async def ask(self, call: ToolCall, reason: str | None) -> Answer:
        """Waits for a person's answer."""
        ...

    async def called(self, call: ToolCall, result: ToolResult, key: str) -> None:
        """The result of a call is stored; `key` is the call's idempotency key."""

    async def joined(self) -> Sequence[Message]:
        """What joined the run since this was asked last, stored."""
        ...

    def remembered(self, key: str) -> Json:
        """The newest value of this key."""


class Alone:
    """Nothing stands around the run: no tools, nobody to ask, every call may start."""

    async def tools(self) -> Sequence[ToolSpec]:
        """None."""
        return ()

    async def call_tool(
        self, call: ToolCall, arguments: Json, key: str, show: Callable[[str], object]
    ) -> ToolResult:
        """An error that the model can read."""
        told = Text(f"there is no tool {call.name!r}")
        return ToolResult(call.call_id, (told,), name=call.name, is_error=True)

    async def permit(self, call: ToolCall) -> Verdict:
        """Yes."""
        return Allowed(call.arguments)

    async def ask(self, call: ToolCall, reason: str | None) -> Answer:
        """No."""
        return Refused("nobody can be asked: this agent runs without a server")

    async def called(self, call: ToolCall, result: ToolResult, key: str) -> None:
        """Nobody wants to know."""

    async def joined(self) -> Sequence[Message]:
        """None."""
        return ()

    def remembered(self, key: str) -> Json:
        """Nothing."""
        return None


ALONE: Around = Alone()


class Remembering(Alone):
    """What stands around a run of the library: what its loop remembered in the log."""

    def __init__(self, entries: Sequence[StoredEntry]) -> None:
        self._entries = entries

    def remembered(self, key: str) -> Json:
        """The newest value of this key; O(the log)."""
        for stored in reversed(self._entries):
            if stored.type == "loop_remembered":
                view = stored.view
                if isinstance(view, LoopRemembered) and view.key == key:
                    return view.value
        return None


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
