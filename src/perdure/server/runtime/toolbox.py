"""A runtime's tools as one turn uses them."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.entry import Json, ToolCall, ToolResult
from perdure.errors import RuntimeLostError
from perdure.loop import ToolSpec
from perdure.runtimes.contract import CallOrigin, Runtime, Show
from perdure.server.runtime.slot import Slot


class Toolbox:
    """The tools of one runtime for one turn of one session.

    It holds nothing of the runtime while no call is in flight. The turn keeps to the life that it
    met first: once that is lost, everything raises `RuntimeLostError`, and the next turn, with a
    toolbox of its own, meets the next one. One that was stopped because it was idle is not lost.
    """

    def __init__(self, slot: Slot, session_id: str, turn_id: str) -> None:
        self._slot = slot
        self._session_id = session_id
        self._turn_id = turn_id
        self._runtime_id: str | None = None

    @property
    def runtime_id(self) -> str | None:
        """The life that the turn uses; None before it used one."""
        return self._runtime_id

    async def tools(self) -> Sequence[ToolSpec]:
        """The tools that there are now.

        Raises:
            RuntimeLostError: the runtime is lost, or cannot be had.

        """
        async with self._slot.using(self._session_id) as runtime:
            self._meet(runtime)
            return await runtime.tools()

    async def call(self, call: ToolCall, arguments: Json, *, key: str, show: Show) -> ToolResult:
        """Runs a tool; `key` is the call's idempotency key. Cancelling ends the tool.

        Raises:
            RuntimeLostError: the runtime was lost; what the call did is not known.

        """
        async with self._slot.using(self._session_id) as runtime:
            self._meet(runtime)
            origin = CallOrigin(self._session_id, self._turn_id, key)
            return await runtime.call(call, arguments, origin, show)

    async def confirm(self, key: str) -> None:
        """Says that a result is stored; a result that is not confirmed can come late once more."""
        runtime = self._slot.current
        if runtime is not None and runtime.runtime_id == self._runtime_id:
            await runtime.confirm(key)

    def _meet(self, runtime: Runtime) -> None:
        known = self._runtime_id
        if known is not None and known != runtime.runtime_id:
            cause = self._slot.lost_cause(known)
            if cause is not None:
                raise RuntimeLostError(known, cause)
        self._runtime_id = runtime.runtime_id
