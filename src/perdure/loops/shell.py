"""A loop without a model: a message is a command, and its output is the answer.

Each run takes the text of its last user message and runs it in the workspace folder with `sh -c`.
The command has a process group of its own, no input, and in its environment the session, the turn
and the call's idempotency key. When the command ends, when the run is stopped, and when this
process dies, nothing of the group is left running. POSIX only.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path

from perdure.clock import monotonic, new_id
from perdure.codec import clean_text
from perdure.entry import Json, Message, Text, ToolCall, ToolResult
from perdure.errors import ConfigurationError, LoopError
from perdure.loop import (
    Allowed,
    CallWaits,
    LoopContext,
    LoopEvent,
    MessageDelta,
    MessageEnded,
    MessageStarted,
    Refused,
    ToolDelta,
    ToolEnded,
    ToolStarted,
    Waits,
)
from perdure.loops.permission import answered_calls, refused_result, verdict_of
from perdure.loops.process import Process

TOOL = "shell"
SECRETS = ("PERDURE_TOKEN",)
"""Variables of the server that a command is not given."""

_PACE_S = 1 / 30
_CUT_CHARS = 200


class Shell:
    """Makes shell loops over one workspace folder; options are the same for every command.

    The whole output is stored; a model that reads the conversation later is shown `limit_chars` of
    it. A command that runs longer than `timeout_s` or writes more than `max_output_bytes` is ended
    and its result says so. Ending is SIGTERM, and SIGKILL after `grace_s`.
    """

    takes_commands = True

    def __init__(
        self,
        workspace: str | os.PathLike[str],
        *,
        timeout_s: float | None = None,
        limit_chars: int | None = 50_000,
        max_output_bytes: int = 64 << 20,
        grace_s: float = 2.0,
        shell: str = "/bin/sh",
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.workspace = Path(workspace)
        self.timeout_s = timeout_s
        self.limit_chars = limit_chars
        self.max_output_bytes = max_output_bytes
        self.grace_s = grace_s
        self.shell = shell
        self.env = env

    def __call__(self) -> ShellLoop:
        """The loop of one run.

        Raises:
            ConfigurationError: the workspace is not a folder. Nothing is stored.

        """
        if not self.workspace.is_dir():
            what = "is not a folder" if self.workspace.exists() else "does not exist"
            raise ConfigurationError(
                f"the workspace {str(self.workspace)!r} {what}: create it, or name another"
            )
        return ShellLoop(self)


class ShellLoop:
    """One run of a command."""

    def __init__(self, options: Shell) -> None:
        self._options = options

    async def __call__(self, context: LoopContext) -> AsyncGenerator[LoopEvent, None]:
        """Runs the last user message, or, for a summary, answers with what was run.

        A run that goes on, for a hook's reason say, after that command gave its result runs it no
        second time: there is nothing for it to do.

        Raises:
            LoopError: there is no text to run.

        """
        if context.purpose == "summary":
            summary = digest(await context.messages())
            yield MessageStarted()
            yield MessageDelta(summary)
            yield MessageEnded((Text(summary),))
            return
        if context.answers:
            (call,) = answered_calls(context, await context.messages())
        elif _is_answered(await context.messages()):
            return
        else:
            call = ToolCall(new_id(), TOOL, {"command": await _last_command(context)})
            yield MessageStarted()
            yield MessageEnded((call,))
        match await verdict_of(context, call):
            case Waits(reason=reason, arguments=changed):
                yield CallWaits(call.call_id, reason, changed)
            case Refused(reason=reason):
                yield ToolEnded(refused_result(call, reason))
            case Allowed(arguments=arguments):
                command = arguments.get("command") if isinstance(arguments, dict) else None
                if not isinstance(command, str):
                    raise LoopError(f"the command to run is no text: {arguments!r}")
                async with aclosing(self._run(context, call, command)) as running:
                    async for event in running:
                        yield event

    async def _run(
        self, context: LoopContext, call: ToolCall, command: str
    ) -> AsyncGenerator[LoopEvent, None]:
        yield ToolStarted(call.call_id)
        options = self._options
        process = Process(max_output_bytes=options.max_output_bytes, grace_s=options.grace_s)
        started = monotonic()
        timer: asyncio.TimerHandle | None = None
        problem: str | None = None
        try:
            try:
                process.start(
                    [options.shell, "-c", command],
                    cwd=options.workspace,
                    env=self._environment(context, call.call_id),
                )
            except (OSError, ValueError) as error:
                problem = f"could not start: {error}"
            else:
                if options.timeout_s is not None:
                    loop = asyncio.get_running_loop()
                    timer = loop.call_later(options.timeout_s, process.expire)
                while fresh := await process.wait_for_output():
                    yield ToolDelta(call.call_id, fresh)
                    await process.wait_for_end(at_most_s=_PACE_S)
        finally:
            if timer is not None:
                timer.cancel()
            await process.end()
        yield ToolEnded(self._result(call, process, problem, monotonic() - started))

    def _environment(self, context: LoopContext, call_id: str) -> dict[str, str]:
        base = os.environ if self._options.env is None else self._options.env
        return {
            **{name: value for name, value in base.items() if name not in SECRETS},
            "PERDURE_SESSION_ID": context.session_id,
            "PERDURE_TURN_ID": context.turn_id,
            "PERDURE_IDEMPOTENCY_KEY": context.idempotency_key(call_id),
        }

    def _result(
        self, call: ToolCall, process: Process, problem: str | None, seconds: float
    ) -> ToolResult:
        """The output exactly as it came, and after it, in a part of its own, what went wrong."""
        output, status = process.output, process.status
        provider: dict[str, Json] = {"exit": status, "seconds": round(seconds, 3)}
        if problem is None and process.timed_out:
            provider["timed_out"] = True
            problem = f"ended: it ran longer than {self._options.timeout_s} seconds"
        elif problem is None and process.overflowed:
            problem = f"ended: it wrote more than {self._options.max_output_bytes} bytes"
        elif problem is None and status is None:
            problem = "lost: the process that watched over it was killed"
        elif problem is None and status:
            problem = f"exit status {status}"
        parts = [Text(output)]
        if problem is not None:
            parts.append(
                Text(f"{'' if output.endswith(chr(10)) or not output else chr(10)}[{problem}]")
            )
        return ToolResult(
            call.call_id,
            tuple(parts),
            name=TOOL,
            is_error=problem is not None,
            limit_chars=self._options.limit_chars,
            provider=provider,
        )


async def _last_command(context: LoopContext) -> str:
    command = _last_user_text(context.input)
    if command is None:
        command = _last_user_text(await context.messages())
    if command is None:
        raise LoopError("there is no message that could be run as a command; send one")
    if not command.strip():
        raise LoopError("the message has no text that could be run as a command; send another")
    return clean_text(command)


def _last_user_text(messages: Sequence[Message]) -> str | None:
    for message in reversed(messages):
        if message.role == "user" and not message.meta:
            return message.text
    return None


def _is_answered(messages: Sequence[Message]) -> bool:
    """Whether the last command of a person has its result, and was not cut off."""
    for message in reversed(messages):
        if message.role == "user" and not message.meta:
            return False
        if message.tool_results:
            return not any(result.interrupted for result in message.tool_results)
    return False


def digest(messages: Sequence[Message]) -> str:
    """The commands of a conversation and how each ended, one a line; the same for the same input.

    Lines of an earlier digest, which stands in the conversation as a `meta` message, are kept.
    """
    results = {result.call_id: result for message in messages for result in message.tool_results}
    lines: list[str] = []
    for message in messages:
        if message.role == "user" and message.meta:
            lines += [line for line in message.text.split("\n") if line.startswith("- ")]
        for call in message.tool_calls:
            lines.append(f"- {_cut(_command_of(call))} → {_outcome(results.get(call.call_id))}")
    return "\n".join(["Commands that were run:", *lines]) if lines else "No command was run."


def _command_of(call: ToolCall) -> str:
    arguments = call.arguments
    command = arguments.get("command") if isinstance(arguments, dict) else None
    return command if call.name == TOOL and isinstance(command, str) else f"{call.name}(…)"


def _outcome(result: ToolResult | None) -> str:
    if result is None or result.interrupted:
        return "interrupted"
    status = result.provider.get("exit") if isinstance(result.provider, dict) else None
    outcome = f"exit {status}" if status is not None else "failed" if result.is_error else "done"
    output = next((part.text for part in result.parts if isinstance(part, Text)), "")
    last = output.strip().rpartition("\n")[2]
    return f"{outcome}: {_cut(last)}" if result.is_error and last else outcome


def _cut(line: str) -> str:
    line = " ".join(line.split())
    return line if len(line) <= _CUT_CHARS else line[: _CUT_CHARS - 1] + "…"
