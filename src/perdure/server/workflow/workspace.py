"""Where the commands of checks run: the tools of a step's runtime, or of the server's own one."""

from __future__ import annotations

from perdure.server.runtime.runtimes import LOCAL, Runtimes
from perdure.server.workflow.check import Toolbox


class Workspaces:
    """The runtimes as checks come to them."""

    def __init__(self, runtimes: Runtimes) -> None:
        self._runtimes = runtimes

    def toolbox(
        self, name: str | None, *, session_id: str, turn_id: str, owner: str | None
    ) -> Toolbox:
        """The tools of this runtime, of the sessions' default, or of the server's workspace."""
        found = self._runtimes.toolbox(
            name or self._runtimes.default or LOCAL,
            session_id=session_id,
            turn_id=turn_id,
            owner=owner,
        )
        assert found is not None  # a runtime was named
        return found
