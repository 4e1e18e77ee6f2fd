"""The Runtime contract: anything that lists tools and runs them.

A runtime has a *life*: from its start until it is closed or lost. `runtime_id` names one life; what
a runtime remembers (the keys it has seen) it remembers for that life. A runtime that is lost raises
`RuntimeLostError` from each call in flight, once, and from everything asked of it later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct

from perdure.entry import Json, ToolCall, ToolResult
from perdure.loop import ToolSpec

Show = Callable[[str], object]
"""Takes more of a running tool's output; provisional until its result. On the event loop only."""

SEEN_BEFORE = "seen_before"
"""The member of a result's `provider` that says: this is the first result, handed out again."""


class CallOrigin(Struct, frozen=True):
    """Whose call it is. `key` is its idempotency key: the same whenever the call is made again."""

    session_id: str
    turn_id: str
    key: str


class Runtime(Protocol):
    """One life of a runtime. Its methods may be called by many tasks at once."""

    @property
    def runtime_id(self) -> str:
        """The id of this life; another life of the same runtime has another."""

    async def tools(self) -> Sequence[ToolSpec]:
        """The tools that it has now, each name once.

        Raises:
            RuntimeLostError: it is lost, or is being closed.

        """
        ...

    async def call(
        self, call: ToolCall, arguments: Json, origin: CallOrigin, show: Show
    ) -> ToolResult:
        """Runs a tool, and gives its whole result; `show` is told its output as it comes.

        Whatever goes wrong in the tool is a result with `is_error`. A key that was seen before runs
        nothing: its first result is handed out, and `provider` says `seen_before`. Cancelling ends
        the tool: when this raises CancelledError, nothing of a local tool runs any more, and a
        runtime elsewhere has been told.

        Raises:
            RuntimeLostError: the runtime went away; what the tool did is not known.

        """
        ...

    async def confirm(self, key: str) -> None:
        """Says that the result of this key is stored, so that it need not be handed over again.

        Raises nothing: where the runtime is lost meanwhile, the result comes late once more.
        """
        ...

    async def until_lost(self) -> str:
        """Waits until the runtime is lost, or closed, and says why."""
        ...

    async def close(self) -> None:
        """Ends its calls and whatever it started; afterwards it is lost. Again: does nothing."""
        ...
