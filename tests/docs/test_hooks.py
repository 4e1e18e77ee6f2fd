"""The docs of hooks and plugins: examples do what they say, and nothing is left out."""

from __future__ import annotations

import ast
import inspect
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from msgspec.structs import fields

import perdure.hook
import perdure.plugin
from perdure.hook import EVENTS, HookEvent, HookOutcome, SessionStart, Stop
from perdure.plugin import Plugins
from perdure.server.hook.command import MAX_END_TIMEOUT_S, MAX_TIMEOUT_S
from perdure.server.hook.file import FOREIGN_TYPES, read_hook_file
from perdure.server.hook.hooks import MAX_GO_ONS
from perdure.server.hook.setup import load_hooks
from perdure.server.hook.tool_name import KNOWN
from tests.docs.test_docs import undocumented
from tests.server.hooking import NO_PLUGINS, Hooked, call
from tests.server.packages import install

DOCS = Path(__file__).parents[2] / "docs"
HOOK = (DOCS / "howto/write-a-hook.md").read_text()
PLUGIN = (DOCS / "howto/write-a-plugin.md").read_text()
HOOKS_REFERENCE = (DOCS / "reference/hooks.md").read_text()
PLUGINS_REFERENCE = (DOCS / "reference/plugins.md").read_text()


def blocks(text: str, kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


@pytest.fixture
def howto(tmp_path: Path) -> Hooked:
    (content,) = blocks(HOOK, "json")
    (tmp_path / "hooks.json").write_text(content)
    for script in blocks(HOOK, "sh"):
        if name := re.search(r"^# (\S+\.sh)$", script, re.MULTILINE):
            (tmp_path / name[1]).write_text(script)
            (tmp_path / name[1]).chmod(0o700)
    assert read_hook_file(tmp_path / "hooks.json").unsupported == ()
    return Hooked(load_hooks([tmp_path / "hooks.json"], NO_PLUGINS, folder=tmp_path))


async def test_the_guard_refuses_and_lets_through(howto: Hooked) -> None:
    refused = await howto.fire(call("run_command", command="rm -rf /"))
    assert refused.permission == "deny"
    assert "trash/" in (refused.reason or "")
    assert await howto.fire(call("run_command", command="ls")) == HookOutcome()


async def test_the_guard_refuses_when_it_is_missing(howto: Hooked, tmp_path: Path) -> None:
    (tmp_path / "no-delete.sh").unlink()
    assert (await howto.fire(call(command="ls"))).permission == "deny"


async def test_the_other_hooks_of_the_howto_do_what_it_says(howto: Hooked, tmp_path: Path) -> None:
    (said,) = (await howto.fire(SessionStart(session_id="s", source="resume"))).context
    assert said.startswith("On this machine it is ")
    (tmp_path / "Makefile").write_text("test:\n\t@echo one is red; false\n")
    failing = await howto.fire(Stop(session_id="s"))
    assert "one is red" in (failing.goes_on or "")
    (tmp_path / "Makefile").write_text("test:\n\t@true\n")
    assert await howto.fire(Stop(session_id="s")) == HookOutcome()


def test_the_line_to_try_a_hook_says_what_it_is_said_to(howto: Hooked, tmp_path: Path) -> None:
    (line,) = (each for each in blocks(HOOK, "sh") if each.startswith("echo"))
    ran = subprocess.run(
        ["sh", "-c", line], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert (ran.stdout, ran.stderr.startswith("folders are not deleted")) == ("2\n", True)


async def test_the_answer_in_the_howto_changes_the_command(tmp_path: Path) -> None:
    (program,) = blocks(HOOK, "python")
    (tmp_path / "nice.py").write_text(program)
    handler = {"type": "command", "command": sys.executable, "args": ["nice.py", "run"]}
    (tmp_path / "hooks.json").write_text(
        json.dumps({"hooks": {"PreToolUse": [{"hooks": [handler]}]}})
    )
    hooks = Hooked(load_hooks([tmp_path / "hooks.json"], NO_PLUGINS, folder=tmp_path))
    outcome = await hooks.fire(call(command="make"))
    assert outcome == HookOutcome(permission="allow", changed_input={"command": "nice make"})


async def test_the_plugin_of_the_howto_adds_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tomllib.loads(blocks(PLUGIN, "toml")[0])["project"]
    (entries,) = project["entry-points"].values()
    source = blocks(PLUGIN, "python")[0]
    install(monkeypatch, tmp_path, project["name"], project["version"], entries, source)
    plugins = Plugins()
    plugins.check()
    plugin = plugins.sound["greeter"]
    assert str(plugin) == "greeter (greeter 1.0, tools: 1, loops: 1, hooks: 2, routes: 1)"
    assert callable(plugins.loop("parrot"))
    hooks = Hooked(load_hooks([], plugins, folder=tmp_path))
    denied = await hooks.fire(call("greet", name="you", loudly=True))
    assert (denied.permission, denied.reason) == ("deny", "nobody is shouted at")
    assert await hooks.fire(call("greet", name="you")) == HookOutcome()
    assert (await hooks.fire(SessionStart(session_id="s", source="startup"))).context == (
        "Everybody here is greeted first.",
    )
    disabled = tomllib.loads(blocks(PLUGIN, "toml")[1])["plugins"]["disabled"]
    assert Plugins(disabled=disabled).sound == {}


def test_every_name_for_plugins_is_documented() -> None:
    for module in (perdure.hook, perdure.plugin):
        assigned = {
            target.id
            for node in ast.parse(inspect.getsource(module)).body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        defined = {
            name
            for name, value in vars(module).items()
            if getattr(value, "__module__", None) == module.__name__
        }
        names = {name for name in assigned | defined if name[0] != "_" and len(name) > 1}
        assert undocumented(sorted(names), PLUGINS_REFERENCE) == []


def test_every_event_has_its_rows() -> None:
    common = {field.name for field in fields(HookEvent)}
    for name, event in EVENTS.items():
        (row,) = (line for line in PLUGINS_REFERENCE.split("\n") if line.startswith(f"| `{name}`"))
        own = [field.name for field in fields(event) if field.name not in common]
        assert re.findall(r"`(\w+)`", row)[1:] == own
        assert f"\n| `{name}` |" in HOOKS_REFERENCE
    assert undocumented([field.name for field in fields(HookOutcome)], PLUGINS_REFERENCE) == []


def test_every_tool_and_limit_of_hooks_is_documented() -> None:
    for name, tool in KNOWN.items():
        (row,) = (
            line
            for line in HOOKS_REFERENCE.split("\n")
            if re.match(rf"\| [^|]*`{name}`[^|]*\| `{tool.name}` \|", line)
        )
        assert undocumented([*tool.arguments.values(), *tool.also], row) == []
    assert undocumented(sorted(FOREIGN_TYPES), HOOKS_REFERENCE) == []
    for number in (MAX_GO_ONS, f"{MAX_TIMEOUT_S:g}", f"{MAX_END_TIMEOUT_S:g}"):
        assert re.search(rf"\b{number}\b", HOOKS_REFERENCE)
