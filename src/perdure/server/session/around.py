"""What stands around one turn's runs, as a loop sees it: the surroundings, people, the queue."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from msgspec.structs import replace

from perdure.entry import Json, Message, ToolCall, ToolResult, text
from perdure.errors import RuntimeLostError
from perdure.fact import RuntimeLost
from perdure.loop import Allowed, Answer, Refused, ToolSpec, Verdict, Waits
from perdure.server.session.surroundings import Scope, Surroundings

_T = TypeVar("_T")

Say = Callable[[Sequence[str]], None]


class Host(Protocol):
    """The actor, as its turn's surroundings need it."""

    async def join(
        self, turn_id: str, said: Sequence[Message], *, steered: bool
    ) -> Sequence[Message]:
        """Stores what was said at the leaf, and what was steered into the turn if that counts."""
        ...

    async def ask(self, turn_id: str, call: ToolCall, reason: str | None) -> Answer:
        """Waits for a person's answer, in mid-run."""
        ...

    def remembered(self, key: str) -> Json:
        """What a loop remembered."""


class TurnAround:
    """One turn's `Around`: it keeps what hooks said until the loop asks what joined."""

    def __init__(
        self, host: Host, make_scope: Callable[[Say], Scope], surroundings: Surroundings
    ) -> None:
        self.scope = make_scope(self.say)
        self._turn_id = self.scope.turn_id or ""
        self._host = host
        self._surroundings = surroundings
        self._toolbox = surroundings.toolbox(self.scope)
        self._said: list[Message] = []
        self._stored: Sequence[Message] = ()
        self._answers: dict[str, Answer] = {}
        self._is_lost = False

    def know(self, answers: Mapping[str, Answer], said: Sequence[Message]) -> None:
        """Keeps what people answered of calls and what was said of them until they have results."""
        self._answers.update(answers)
        self._stored = said

    def say(self, texts: Sequence[str]) -> None:
        """Keeps what was said, for whoever asks next what joined."""
        self._said += [text(each, meta=True) for each in texts if each]

    async def tools(self) -> Sequence[ToolSpec]:
        """The tools of the surroundings."""
        return await self._lossy(self._toolbox.tools)

    async def call_tool(
        self, call: ToolCall, arguments: Json, key: str, show: Callable[[str], object]
    ) -> ToolResult:
        """Runs one of them; a runtime that is lost is a fact before anybody else hears of it."""
        return await self._lossy(lambda: self._toolbox.call(call, arguments, key=key, show=show))

    async def _lossy(self, step: Callable[[], Awaitable[_T]]) -> _T:
        try:
            return await step()
        except RuntimeLostError as error:
            if not self._is_lost:
                self._is_lost = True
                await self.scope.note([RuntimeLost(runtime_id=error.runtime_id, cause=error.cause)])
            raise

    async def permit(self, call: ToolCall) -> Verdict:
        """Whether the call may start."""
        verdict = await self._surroundings.permit(self.scope, call)
        if not isinstance(verdict, Waits):
            self._answers[call.call_id] = verdict
        return verdict

    async def ask(self, call: ToolCall, reason: str | None) -> Answer:
        """Waits for a person's answer."""
        answer = await self._host.ask(self._turn_id, call, reason)
        self._answers[call.call_id] = answer
        return answer

    async def called(self, call: ToolCall, result: ToolResult, key: str) -> None:
        """The result of a call is stored; what is said of it joins at the next boundary.

        The surroundings are told of what ran, with the arguments that it ran with.
        """
        await self._toolbox.confirm(key)
        match self._answers.pop(call.call_id, None):
            case Refused():
                return
            case Allowed(arguments=arguments):
                call = replace(call, arguments=arguments)
        await self._surroundings.called(self.scope, call, result)

    async def joined(self) -> Sequence[Message]:
        """What hooks said and what was steered into the turn since then, stored."""
        joined = await self._host.join(self._turn_id, self.take_said(), steered=True)
        stored, self._stored = self._stored, ()
        return [*stored, *joined]

    async def flush(self) -> None:
        """Stores what hooks said, where no loop asks for it."""
        await self._host.join(self._turn_id, self.take_said(), steered=False)

    def take_said(self) -> Sequence[Message]:
        """What hooks said since then; whoever takes it stores it."""
        said, self._said = self._said, []
        return said

    def remembered(self, key: str) -> Json:
        """What a loop remembered."""
        return self._host.remembered(key)
