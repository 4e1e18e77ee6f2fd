"""A hooks.json as coding agents write it: read, named where it has no effect, refused if wrong."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from perdure.entry import Text, ToolResult
from perdure.errors import ConfigurationError
from perdure.hook import EVENTS, PostToolUse, PreCompact, SessionStart, Stop, UserPromptSubmit
from perdure.server.hook.command import Command
from perdure.server.hook.file import FOREIGN_EVENTS, HookFile, read_hook_file
from perdure.server.hook.setup import load_hooks
from tests.server.hooking import NO_PLUGINS, Hooked, call, command, group

SETTINGS = """\
{
  "$schema": "https://json.schemastore.org/claude-code-settings.json",
  "permissions": { "allow": ["Bash(ls:*)", "Write"], "deny": [] },
  "statusLine": { "type": "command", "command": "uv run .claude/status_lines/status.py" },
  "hooks": {
    "PreToolUse": [
      {
        "matcher": "Bash|Edit|MultiEdit|Write",
        "hooks": [
          { "type": "command", "command": "python3 .claude/hooks/pre_tool_use.py" }
        ]
      }
    ],
    "PostToolUse": [
      {
        "matcher": "Edit|MultiEdit|Write",
        "hooks": [
          {
            "type": "command",
            "command": "python3 \\"$CLAUDE_PROJECT_DIR\\"/.claude/hooks/post_tool_use.py",
            "timeout": 30
          }
        ]
      }
    ],
    "Notification": [
      { "matcher": "", "hooks": [{ "type": "command", "command": "cat >> .claude/notes" }] }
    ],
    "Stop": [
      {
        "hooks": [
          { "type": "command", "command": "python3 .claude/hooks/stop.py --chat" }
        ]
      }
    ],
    "SubagentStop": [
      { "matcher": "", "hooks": [{ "type": "command", "command": "exit 0" }] }
    ],
    "UserPromptSubmit": [
      {
        "hooks": [
          { "type": "command", "command": "python3 .claude/hooks/prompt.py --log-only" }
        ]
      }
    ],
    "PreCompact": [
      { "matcher": "auto", "hooks": [{ "type": "command", "command": "exit 0" }] },
      { "matcher": "manual", "hooks": [{ "type": "prompt", "prompt": "Is it time? $ARGUMENTS" }] }
    ],
    "SessionStart": [
      {
        "matcher": "startup|resume|clear|compact",
        "hooks": [{ "type": "command", "command": "git log --oneline -1; cat NOTES.md" }]
      }
    ]
  }
}
"""

PRE_TOOL_USE = """\
import json, re, sys

given = json.load(sys.stdin)
tool, told = given["tool_name"], given["tool_input"]
if tool in ("Edit", "MultiEdit", "Write", "Bash"):
    if tool == "Bash" and re.search(r"\\brm\\s+.*-[a-z]*r[a-z]*f", told.get("command", "")):
        print("BLOCKED: dangerous rm", file=sys.stderr)
        sys.exit(2)
    if tool != "Bash" and ".env" in told["file_path"] and told["file_path"].startswith("/"):
        print(json.dumps({"hookSpecificOutput": {"hookEventName": "PreToolUse",
            "permissionDecision": "deny", "permissionDecisionReason": "it has secrets"}}))
sys.exit(0)
"""

POST_TOOL_USE = """\
import json, sys

given = json.load(sys.stdin)
if given["tool_response"]["filePath"].endswith(".py") and given["tool_response"]["success"]:
    print(json.dumps({"decision": "block", "reason": "lint: 1 problem"}))
"""

STOP = """\
import json, os, sys

given = json.load(sys.stdin)
if given["stop_hook_active"]:
    sys.exit(0)
if "--chat" in sys.argv and os.path.exists(given["transcript_path"]):
    raise SystemExit("a transcript?")
print(json.dumps({"decision": "block", "reason": "update the changelog"}))
"""

PROMPT = """\
import json, sys

print(f"The prompt has {len(json.load(sys.stdin)['prompt'])} characters")
"""


@pytest.fixture
def project(tmp_path: Path) -> Hooked:
    """A project as a coding agent's user has it: settings, and scripts beside them."""
    scripts = tmp_path / ".claude" / "hooks"
    scripts.mkdir(parents=True)
    for name, source in (
        ("pre_tool_use", PRE_TOOL_USE),
        ("post_tool_use", POST_TOOL_USE),
        ("stop", STOP),
        ("prompt", PROMPT),
    ):
        (scripts / f"{name}.py").write_text(source)
    (tmp_path / "NOTES.md").write_text("Use tabs.")
    file = tmp_path / ".claude" / "settings.json"
    file.write_text(SETTINGS)
    return Hooked(load_hooks([file], NO_PLUGINS, folder=tmp_path))


async def test_an_existing_file_works_as_it_is(project: Hooked) -> None:
    refused = await project.fire(call("run_command", command="rm -rf /"))
    assert (refused.permission, refused.reason) == ("deny", "BLOCKED: dangerous rm")
    assert (await project.fire(call("run_command", command="ls"))).permission is None
    secret = await project.fire(call("write_file", path="config/.env", content="x"))
    assert (secret.permission, secret.reason) == ("deny", "it has secrets")
    result = ToolResult("c", (Text("main.py: replaced"),), name="edit_file")
    arguments: dict[str, Any] = {"path": "main.py", "old": "a", "new": "b"}
    edited = await project.fire(
        PostToolUse(
            session_id="s",
            tool_name="edit_file",
            tool_input=arguments,
            call_id="c",
            result=result,
        )
    )
    assert edited.context == ("lint: 1 problem",)
    stopping = await project.fire(Stop(session_id="s"))
    assert stopping.goes_on == "update the changelog"
    assert (await project.fire(Stop(session_id="s", stop_hook_active=True))).goes_on is None
    prompted = await project.fire(UserPromptSubmit(session_id="s", prompt="hello"))
    assert prompted.context == ("The prompt has 5 characters",)
    (begun,) = (await project.fire(SessionStart(session_id="s", source="startup"))).context
    assert begun.endswith("Use tabs.")
    assert (await project.fire(SessionStart(session_id="s", source="fork"))).context == ()
    await project.fire(PreCompact(session_id="s", trigger="manual"))
    failures = [fact.output for fact in project.facts if "failure" in str(fact.output)]
    assert failures == []


def test_what_it_has_beyond_is_named_with_its_place(
    project: Hooked, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / ".claude" / "settings.json"
    with caplog.at_level(logging.INFO):
        load_hooks([file], NO_PLUGINS, folder=tmp_path)
    warned = [each.message for each in caplog.records if each.levelno == logging.WARNING]
    assert warned == [
        f"{file}: permissions is no matter of hooks",
        f"{file}: statusLine is no matter of hooks",
        f"{file}: hooks.SubagentStop is an event that does not occur here",
        f"{file}: hooks.PreCompact[1].hooks[0] is of the type 'prompt', and only commands are run",
    ]
    assert f"{file}: 7 hooks" in caplog.text


async def test_a_plugins_file_finds_its_scripts(tmp_path: Path) -> None:
    root = tmp_path / "with space"
    (root / "hooks").mkdir(parents=True)
    (root / "say.sh").write_text("echo found")
    quoted = command('sh "${CLAUDE_PLUGIN_ROOT}/say.sh"')
    listed = command("sh", args=["${CLAUDE_PLUGIN_ROOT}/say.sh"])
    file = root / "hooks" / "hooks.json"
    file.write_text(
        json.dumps({"description": "d", "hooks": {"SessionStart": [group(quoted, listed)]}})
    )
    hooks = Hooked(load_hooks([file], NO_PLUGINS, folder=tmp_path))
    outcome = await hooks.fire(SessionStart(session_id="s", source="startup"))
    assert outcome.context == ("found", "found")


def read(folder: Path, content: object) -> HookFile:
    path = folder / "hooks.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return read_hook_file(path)


def one(folder: Path, event: str = "Stop", **fields: Any) -> tuple[Command, tuple[str, ...]]:
    file = read(folder, {"hooks": {event: [group(command("x", **fields))]}})
    (only,) = file.commands
    return only, file.unsupported


def test_events_may_stand_at_the_top(tmp_path: Path) -> None:
    file = read(tmp_path, {"description": "d", "Stop": [group(command("a"))], "Setup": []})
    assert [each.command for each in file.commands] == ["a"]
    assert file.unsupported == ("hooks.Setup is an event that does not occur here",)


@pytest.mark.parametrize("content", ["{}", '{"hooks": {}}', '\ufeff{"hooks": {"Stop": []}}'])
def test_a_file_without_hooks_is_one(tmp_path: Path, content: str) -> None:
    assert read(tmp_path, content).commands == ()


def test_all_hooks_of_a_file_can_be_turned_off(tmp_path: Path) -> None:
    file = read(tmp_path, {"disableAllHooks": True, "hooks": {"Stop": [group(command("a"))]}})
    assert file.commands == ()
    assert file.unsupported == ("disableAllHooks is true: no hook of this file runs",)
    off = {"disableAllHooks": False, "hooks": {"Stop": [group(command("a"))]}}
    assert len(read(tmp_path, off).commands) == 1


@pytest.mark.parametrize(
    ("event", "given", "limit_s"),
    [
        ("PreToolUse", None, 600),
        ("PreToolUse", 0.5, 0.5),
        ("PreToolUse", 3600, 3600),
        ("UserPromptSubmit", None, 30),
        ("UserPromptSubmit", 90, 90),
        ("SessionEnd", None, 10),
        ("SessionEnd", 90, 60),
    ],
)
def test_the_time_limit_is_that_of_the_handler_or_the_event(
    tmp_path: Path, event: str, given: float | None, limit_s: float
) -> None:
    found, unsupported = one(tmp_path, event, **({} if given is None else {"timeout": given}))
    assert found.time_limit_s() == limit_s
    assert unsupported == ()


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"timeout": 30000}, ".timeout is 30000 seconds: 3600 are the most"),
        ({"async": True, "onFailure": "block"}, ".onFailure has no effect: nobody waits for"),
        ({"async": True, "asyncRewake": True}, ".async has no effect here: the hook is waited"),
        ({"asyncRewake": True}, ".asyncRewake has no effect"),
        ({"statusMessage": "…"}, ".statusMessage has no effect: nobody is shown it"),
        ({"once": True}, ".once has no effect: the hook runs each time"),
        ({"if": "Bash(git *)"}, ".if is for tools: the hook never runs"),
        ({"color": "red"}, ".color is no field that is known"),
        ({"args": ["${CLAUDE_PLUGIN_DATA}"]}, ".command names CLAUDE_PLUGIN_DATA, which is not"),
    ],
)
def test_a_field_without_effect_is_named(tmp_path: Path, fields: dict[str, Any], says: str) -> None:
    _, unsupported = one(tmp_path, **fields)
    assert any(f"hooks.Stop[0].hooks[0]{says}" in each for each in unsupported)


def test_an_if_that_has_no_effect_on_arguments_is_named(tmp_path: Path) -> None:
    found, unsupported = one(tmp_path, "PreToolUse", **{"if": "Bash(git *)"})
    assert found.rule is not None
    assert (found.rule.tool, found.rule.pattern, unsupported) == ("Bash", "git *", ())
    _, unsupported = one(tmp_path, "PreToolUse", **{"if": "WebFetch(domain:example.org)"})
    assert unsupported == (
        "hooks.PreToolUse[0].hooks[0].if is read as WebFetch: the hook runs for each",
    )
    assert one(tmp_path, "PreToolUse", **{"if": "Bash", "async": False})[1] == ()


@pytest.mark.parametrize("kind", ["http", "mcp_tool", "prompt", "agent"])
def test_a_handler_that_is_no_command_is_named_and_left_out(tmp_path: Path, kind: str) -> None:
    file = read(tmp_path, {"hooks": {"Stop": [group({"type": kind, "url": "http://x"})]}})
    assert file.commands == ()
    assert f"hooks.Stop[0].hooks[0] is of the type '{kind}'" in file.unsupported[0]


def test_a_shell_that_there_is_not_is_named(tmp_path: Path) -> None:
    file = read(tmp_path, {"hooks": {"Stop": [group(command("x", shell="powershell"))]}})
    assert file.commands == ()
    assert "is powershell: the hook does not run" in file.unsupported[0]


def test_an_event_that_is_misspelled_is_named_with_what_was_meant(tmp_path: Path) -> None:
    file = read(tmp_path, {"hooks": {"PreToolUze": [], "Whatever": []}})
    assert (
        file.unsupported[0]
        == "hooks.PreToolUze is no event that is known; did you mean PreToolUse?"
    )
    assert "there are SessionStart, UserPromptSubmit" in file.unsupported[1]
    assert FOREIGN_EVENTS.isdisjoint(EVENTS)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "is no JSON"),
        (
            '{"hooks": {"PreToolUse": [], "Stop": [], "PreToolUse": []}}',
            "'PreToolUse' stands twice in one object",
        ),
        ('{"hooks": {"PreToolUse": [{"matcher": "a{9999999999999}", "hooks": []}]}}', "matcher"),
        ("{", "is no JSON"),
        ("[" * 100_000, "is no JSON"),
        ("[]", "it is no JSON object"),
        ({"hooks": []}, "hooks is no JSON object"),
        ({"hooks": {"Stop": {}}}, "hooks.Stop is no list"),
        ({"hooks": {"Stop": [[]]}}, r"hooks.Stop\[0\] is no JSON object"),
        ({"hooks": {"Stop": [command("a")]}}, r'hooks.Stop\[0\] has no "hooks"; write'),
        ({"hooks": {"Stop": [{"hooks": {}}]}}, r"hooks.Stop\[0\].hooks is no list"),
        ({"hooks": {"Stop": [{"hooks": ["a"]}]}}, r"hooks.Stop\[0\].hooks\[0\] is no JSON object"),
        ({"hooks": {"Stop": [group({})]}}, r'hooks\[0\].type is None, and not "command"'),
        ({"hooks": {"Stop": [group({"type": "comand"})]}}, "type is 'comand'"),
        ({"hooks": {"Stop": [group({"type": "command"})]}}, r"hooks\[0\].command is missing"),
        ({"hooks": {"Stop": [group(command(" "))]}}, "command is empty"),
        ({"hooks": {"Stop": [group({"type": "command", "command": 1})]}}, "command is no text"),
        ({"hooks": {"Stop": [group(command("a", args="b"))]}}, "args is no list"),
        ({"hooks": {"Stop": [group(command("a", args=[1]))]}}, "args is no list of texts"),
        ({"hooks": {"Stop": [group(command("a", timeout="5"))]}}, "timeout is '5'"),
        ({"hooks": {"Stop": [group(command("a", timeout=0))]}}, "timeout is 0"),
        ({"hooks": {"Stop": [group(command("a", timeout=True))]}}, "timeout is True"),
        (
            '{"Stop": [{"hooks": [{"type": "command", "command": "a", "timeout": 1e999}]}]}',
            "timeout is inf",
        ),
        ({"hooks": {"Stop": [group(command("a", shell="fish"))]}}, "shell is 'fish'"),
        ({"hooks": {"Stop": [group(command("a", onFailure="stop"))]}}, "onFailure is 'stop'"),
        ({"hooks": {"PreToolUse": [group(command("a"), matcher="(")]}}, "matcher is not valid"),
        ({"hooks": {"Stop": [{"matcher": 1, "hooks": []}]}}, "matcher is no text"),
        ({"disableAllHooks": "yes"}, "disableAllHooks is 'yes'"),
    ],
)
def test_what_is_malformed_is_refused_with_its_place(
    tmp_path: Path, content: object, says: str
) -> None:
    with pytest.raises(ConfigurationError, match=says) as refused:
        read(tmp_path, content)
    assert str(tmp_path / "hooks.json") in str(refused.value)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"none.json cannot be read: .*No such file"):
        read_hook_file(tmp_path / "none.json")


def test_several_files_are_read_one_after_the_other(tmp_path: Path) -> None:
    paths = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        paths.append(tmp_path / name / "hooks.json")
        paths[-1].write_text(json.dumps({"hooks": {"Stop": [group(command(f"echo {name}"))]}}))
    hooks = load_hooks(paths, NO_PLUGINS, folder=tmp_path)
    labels = [each.label for each in hooks._by_event["Stop"]]
    assert [label.split(" (")[0] for label in labels] == ["echo a", "echo b"]
