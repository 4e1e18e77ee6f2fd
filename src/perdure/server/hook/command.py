"""A command of a `hooks.json` at an event.

It runs in the workspace folder, in a process group of its own, with the server's environment but
for the server's secrets, and with what `environment_of` adds. Whatever it started and left in its
group ends with it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Hashable, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from perdure.entry import Json
from perdure.errors import AppendRejectedError
from perdure.hook import (
    HookEvent,
    HookOutcome,
    OnFailure,
    PreToolUse,
    SessionEnd,
    UserPromptSubmit,
)
from perdure.loops.shell import SECRETS
from perdure.server.hook.answer import read_answer
from perdure.server.hook.handler import Fired, Ran
from perdure.server.hook.matcher import Matcher
from perdure.server.hook.process import MAX_OUTPUT_BYTES, HookProcess
from perdure.server.hook.rule import Rule
from perdure.server.hook.tool_name import inward

DEFAULT_TIMEOUT_S = 600.0
PROMPT_TIMEOUT_S = 30.0
END_TIMEOUT_S = 10.0
MAX_END_TIMEOUT_S = 60.0
MAX_TIMEOUT_S = 3600.0


class Command(Struct, frozen=True, kw_only=True):
    """A command handler. With `args` it is a program, run as it is; else text for a shell.

    `place` is where it stands: the file and the path in it. `root` is the folder that
    `CLAUDE_PLUGIN_ROOT` names. `rule` narrows it to some calls of a tool that its matcher meets.
    """

    event_name: str
    matcher: Matcher
    command: str
    args: tuple[str, ...] | None = None
    shell: str = "/bin/sh"
    timeout_s: float | None = None
    on_failure: OnFailure = "continue"
    place: str = ""
    root: Path = Path()
    rule: Rule | None = None
    is_aside: bool = False

    def concerns(self, event: HookEvent, subjects: Sequence[str] | None, folder: Path) -> bool:
        """Whether its matcher meets the event's subjects, and its rule the call."""
        if not self.matcher.matches(subjects):
            return False
        return self.rule is None or self.rule.meets(event, folder)

    reads_files = True

    @property
    def label(self) -> str:
        """The command, and where it stands."""
        command = self.command if self.args is None else " ".join((self.command, *self.args))
        return f"{command[:500]} ({self.place})"

    @property
    def key(self) -> Hashable:
        """What it runs: the same command from the same folder is the same handler."""
        return (self.event_name, self.command, self.args, self.shell, self.root)

    def time_limit_s(self) -> float:
        """Its own limit, else that of its event."""
        if self.event_name == SessionEnd.__name__:
            return min(self.timeout_s or END_TIMEOUT_S, MAX_END_TIMEOUT_S)
        is_prompt = self.event_name == UserPromptSubmit.__name__
        default = PROMPT_TIMEOUT_S if is_prompt else DEFAULT_TIMEOUT_S
        return min(self.timeout_s or default, MAX_TIMEOUT_S)

    def told(self, fired: Fired) -> Json:
        """What it gets on standard input."""
        return fired.wire

    async def run(self, fired: Fired) -> Ran:
        """Runs it to its end, or to its limits."""
        environment = environment_of(fired.event, fired.folder, self.root)
        process = HookProcess()
        limit_s = self.time_limit_s()
        try:
            try:
                process.start_with(
                    fired.data, self._program(environment), cwd=fired.folder, env=environment
                )
            except AppendRejectedError as error:
                return Ran(failure=f"it could not be told of the event: {error}")
            except (OSError, ValueError) as error:
                return Ran(failure=f"it could not be started: {error}")
            await process.wait_for_end(limit_s)
            is_late = not process.is_over
        finally:
            await process.end()
        output: dict[str, Json] = {"stdout": process.output, "stderr": process.error}
        if process.overflowed:
            return Ran(output=output, failure=f"ended: it wrote more than {MAX_OUTPUT_BYTES} bytes")
        if is_late:
            return Ran(output=output, failure=f"ended: it ran longer than {limit_s:g} seconds")
        if process.status is None:
            return Ran(output=output, failure="lost: what watched over it was killed")
        answer = read_answer(fired.event, process.status, process.output, process.error)
        return Ran(
            outcome=_inward(answer.outcome, fired),
            output=output,
            exit=process.status,
            failure=answer.failure,
            unsupported=answer.unsupported,
        )

    def _program(self, environment: dict[str, str]) -> list[str]:
        if self.args is None:
            return [self.shell, "-c", self.command]
        command, *args = (
            each.replace("${CLAUDE_PROJECT_DIR}", environment["CLAUDE_PROJECT_DIR"]).replace(
                "${CLAUDE_PLUGIN_ROOT}", environment["CLAUDE_PLUGIN_ROOT"]
            )
            for each in (self.command, *self.args)
        )
        found = shutil.which(command, path=environment.get("PATH")) if "/" not in command else None
        return [found or command, *args]


def _inward(outcome: HookOutcome, fired: Fired) -> HookOutcome:
    event = fired.event
    if outcome.changed_input is None or not isinstance(event, PreToolUse):
        return outcome
    changed = inward(event.tool_name, outcome.changed_input, event.tool_input, fired.folder)
    return replace(outcome, changed_input=changed)


def environment_of(event: HookEvent, folder: Path, root: Path) -> dict[str, str]:
    """The environment of a hook's command."""
    base = {name: value for name, value in os.environ.items() if name not in SECRETS}
    turn = {} if event.turn_id is None else {"PERDURE_TURN_ID": event.turn_id}
    return {
        **base,
        "CLAUDE_PROJECT_DIR": str(folder),
        "CLAUDE_PLUGIN_ROOT": str(root),
        "PERDURE_SESSION_ID": event.session_id,
        "PERDURE_HOOK_EVENT": event.name,
        **turn,
    }
