"""Surroundings in which some calls wait for a person."""

from __future__ import annotations

from perdure.entry import ToolCall
from perdure.loop import Allowed, Verdict, Waits
from perdure.server.session.surroundings import Nothing, Scope


class Careful(Nothing):
    """Calls of tools whose names begin with "careful" wait for a person."""

    def __init__(self) -> None:
        self.told: list[list[str]] = []

    async def permit(self, scope: Scope, call: ToolCall, /) -> Verdict:
        if call.name.startswith("careful"):
            return Waits(f"{call.name} costs money")
        return Allowed(call.arguments)

    async def waits(self, scope: Scope, calls: object, /) -> None:
        assert isinstance(calls, list)
        self.told.append([call.name for call in calls])
