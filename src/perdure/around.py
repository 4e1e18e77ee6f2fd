"""What stands around one run: its tools, whoever permits its calls, what joins it.

`Around` is what a run asks of its surroundings. In the library nothing stands around a run, and
that is `ALONE`; a server has tools, hooks and people there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from perdure.codec import StoredEntry
from perdure.entry import Json, Message, Text, ToolCall, ToolResult
from perdure.fact import LoopRemembered
from perdure.loop import Allowed, Answer, Refused, ToolSpec, Verdict


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
