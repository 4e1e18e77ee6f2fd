"""Claude Code as a loop through its own stream of JSON, where a person may change a call.

What a run is, and how it is journaled, is in agent_loop.py; the stream itself in claude_session.py.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from perdure.loop import Loop
from perdure.loops.agent_loop import AgentLoop, AgentOptions, check_command, words_of
from perdure.loops.agents import CLAUDE_CODE
from perdure.loops.claude_session import ClaudeSession
from perdure.loops.inbox import Inbox


class ClaudeStream:
    """Makes loops over the command line `claude`; `arguments` are further ones of it.

    The options are those of `Acp`. Unlike through the Agent Client Protocol, an approval with other
    arguments reaches it: the tool runs with them.
    """

    def __init__(
        self,
        workspace: str | os.PathLike[str],
        *,
        command: Sequence[str] = ("claude",),
        arguments: Sequence[str] = (),
        env: Mapping[str, str] = MappingProxyType({}),
        asks_people: bool = True,
        start_within_s: float = 120.0,
        grace_s: float = 2.0,
        limit_chars: int | None = 50_000,
    ) -> None:
        self.workspace = Path(workspace).absolute()
        self._grace_s = grace_s
        self._options = AgentOptions(
            command=(*words_of(command), *arguments),
            workspace=self.workspace,
            env=dict(env),
            asks_people=asks_people,
            start_within_s=start_within_s,
            limit_chars=limit_chars,
            install=CLAUDE_CODE,
        )

    def __call__(self) -> Loop:
        """The loop of one run.

        Raises:
            LoopError: the command line is not installed.

        """
        check_command(self._options)
        return AgentLoop(self._options, self._make_session, lambda: None)

    def _make_session(self, inbox: Inbox) -> ClaudeSession:
        return ClaudeSession(inbox, grace_s=self._grace_s)
