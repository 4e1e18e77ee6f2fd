"""The shell loop, on real commands."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sys
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

import pytest

from perdure.entry import File, Message, Text, ToolCall, ToolResult, text
from perdure.errors import ConfigurationError, LoopError
from perdure.loop import (
    LoopEvent,
    MessageDelta,
    MessageEnded,
    MessageStarted,
    ToolDelta,
    ToolEnded,
    ToolStarted,
)
from perdure.loops.shell import Shell
from tests.loops.handmade import Context, ask, collect


def result_of(events: list[LoopEvent]) -> ToolResult:
    (ended,) = (event for event in events if isinstance(event, ToolEnded))
    return ended.result


def shown(events: list[LoopEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, ToolDelta))


async def run(command: str, folder: Path, **options: float) -> ToolResult:
    return result_of(await collect(Shell(folder, **options)(), ask(command)))  # type: ignore[arg-type] # numbers only


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def until(condition: Callable[[], bool]) -> None:
    """Waits for something that has to come; a test that waits in vain fails by its time limit."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - another process makes it true
            await asyncio.sleep(0.01)


def children() -> str:
    """The children of this process."""
    return Path("/proc/thread-self/children").read_text()


def pids(file: Path, count: int) -> list[int]:
    found = [int(line) for line in file.read_text().split()] if file.exists() else []
    return found if len(found) == count else []


async def test_a_message_is_run_and_its_output_is_streamed_and_kept_whole(tmp_path: Path) -> None:
    (tmp_path / "here").touch()
    events = await collect(Shell(tmp_path)(), ask("ls; echo error >&2; echo done"))
    started, ended, tool_started = events[:3]
    assert isinstance(started, MessageStarted)
    assert isinstance(ended, MessageEnded)
    (call,) = ended.parts
    assert isinstance(call, ToolCall)
    assert call.name == "shell"
    assert call.arguments == {"command": "ls; echo error >&2; echo done"}
    assert tool_started == ToolStarted(call.call_id)
    result = result_of(events)
    assert isinstance(events[-1], ToolEnded)
    assert shown(events) == "here\nerror\ndone\n"
    assert result.parts == (Text("here\nerror\ndone\n"),)
    assert result.call_id == call.call_id
    assert not result.is_error
    assert result.limit_chars == 50_000
    assert result.provider["exit"] == 0
    assert result.provider["seconds"] >= 0


async def test_a_failing_command_is_an_error_result_with_its_exit_status(tmp_path: Path) -> None:
    result = await run("printf half; exit 3", tmp_path)
    assert result.is_error
    assert result.parts == (Text("half"), Text("\n[exit status 3]"))
    assert result.provider["exit"] == 3


async def test_a_command_that_a_signal_ends_has_the_exit_status_of_a_shell(tmp_path: Path) -> None:
    result = await run("kill -9 $$", tmp_path)
    assert result.provider["exit"] == 137
    assert result.is_error


async def test_a_command_without_output_ends(tmp_path: Path) -> None:
    events = await collect(Shell(tmp_path)(), ask("true"))
    assert shown(events) == ""
    assert result_of(events).parts == (Text(""),)


async def test_output_that_is_not_utf8_is_replaced_and_characters_stay_whole(
    tmp_path: Path,
) -> None:
    halves = r"printf 'a\377b'; printf '\303'; sleep 0.1; printf '\251'; printf '\342\202'"
    events = await collect(Shell(tmp_path)(), ask(halves))
    assert result_of(events).text == "a\ufffdbé\ufffd"
    assert shown(events) == "a\ufffdbé\ufffd"


async def test_sixteen_megabytes_are_kept_whole_in_few_deltas(tmp_path: Path) -> None:
    size = 16 << 20
    events = await collect(Shell(tmp_path)(), ask(f"head -c {size} /dev/zero | tr '\\0' x"))
    assert result_of(events).text == "x" * size
    assert shown(events) == "x" * size
    assert sum(isinstance(event, ToolDelta) for event in events) < 600


async def test_output_without_end_fails_that_call_and_nothing_else(tmp_path: Path) -> None:
    result = await run("yes", tmp_path, max_output_bytes=1001)
    assert result.is_error
    assert result.parts[0] == Text("y\n" * 500 + "y")
    assert "more than 1001 bytes" in result.text


async def test_a_command_that_hangs_is_ended_by_its_time_limit(tmp_path: Path) -> None:
    result = await run("echo before; sleep 1000", tmp_path, timeout_s=0.3)
    assert result.is_error
    assert result.text == "before\n[ended: it ran longer than 0.3 seconds]"
    assert result.provider["timed_out"] is True


async def test_a_command_gets_no_input(tmp_path: Path) -> None:
    assert (await run("cat; echo end", tmp_path)).text == "end\n"


async def test_the_environment_names_session_turn_and_key_and_hides_the_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERDURE_TOKEN", "hidden")
    events = await collect(Shell(tmp_path)(), ask("env"))
    variables = dict(line.split("=", 1) for line in result_of(events).text.splitlines())
    (call,) = (part for event in events if isinstance(event, MessageEnded) for part in event.parts)
    assert isinstance(call, ToolCall)
    assert variables["PERDURE_SESSION_ID"] == "s-1"
    assert variables["PERDURE_TURN_ID"] == "turn-1"
    assert variables["PERDURE_IDEMPOTENCY_KEY"] == f"s-1:turn-1:{call.call_id}"
    assert "PERDURE_TOKEN" not in variables


async def test_a_command_can_be_interrupted_by_its_own_signals(
    tmp_path: Path,
) -> None:
    heeded = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE)
    # as in a server that was started by nohup, or as the background job of a script
    before = {each: signal.signal(each, signal.SIG_IGN) for each in heeded}
    try:
        ignored = await run("grep -E 'SigIgn' /proc/self/status", tmp_path)
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    mask = int(ignored.text.split()[1], 16)
    assert [each for each in heeded if mask & (1 << (each - 1))] == []


async def test_what_a_command_leaves_running_is_ended_with_it(tmp_path: Path) -> None:
    result = await run("sleep 1000 & echo $!", tmp_path)
    assert result.provider["exit"] == 0
    assert not is_alive(int(result.text))


async def test_a_process_that_leaves_the_group_does_not_hold_the_run(tmp_path: Path) -> None:
    result = await run("setsid sleep 1000 & echo $!; sleep 0.1", tmp_path)
    escaped = int(result.text)
    assert is_alive(escaped)
    os.kill(escaped, signal.SIGKILL)


STUBBORN = """
trap '' TERM
echo $$ >> pids
sh -c 'trap "" TERM; echo $$ >> pids; while :; do sleep 1000; done' &
echo ready
while :; do sleep 1000; done
"""


async def test_closing_the_loop_kills_the_whole_group_even_one_that_ignores_sigterm(
    tmp_path: Path,
) -> None:
    async with aclosing(Shell(tmp_path, grace_s=0.2)()(ask(STUBBORN))) as running:
        async for event in running:
            if isinstance(event, ToolDelta):
                break
        await until(lambda: len(pids(tmp_path / "pids", 2)) == 2)
    assert [is_alive(pid) for pid in pids(tmp_path / "pids", 2)] == [False, False]


async def test_cancelling_the_task_kills_the_whole_group(tmp_path: Path) -> None:
    async def consume() -> None:
        await collect(Shell(tmp_path, grace_s=0.2)(), ask(STUBBORN))

    task = asyncio.create_task(consume())
    await until(lambda: len(pids(tmp_path / "pids", 2)) == 2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [is_alive(pid) for pid in pids(tmp_path / "pids", 2)] == [False, False]


async def test_a_stop_that_is_itself_cancelled_still_ends_the_command(tmp_path: Path) -> None:
    task = asyncio.create_task(collect(Shell(tmp_path, grace_s=0.5)(), ask(STUBBORN)))
    await until(lambda: len(pids(tmp_path / "pids", 2)) == 2)
    for _ in range(2):
        task.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await task
    left = pids(tmp_path / "pids", 2)
    await until(lambda: not any(is_alive(pid) for pid in left))


async def test_a_stopped_command_may_clean_up(tmp_path: Path) -> None:
    command = "trap 'echo cleaned > mark; exit' TERM; echo ready; sleep 1000 & wait"
    async with aclosing(Shell(tmp_path, grace_s=10)()(ask(command))) as running:
        async for event in running:
            if isinstance(event, ToolDelta):
                break
    assert (tmp_path / "mark").read_text() == "cleaned\n"


OWNER = """
import asyncio, sys
from perdure.loops.shell import Shell
from tests.loops.handmade import ask, collect
asyncio.run(collect(Shell(sys.argv[1], grace_s=0.2)(), ask(sys.stdin.read())))
"""


async def test_a_killed_owner_leaves_nothing_running(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    owner = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-c", OWNER, str(tmp_path)),
        stdin=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": f"{root / 'src'}:{root}"},
    )
    assert owner.stdin is not None
    owner.stdin.write(STUBBORN.encode())
    owner.stdin.close()
    await until(lambda: len(pids(tmp_path / "pids", 2)) == 2)
    owner.kill()
    await owner.wait()
    left = pids(tmp_path / "pids", 2)
    await until(lambda: not any(is_alive(pid) for pid in left))


async def test_a_killed_supervisor_is_an_error_result_and_leaves_nothing(tmp_path: Path) -> None:
    command = "echo $$ > pids; kill -9 $PPID; sleep 1000"
    result = await run(command, tmp_path)
    assert result.is_error
    assert "lost" in result.text
    (pid,) = pids(tmp_path / "pids", 1)
    await until(lambda: not is_alive(pid))


@pytest.mark.parametrize("stopping", ["kill -STOP $PPID", "while :; do kill -STOP $PPID; done &"])
async def test_a_command_that_stops_its_supervisor_is_ended_all_the_same(
    tmp_path: Path, stopping: str
) -> None:
    command = f"{stopping}\necho $$ > pids; sleep 1000"
    result = await run(command, tmp_path, timeout_s=0.5, grace_s=0.1)
    assert "ran longer" in result.text
    (pid,) = pids(tmp_path / "pids", 1)
    await until(lambda: not is_alive(pid))


async def test_no_descriptor_is_left_where_there_are_too_few_to_start_a_command(
    tmp_path: Path,
) -> None:
    await run("true", tmp_path)
    before = len(os.listdir("/proc/self/fd"))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    for spare in range(1, 12):
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + spare, hard))
        try:
            result = await run("true", tmp_path)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert not result.is_error or "could not start" in result.text
        assert len(os.listdir("/proc/self/fd")) == before


async def test_no_descriptor_and_no_child_is_left(tmp_path: Path) -> None:
    await run("true", tmp_path)
    before, others = len(os.listdir("/proc/self/fd")), children()
    for _ in range(3):
        await run("echo x", tmp_path)
        await run("sleep 1000", tmp_path, timeout_s=0.05, grace_s=0.1)
    assert len(os.listdir("/proc/self/fd")) == before
    assert children() == others


async def test_a_shell_that_is_not_there_is_an_error_result(tmp_path: Path) -> None:
    result = result_of(await collect(Shell(tmp_path, shell="/no/such/shell")(), ask("true")))
    assert result.is_error
    assert result.provider["exit"] == 127
    assert "/no/such/shell" in result.text


@pytest.mark.parametrize(("command", "reason"), [("a\0b", "null"), ("x" * 200_000, "too long")])
async def test_a_command_that_no_system_can_start_is_an_error_result(
    tmp_path: Path, command: str, reason: str
) -> None:
    result = await run(command, tmp_path)
    assert result.is_error
    assert reason in result.text


async def test_a_lone_surrogate_is_replaced(tmp_path: Path) -> None:
    assert (await run("printf '\ud800'", tmp_path)).text == "\ufffd"


async def test_a_workspace_that_is_no_folder_is_refused_before_anything_runs(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="not a folder"):
        Shell(tmp_path / "file")()
    with pytest.raises(ConfigurationError, match="does not exist"):
        Shell(tmp_path / "absent")()


async def test_a_run_without_input_runs_the_last_user_message_again(tmp_path: Path) -> None:
    before = [text("echo old"), text("echo new"), Message("assistant", (Text("echo not"),))]
    events = await collect(Shell(tmp_path)(), Context(before=before))
    assert result_of(events).text == "new\n"


@pytest.mark.parametrize(
    "messages", [[], [Message("user", (File("text/plain", data=b"ls"),))], [text("  \n")]]
)
async def test_a_message_without_text_fails_the_run_and_says_why(
    tmp_path: Path, messages: list[Message]
) -> None:
    with pytest.raises(LoopError, match="could be run as a command"):
        await collect(Shell(tmp_path)(), Context(input=messages))


async def test_a_summary_is_a_digest_of_the_commands_and_is_the_same_each_time(
    tmp_path: Path,
) -> None:
    conversation: list[Message] = []
    for command in ("echo fine", "echo oops >&2; exit 2"):
        context = ask(command, conversation)
        await collect(Shell(tmp_path)(), context)
        conversation = context.conversation
    asked = Context(before=conversation, purpose="summary")
    first = await collect(Shell(tmp_path)(), asked)
    again = await collect(Shell(tmp_path)(), asked)
    assert first == again
    (ended,) = (event for event in first if isinstance(event, MessageEnded))
    (part,) = ended.parts
    assert isinstance(part, Text)
    assert part.text == (
        "Commands that were run:\n- echo fine → exit 0\n- echo oops >&2; exit 2 → exit 2: oops"
    )
    earlier = text(f"Summary of the conversation so far:\n\n{part.text}", meta=True)
    events = await collect(Shell(tmp_path)(), Context(before=[earlier], purpose="summary"))
    assert [event.text for event in events if isinstance(event, MessageDelta)] == [part.text]


@pytest.mark.parametrize("is_cut_off", [False, True])
async def test_a_run_that_goes_on_runs_no_command_a_second_time(
    tmp_path: Path, is_cut_off: bool
) -> None:
    call = ToolCall("c", "shell", {"command": "echo x >> ran"})
    result = ToolResult("c", (Text("x"),), interrupted=is_cut_off, is_error=is_cut_off)
    before = [
        text("echo x >> ran"),
        Message("assistant", (call,)),
        Message("tool", (result,)),
        text("a hook wants more", meta=True),
    ]
    events = await collect(Shell(tmp_path)(), Context(before=before))
    assert (events == []) is not is_cut_off
    assert (tmp_path / "ran").exists() is is_cut_off
