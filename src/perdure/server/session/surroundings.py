"""What stands around the turns of a server's sessions, and what each is asked.

An actor asks; whoever implements it (hooks, runtimes, the rules of approval) answers in bounded
time, and stores the facts of what it did through the scope's `note`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, NamedTuple, Protocol

from perdure.around import ALONE
from perdure.entry import Json, ToolCall, ToolResult
from perdure.errors import ConfigurationError
from perdure.fact import Fact
from perdure.loop import Allowed, ToolSpec, Verdict
from perdure.server.session.batch import Input

Note = Callable[[Sequence[Fact]], Awaitable[object]]
End = Callable[[str], object]


class Scope(NamedTuple):
    """Which turn something is asked for, and what can be done about it.

    `note` stores facts of the turn, and raises once it is over; `later` stores them whenever the
    session is in memory. `say` gives the model texts to
    read, as `meta` messages, before its next request. `end` ends the turn, for a reason.
    """

    session_id: str
    turn_id: str | None
    loop: str
    runtime: str | None
    owner: str | None
    note: Note
    say: Callable[[Sequence[str]], object]
    end: End
    later: Note


StartSource = Literal["startup", "resume", "fork", "compact"]
EndSource = Literal["offload", "delete", "shutdown"]


class Toolbox(Protocol):
    """The tools that a turn's runs are offered."""

    async def tools(self) -> Sequence[ToolSpec]:
        """Those that there are now.

        Raises:
            RuntimeLostError: the turn ends interrupted.

        """
        ...

    async def call(
        self, call: ToolCall, arguments: Json, *, key: str, show: Callable[[str], object]
    ) -> ToolResult:
        """Runs one; `key` is the call's idempotency key. Cancelling ends it.

        Raises:
            RuntimeLostError: the turn ends interrupted.

        """
        ...

    async def confirm(self, key: str) -> None:
        """The result of the call of this key is stored."""


class NoTools:
    """An empty toolbox."""

    async def tools(self) -> Sequence[ToolSpec]:
        """None."""
        return ()

    async def call(
        self, call: ToolCall, arguments: Json, *, key: str, show: Callable[[str], object]
    ) -> ToolResult:
        """An error that the model can read."""
        return await ALONE.call_tool(call, arguments, key, show)

    async def confirm(self, key: str) -> None:
        """Nobody wants to know."""


class Surroundings(Protocol):
    """What stands around the turns of sessions: hooks, the tools of runtimes, rules of approval.

    Each is bounded in time by whoever implements it.
    """

    @property
    def hears_starts(self) -> bool:
        """Whether anybody wants to be told of starts; else none is stored."""
        ...

    def check_runtime(self, name: str, owner: str | None, /) -> None:
        """Returns if sessions of this owner may choose this runtime.

        Raises:
            ConfigurationError: there is none of this name, or it is somebody else's.

        """

    async def started(self, scope: Scope, source: StartSource, /) -> None:
        """A session begins, or wakes up to its first turn; asked once for each, before `begin`."""

    async def begin(self, scope: Scope, given: Input, /) -> None:
        """A turn begins, from this message, which is stored.

        Raises:
            HookRefusedError: the turn ends `refused`, and its message leaves the conversation.

        """

    def toolbox(self, scope: Scope, /) -> Toolbox:
        """The tools of one turn; asked once for each, and for each time it is taken up again."""
        ...

    async def permit(self, scope: Scope, call: ToolCall, /) -> Verdict:
        """Whether a call may start."""
        ...

    async def called(self, scope: Scope, call: ToolCall, result: ToolResult, /) -> None:
        """The result of a call that was not refused is stored; it has the arguments that ran."""

    async def waits(self, scope: Scope, calls: Sequence[ToolCall], /) -> None:
        """The session waits for a person to approve these calls; the requests are stored."""

    async def finish(self, scope: Scope, said: str, again: int, /) -> str | None:
        """A run is over, with these last words; a reason to go on starts another, for that reason.

        `again` counts how often the turn went on for such a reason before.
        """
        ...

    async def compacting(self, scope: Scope, /) -> None:
        """The session is about to be compacted: by somebody, or before a turn runs (`turn_id`).

        Raises:
            HookRefusedError: it is not.

        """

    async def ended(self, scope: Scope, source: EndSource, /) -> None:
        """A session that `started` leaves memory, or is about to be deleted."""

    async def deleted(self, session_id: str, /) -> None:
        """The session is deleted: whatever is kept of it beside the store goes, too."""


class Nothing:
    """Nothing stands around turns."""

    hears_starts = False

    def check_runtime(self, name: str, owner: str | None, /) -> None:
        """Refuses every name."""
        raise ConfigurationError(f"there is no runtime {name!r}: this server has none")

    async def started(self, scope: Scope, source: StartSource, /) -> None:
        """Says nothing."""

    async def begin(self, scope: Scope, given: Input, /) -> None:
        """Says nothing."""

    def toolbox(self, scope: Scope, /) -> Toolbox:
        """Empty."""
        return NoTools()

    async def permit(self, scope: Scope, call: ToolCall, /) -> Verdict:
        """Yes."""
        return Allowed(call.arguments)

    async def called(self, scope: Scope, call: ToolCall, result: ToolResult, /) -> None:
        """Says nothing."""

    async def waits(self, scope: Scope, calls: Sequence[ToolCall], /) -> None:
        """Tells nobody."""

    async def finish(self, scope: Scope, said: str, again: int, /) -> str | None:
        """No reason to go on."""
        return None

    async def compacting(self, scope: Scope, /) -> None:
        """May be."""

    async def ended(self, scope: Scope, source: EndSource, /) -> None:
        """Tells nobody."""

    async def deleted(self, session_id: str, /) -> None:
        """Keeps nothing."""


NOTHING: Surroundings = Nothing()
