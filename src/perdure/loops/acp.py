"""A command-line agent as a loop, through the Agent Client Protocol.

What a run is, and how it is journaled, is in agent_loop.py; the protocol itself in acp_session.py.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from perdure.errors import MissingExtraError
from perdure.loop import Loop
from perdure.loops.agent_loop import AgentLoop, AgentOptions, check_command, words_of
from perdure.loops.inbox import Inbox

if TYPE_CHECKING:
    from perdure.loops.acp_session import AcpSession


class Acp:
    """Makes loops over one agent: `Acp(["opencode", "acp"], "folder")`.

    The agent works in the `workspace` folder, by itself: it is offered no file system and no
    terminal of ours. `env` is added to this process's environment. `auth` is the id of the
    protocol's login method, for agents that want one named; `mode` the id of the session mode to
    set. What the agent asks permission for is asked of a person (after hooks), unless `asks_people`
    is false: then hooks alone decide. Ending is the protocol's cancel, SIGTERM after `grace_s`, and
    SIGKILL after that time once more. Of a tool's output a model that reads the conversation later
    is shown `limit_chars`.
    """

    def __init__(
        self,
        command: Sequence[str],
        workspace: str | os.PathLike[str],
        *,
        env: Mapping[str, str] = MappingProxyType({}),
        auth: str | None = None,
        mode: str | None = None,
        asks_people: bool = True,
        start_within_s: float = 120.0,
        grace_s: float = 2.0,
        limit_chars: int | None = 50_000,
        install: str | None = None,
    ) -> None:
        self.command = words_of(command)
        self.workspace = Path(workspace).absolute()
        self._auth = auth
        self._mode = mode
        self._grace_s = grace_s
        self._options = AgentOptions(
            command=self.command,
            workspace=self.workspace,
            env=dict(env),
            asks_people=asks_people,
            start_within_s=start_within_s,
            limit_chars=limit_chars,
            install=install,
        )

    def __call__(self) -> Loop:
        """The loop of one run.

        Raises:
            MissingExtraError: the protocol's library is not installed.
            LoopError: the agent's command is not.

        """
        if find_spec("acp") is None:
            raise MissingExtraError("a loop over a command-line agent", "acp")
        check_command(self._options)
        return AgentLoop(self._options, self._make_session, _import)

    def _make_session(self, inbox: Inbox) -> AcpSession:
        from perdure.loops.acp_session import AcpSession

        return AcpSession(inbox, grace_s=self._grace_s, auth=self._auth, mode=self._mode)


def _import() -> None:
    import_module("perdure.loops.acp_session")
