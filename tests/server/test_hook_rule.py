"""The `if` of a handler: which calls it is for, and that what it cannot see counts as met."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.hook import HookOutcome, Stop
from perdure.server.hook.rule import Rule
from tests.server.hooking import call, command, group, hooked

FOLDER = Path("/w")


@pytest.mark.parametrize(
    ("rule", "text", "is_met"),
    [
        ("Bash", "anything", True),
        ("Bash(*)", "anything", True),
        ("Bash(git *)", "git push", True),
        ("Bash(git *)", "git", True),
        ("Bash(git *)", "gitk", False),
        ("Bash(git:*)", "git push", True),
        ("Bash(git *)", "ls -l", False),
        ("Bash(git push)", "git push", True),
        ("Bash(git push)", "git push --force", False),
        ("Bash(git * --force)", "git push origin --force", True),
        ("Bash(git  push *)", "git push", False),
        ("Bash(git push *)", "git   push  x", True),
        ("Bash(rm *)", "ls && rm -r x", True),
        ("Bash(rm *)", "ls; rm -r x", True),
        ("Bash(rm *)", "ls\nrm -r x", True),
        ("Bash(rm *)", "cat x | rm -r y", True),
        ("Bash(rm *)", "sleep 9 & rm -r y", True),
        ("Bash(rm *)", "A=1 B=2 rm -r y", True),
        ("Bash(rm *)", "/bin/rm -r y", True),
        ("Bash(rm *)", "echo rm", False),
        ("Bash(rm *)", "", False),
        ("Bash(rm *)", "A=1", False),
        # what the text leaves open
        ("Bash(rm *)", "echo $(rm -r y)", True),
        ("Bash(rm *)", "echo `rm -r y`", True),
        ("Bash(rm *)", "sudo rm -r y", True),
        ("Bash(rm *)", "sh -c 'rm -r y'", True),
        ("Bash(rm *)", "'r'm -r y", True),
        ("Bash(rm *)", "$X -r y", True),
        ("Bash(rm *)", "X=$(pwd) ls", True),
        ("Bash(rm *)", "r\\m -r y", True),
        ("Bash(rm *)", "if rm -r y; then echo; fi", True),
        ("Bash(rm *)", "( rm -r y )", True),
        ("Bash(rm *)", "(rm -r y)", True),
        ("Bash(rm *)", "X='a b' rm -r y", True),
        ("Bash(rm *)", "find . -exec rm {} +", True),
        ("Bash(rm *)", "sh <<E\nrm -r y\nE", True),
        ("Bash(rm *)", ">x rm y", True),
    ],
)
def test_a_rule_of_commands(rule: str, text: str, is_met: bool) -> None:
    assert Rule(rule).meets(call("run_command", command=text), FOLDER) is is_met


@pytest.mark.parametrize(
    ("rule", "path", "is_met"),
    [
        ("Edit(*.ts)", "a.ts", True),
        ("Edit(*.ts)", "src/deep/a.ts", True),
        ("Edit(*.ts)", "a.tsx", False),
        ("Edit(src/*.ts)", "src/a.ts", True),
        ("Edit(src/*.ts)", "src/deep/a.ts", False),
        ("Edit(src/*.ts)", "other/src/a.ts", False),
        ("Edit(src/**)", "src/deep/a.ts", True),
        ("Edit(src/**/a.ts)", "src/a.ts", True),
        ("Edit(/src/**)", "src/a.ts", True),
        ("Edit(./src/**)", "src/a.ts", True),
        ("Edit(src)", "src/deep/a.ts", True),
        ("Edit(src/)", "src/deep/a.ts", True),
        ("Edit(.env)", ".env", True),
        ("Edit(.env)", "xenv", False),
        ("Edit(.env)", "./x/../.env", True),
        ("Edit(//w/src/**)", "src/a.ts", True),
        ("Edit(//etc/**)", "src/a.ts", False),
        ("Edit(?.ts)", "a.ts", True),
        ("Edit(?.ts)", "ab.ts", False),
        ("Read(*.ts)", "a.ts", False),
    ],
)
def test_a_rule_of_paths(rule: str, path: str, is_met: bool) -> None:
    assert Rule(rule).meets(call("edit_file", path=path, old="a", new="b"), FOLDER) is is_met


def test_what_a_rule_does_not_know_counts_as_met() -> None:
    assert Rule("greet(name:x)").meets(call("greet", name="y"), FOLDER)
    assert not Rule("greet(name:x)").is_known
    assert not Rule("greet(name:x)").meets(call("other", name="y"), FOLDER)
    assert Rule("Bash(git *)").meets(call("run_command", command=5), FOLDER)
    assert not Rule("Edit(!*.ts)").is_known
    assert not Rule("Bash(git *)").meets(Stop(session_id="s"), FOLDER)


async def test_a_guard_with_an_if_refuses_what_it_names_and_nothing_else(tmp_path: Path) -> None:
    guard = command("echo ask first >&2; exit 2", **{"if": "Bash(git push *)"})
    hooks = hooked(tmp_path, PreToolUse=[group(guard, matcher="Bash")])
    assert await hooks.fire(call("run_command", command="git status")) == HookOutcome()
    assert hooks.facts == []
    refused = await hooks.fire(call("run_command", command="git status && git push"))
    assert (refused.permission, refused.reason) == ("deny", "ask first")
