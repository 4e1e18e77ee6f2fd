"""Commands at events: what they get, what they may say, and what bounds them."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest
from msgspec import structs

from perdure.entry import Text, ToolResult
from perdure.hook import (
    HookEvent,
    HookOutcome,
    Notification,
    PostToolUse,
    PreCompact,
    SessionEnd,
    SessionStart,
    Stop,
    UserPromptSubmit,
)
from perdure.server.hook.process import MAX_OUTPUT_BYTES, HookProcess
from tests.server.hooking import call, command, group, hooked, is_alive

REPO = Path(__file__).parents[2]
PATH = os.pathsep.join((str(REPO / "src"), str(REPO)))
RESULT = ToolResult("c", (Text("out"),), name="shell")
POST = PostToolUse(
    session_id="s", turn_id="t", tool_name="shell", tool_input={}, call_id="c", result=RESULT
)
START = SessionStart(session_id="s", source="startup")
PROMPT = UserPromptSubmit(session_id="s", turn_id="t", prompt="hello")
STOP = Stop(session_id="s", turn_id="t", last_assistant_message="done")
COMPACT = PreCompact(session_id="s", trigger="manual")
END = SessionEnd(session_id="s", reason="offload")
NOTICE = Notification(session_id="s", message="shell waits")


@pytest.mark.parametrize(
    ("event", "fields"),
    [
        (call(command="ls"), {"tool_name": "Bash", "tool_input": {"command": "ls"}}),
        (call(command="ls"), {"tool_use_id": "c", "turn_id": "t", "permission_mode": "default"}),
        (call("lookup", of="x"), {"tool_name": "lookup", "tool_input": {"of": "x"}}),
        (POST, {"hook_event_name": "PostToolUse", "tool_use_id": "c"}),
        (START, {"source": "startup", "session_id": "s", "transcript_path": ""}),
        (PROMPT, {"prompt": "hello"}),
        (STOP, {"stop_hook_active": False, "last_assistant_message": "done"}),
        (COMPACT, {"trigger": "manual", "custom_instructions": ""}),
        (END, {"reason": "offload"}),
        (NOTICE, {"message": "shell waits", "notification_type": "permission_prompt"}),
    ],
)
async def test_a_command_reads_the_event_as_json(
    tmp_path: Path, event: HookEvent, fields: dict[str, object]
) -> None:
    hooks = hooked(tmp_path, **{event.name: [group(command("cat > told"))]})
    await hooks.fire(event)
    told = json.loads((tmp_path / "told").read_text())
    assert {name: told[name] for name in fields} == fields
    assert (told["hook_event_name"], told["cwd"]) == (event.name, str(tmp_path))
    assert hooks.fact.input == told
    assert (hooks.fact.event, hooks.fact.exit) == (event.name, 0)
    assert "cat > told" in hooks.fact.handler


async def test_a_result_has_the_shape_that_goes_with_the_tool(tmp_path: Path) -> None:
    hooks = hooked(tmp_path, PostToolUse=[group(command("cat > told"), matcher="Bash")])
    await hooks.fire(POST)
    response = json.loads((tmp_path / "told").read_text())["tool_response"]
    assert (response["stdout"], response["interrupted"], response["is_error"]) == (
        "out",
        False,
        False,
    )


async def test_a_command_has_its_environment_and_not_the_servers_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERDURE_TOKEN", "0123456789abcdef")
    monkeypatch.setenv("MINE", "kept")
    hooks = hooked(tmp_path, PreToolUse=[group(command("env > env; pwd >> env"))])
    await hooks.fire(call())
    lines = (tmp_path / "env").read_text().splitlines()
    assert {
        f"CLAUDE_PROJECT_DIR={tmp_path}",
        f"CLAUDE_PLUGIN_ROOT={tmp_path}",
        "PERDURE_SESSION_ID=s",
        "PERDURE_TURN_ID=t",
        "PERDURE_HOOK_EVENT=PreToolUse",
        "MINE=kept",
        str(tmp_path),
    } <= set(lines)
    assert not [line for line in lines if line.startswith("PERDURE_TOKEN")]


async def test_a_program_with_args_is_run_without_a_shell(tmp_path: Path) -> None:
    args = ["-c", "import sys; print(sys.argv[1:])", "$HOME `x` 'y'", "${CLAUDE_PROJECT_DIR}/z"]
    hooks = hooked(tmp_path, SessionStart=[group(command("python3", args=args))])
    outcome = await hooks.fire(START)
    assert outcome.context == (repr(["$HOME `x` 'y'", f"{tmp_path}/z"]),)


def answer(**fields: object) -> str:
    return f"printf '%s' '{json.dumps(fields)}'"


def specific(event: str, **fields: object) -> str:
    return answer(hookSpecificOutput={"hookEventName": event, **fields})


REFUSE = "echo no >&2; exit 2"


@pytest.mark.parametrize(
    ("event", "text", "outcome"),
    [
        (call(), "exit 0", HookOutcome()),
        (call(), "echo hello", HookOutcome()),
        (call(), REFUSE, HookOutcome(permission="deny", reason="no")),
        (call(), 'echo "{}"; ' + REFUSE, HookOutcome(permission="deny", reason="no")),
        (PROMPT, REFUSE, HookOutcome(refused="no")),
        (PROMPT, "exit 2", HookOutcome(refused="the hook refused without a reason")),
        (COMPACT, REFUSE, HookOutcome(refused="no")),
        (STOP, REFUSE, HookOutcome(goes_on="no")),
        (POST, REFUSE, HookOutcome(context=("no",))),
        (START, REFUSE, HookOutcome(notices=("no",))),
        (END, REFUSE, HookOutcome(notices=("no",))),
        (NOTICE, REFUSE, HookOutcome(notices=("no",))),
        (START, "echo hello", HookOutcome(context=("hello",))),
        (PROMPT, "echo hello", HookOutcome(context=("hello",))),
        (STOP, "echo hello", HookOutcome()),
        (
            call(),
            specific(
                "PreToolUse",
                permissionDecision="allow",
                permissionDecisionReason="fine",
                updatedInput={"command": "ls"},
                additionalContext="hm",
            ),
            HookOutcome(
                permission="allow",
                reason="fine",
                changed_input={"command": "ls"},
                context=("hm",),
            ),
        ),
        (
            call(),
            specific("PreToolUse", permissionDecision="ask"),
            HookOutcome(permission="ask"),
        ),
        (
            call(),
            specific("PreToolUse", permissionDecision="defer", updatedInput={"x": 1}),
            HookOutcome(permission="ask"),
        ),
        (
            call(),
            specific("PreToolUse", permissionDecision="deny", permissionDecisionReason="bad"),
            HookOutcome(permission="deny", reason="bad"),
        ),
        (
            call(),
            answer(decision="block", reason="old"),
            HookOutcome(permission="deny", reason="old"),
        ),
        (call(), answer(decision="approve"), HookOutcome(permission="allow")),
        (
            call(),
            answer(**{"continue": False, "stopReason": "enough"}),
            HookOutcome(permission="deny", reason="enough", ends="enough"),
        ),
        (
            PROMPT,
            specific("UserPromptSubmit", additionalContext="it rains"),
            HookOutcome(context=("it rains",)),
        ),
        (PROMPT, answer(decision="block", reason="bad"), HookOutcome(refused="bad")),
        (PROMPT, answer(**{"continue": False, "stopReason": "x"}), HookOutcome(refused="x")),
        (
            POST,
            answer(decision="block", reason="lint"),
            HookOutcome(context=("lint",)),
        ),
        (POST, answer(**{"continue": False, "stopReason": "x"}), HookOutcome(ends="x")),
        (STOP, answer(decision="block", reason="test it"), HookOutcome(goes_on="test it")),
        (STOP, specific("Stop", additionalContext="more"), HookOutcome(goes_on="more")),
        (
            STOP,
            answer(decision="block", reason="r", **{"continue": False}),
            HookOutcome(ends="a hook ended the turn"),
        ),
        (COMPACT, answer(decision="block", reason="busy"), HookOutcome(refused="busy")),
        (END, answer(systemMessage="bye"), HookOutcome(notices=("bye",))),
        (call(), answer(suppressOutput=True, systemMessage=None), HookOutcome()),
        (
            PROMPT,
            'printf \'{"decision": "block", "reason": "odd \\\\udcff name"}\'',
            HookOutcome(refused="odd \ufffd name"),
        ),
    ],
)
async def test_what_a_command_says_is_what_comes_of_it(
    tmp_path: Path, event: HookEvent, text: str, outcome: HookOutcome
) -> None:
    hooks = hooked(tmp_path, **{event.name: [group(command(text))]})
    assert await hooks.fire(event) == outcome
    output = hooks.fact.output
    assert isinstance(output, dict)
    assert "failure" not in output


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("exit 1", "exit status 1"),
        ("echo trouble >&2; echo more >&2; exit 7", "exit status 7: trouble"),
        ("no-such-program-here", "exit status 127"),
        ("kill -9 $$", "exit status 137"),
        ("echo '{'", "not of the format"),
        ("echo '{} {}'", "not of the format"),
        ("echo '{\"decision\": 5}'", "not of the format"),
        ("echo '{\"hookSpecificOutput\": []}'", "not of the format"),
        ('echo \'{"hookSpecificOutput": {"updatedInput": 3}}\'', "not of the format"),
        ("printf '{\"a\":'; printf '%50000s' | tr ' ' '['", "not of the format"),
        (specific("Stop", additionalContext="x"), "is one to 'Stop'"),
    ],
)
async def test_a_hook_that_fails_changes_nothing_and_is_a_fact(
    tmp_path: Path, text: str, says: str
) -> None:
    hooks = hooked(tmp_path, PreToolUse=[group(command(text))])
    assert await hooks.fire(call()) == HookOutcome()
    assert says in hooks.failure


@pytest.mark.parametrize(
    ("event", "outcome"),
    [
        (call(), HookOutcome(permission="deny", reason="")),
        (PROMPT, HookOutcome(refused="")),
        (COMPACT, HookOutcome(refused="")),
        (STOP, HookOutcome()),
    ],
)
async def test_a_failure_blocks_where_the_file_says_so(
    tmp_path: Path, event: HookEvent, outcome: HookOutcome
) -> None:
    hooks = hooked(tmp_path, **{event.name: [group(command("exit 3", onFailure="block"))]})
    got = await hooks.fire(event)
    assert (got.permission, got.refused is None, got.goes_on) == (
        outcome.permission,
        outcome.refused is None,
        None,
    )
    assert "exit status 3" in (got.reason or got.refused or "exit status 3")


async def test_a_program_that_is_missing_is_a_failure(tmp_path: Path) -> None:
    hooks = hooked(tmp_path, PreToolUse=[group(command("no-such-program", args=[]))])
    assert await hooks.fire(call()) == HookOutcome()
    assert "no-such-program" in hooks.failure
    assert hooks.fact.exit == 127


async def test_a_hook_that_runs_too_long_is_ended_with_its_children(tmp_path: Path) -> None:
    script = "sleep 60 & echo $! > child; trap '' TERM; echo $$ > self; while :; do sleep 60; done"
    hooks = hooked(tmp_path, PreToolUse=[group(command(script, timeout=0.5))])
    began = time.monotonic()
    assert await hooks.fire(call()) == HookOutcome()
    assert time.monotonic() - began < 5
    assert "longer than 0.5 seconds" in hooks.failure
    assert hooks.fact.exit is None
    assert hooks.fact.seconds >= 0.5
    for name in ("child", "self"):
        assert not is_alive(int((tmp_path / name).read_text()))


async def test_what_a_hook_leaves_running_ends_with_it(tmp_path: Path) -> None:
    hooks = hooked(tmp_path, SessionStart=[group(command("sleep 60 & echo $! > child; echo hi"))])
    assert await hooks.fire(START) == HookOutcome(context=("hi",))
    assert not is_alive(int((tmp_path / "child").read_text()))


async def test_what_a_command_wrote_is_told_without_the_note_of_how_it_ended(
    tmp_path: Path,
) -> None:
    hooks = hooked(tmp_path, PostToolUse=[group(command("cat > told"), matcher="Bash")])
    parts = (Text("out"), Text("\n[exit status 3]"))
    result = ToolResult("c", parts, name="shell", is_error=True, provider={"exit": 3})
    await hooks.fire(structs.replace(POST, result=result))
    response = json.loads((tmp_path / "told").read_text())["tool_response"]
    assert response["stdout"] == "out"
    assert response["content"] == [{"type": "text", "text": "out\n[exit status 3]"}]


async def test_errors_that_are_cut_when_all_is_over_are_said_to_be(tmp_path: Path) -> None:
    process = HookProcess()
    process.start_with(b"", ["sh", "-c", "echo a word too many >&2"], cwd=tmp_path, env={})
    process._error += bytes(MAX_OUTPUT_BYTES - 2)
    asyncio.get_running_loop().remove_reader(process._error_fd)  # so that only the end reads
    try:
        await process.wait_for_end(10)
    finally:
        await process.end()
    assert process.overflowed
    assert len(process.error) == MAX_OUTPUT_BYTES


@pytest.mark.parametrize("stream", [1, 2])
async def test_a_flood_is_ended_in_bounded_memory_and_time(tmp_path: Path, stream: int) -> None:
    flood = f"head -c 100000000 /dev/zero >&{stream} && touch through"
    hooks = hooked(tmp_path, PreToolUse=[group(command(flood))])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.monotonic()
    assert await hooks.fire(call()) == HookOutcome()
    assert time.monotonic() - began < 10
    grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown_kb < 40_000
    assert "more than 1048576 bytes" in hooks.failure
    assert not (tmp_path / "through").exists()
    output = hooks.fact.output
    assert isinstance(output, dict)
    assert len(str(output["stdout"])) + len(str(output["stderr"])) == 1 << 20


async def test_an_endless_flood_keeps_the_server_answering(tmp_path: Path) -> None:
    hooks = hooked(tmp_path, PreToolUse=[group(command("yes; true"), command("yes >&2; true"))])
    gaps, last = [0.0], time.monotonic()

    async def beat() -> None:
        nonlocal last
        while True:
            await asyncio.sleep(0.01)
            gaps.append(time.monotonic() - last)
            last = time.monotonic()

    beating = asyncio.create_task(beat())
    await hooks.fire(call())
    beating.cancel()
    assert max(gaps) < 0.5
    assert len(hooks.facts) == 2


async def test_output_that_is_no_utf_8_is_kept_as_far_as_it_goes(tmp_path: Path) -> None:
    hooks = hooked(tmp_path, SessionStart=[group(command(r"printf 'a\377\300\nb\0c'"))])
    assert await hooks.fire(START) == HookOutcome(context=("a\ufffd\ufffd\nb\0c",))


async def test_big_input_is_read_or_left_unread(tmp_path: Path) -> None:
    text = "x" * 5_000_000
    both = [group(command("wc -c > size"), command("exec <&-; sleep 0.2"), command("exit 0"))]
    hooks = hooked(tmp_path, PreToolUse=both)
    assert await hooks.fire(call(command=text)) == HookOutcome()
    assert int((tmp_path / "size").read_text()) > len(text)
    assert [fact.exit for fact in hooks.facts] == [0, 0, 0]


async def test_long_context_is_cut_for_the_model_and_whole_in_the_journal(tmp_path: Path) -> None:
    hooks = hooked(tmp_path, SessionStart=[group(command("head -c 30000 /dev/zero | tr '\\0' x"))])
    (context,) = (await hooks.fire(START)).context
    assert context.startswith("x" * 10_000 + "\n[20000 more")
    output = hooks.fact.output
    assert isinstance(output, dict)
    assert len(str(output["stdout"])) == 30_000


async def test_what_has_no_effect_in_an_answer_is_named_in_the_fact(tmp_path: Path) -> None:
    hooks = hooked(
        tmp_path, PostToolUse=[group(command(specific("PostToolUse", updatedToolOutput="x")))]
    )
    assert await hooks.fire(POST) == HookOutcome()
    output = hooks.fact.output
    assert isinstance(output, dict)
    assert output["unsupported"] == ["hookSpecificOutput.updatedToolOutput"]


async def test_a_changed_input_comes_back_under_the_names_of_this_server(tmp_path: Path) -> None:
    changed = specific(
        "PreToolUse", updatedInput={"file_path": "/x/y", "old_string": "a", "new": 1}
    )
    hooks = hooked(tmp_path, PreToolUse=[group(command(f"cat > told; {changed}"), matcher="Edit")])
    outcome = await hooks.fire(call("edit_file", path="y", old="b", new="c"))
    told = json.loads((tmp_path / "told").read_text())["tool_input"]
    assert told == {"file_path": str(tmp_path / "y"), "old_string": "b", "new_string": "c"}
    assert outcome.changed_input == {"path": "/x/y", "old": "a", "new": 1}


async def test_a_path_that_a_hook_left_alone_stays_as_the_model_wrote_it(tmp_path: Path) -> None:
    echo = (
        "import json, sys; given = json.load(sys.stdin)['tool_input']; given['content'] = 'new';"
        "print(json.dumps({'hookSpecificOutput': {'updatedInput': given}}))"
    )
    hooks = hooked(tmp_path, PreToolUse=[group(command("python3", args=["-c", echo]))])
    outcome = await hooks.fire(call("write_file", path="a/../b", content="old"))
    assert outcome.changed_input == {"path": "a/../b", "content": "new"}


async def test_a_cancelled_fire_leaves_nothing_running_and_says_so(tmp_path: Path) -> None:
    hooks = hooked(tmp_path, PreToolUse=[group(command("echo $$ > self; sleep 60"))])
    firing = asyncio.create_task(hooks.fire(call()))
    while not (tmp_path / "self").exists() or not (tmp_path / "self").read_text():  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    firing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await firing
    assert not is_alive(int((tmp_path / "self").read_text()))
    assert "cut off" in hooks.failure


async def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    hooks = hooked(tmp_path, PreToolUse=[group(command("exit 0"), command("no-such", args=[]))])
    await hooks.fire(call())
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        await hooks.fire(call())
    assert len(os.listdir("/proc/self/fd")) == before


async def test_a_workspace_that_is_gone_is_a_failure(tmp_path: Path) -> None:
    hooks = hooked(tmp_path, PreToolUse=[group(command("exit 0"))])
    shutil.rmtree(tmp_path)
    assert await hooks.fire(call()) == HookOutcome()
    assert "could not be started" in hooks.failure


async def test_a_process_that_escapes_holds_nobody_up(tmp_path: Path) -> None:
    escaping = "setsid sh -c 'echo $$ > child; exec sleep 20' &"
    escape = f"{escaping} while [ ! -s child ]; do sleep 0.02; done; echo hi"
    hooks = hooked(tmp_path, SessionStart=[group(command(escape))])
    began = time.monotonic()
    try:
        assert await hooks.fire(START) == HookOutcome(context=("hi",))
        assert time.monotonic() - began < 10
    finally:
        os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)


async def test_many_children_end_with_their_hook(tmp_path: Path) -> None:
    forks = "for n in $(seq 50); do (sleep 60; echo $n) & echo $! >> children; done; sleep 60"
    hooks = hooked(tmp_path, PreToolUse=[group(command(forks, timeout=1))])
    await hooks.fire(call())
    children = [int(line) for line in (tmp_path / "children").read_text().split()]
    assert len(children) == 50
    assert [pid for pid in children if is_alive(pid)] == []


CHILD = """
import asyncio, sys
from pathlib import Path
from tests.server.hooking import call, command, group, hooked

folder = Path(sys.argv[1])
hooks = hooked(folder, PreToolUse=[group(command("echo $$ > self; sleep 60"))])
asyncio.run(hooks.fire(call()))
"""


async def test_a_hook_ends_with_the_server_however_that_dies(tmp_path: Path) -> None:
    server = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CHILD, str(tmp_path), env=os.environ | {"PYTHONPATH": PATH}
    )
    while not (tmp_path / "self").exists() or not (tmp_path / "self").read_text():  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    pid = int((tmp_path / "self").read_text())
    assert is_alive(pid)
    server.kill()
    await server.wait()
    until = time.monotonic() + 5
    while is_alive(pid) and time.monotonic() < until:  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    assert not is_alive(pid)
