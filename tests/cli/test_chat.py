"""`chat`: a conversation on a terminal or a pipe that survives whatever ends it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import perdure
from perdure import Message
from perdure.testing import Call, Say, write_script
from tests.cli.terminal import Terminal, run

SHELL = ("--loop", "shell")
SCRIPTED = ("--loop", "perdure.testing:scripted_by_message")


def stored(folder: Path, session_id: str) -> list[Message]:
    async def load() -> list[Message]:
        async with perdure.open_store(f"sqlite:///{folder}/perdure-data/sessions.db") as store:
            agent = await perdure.open(session_id, store=store)
            return agent.messages()

    return asyncio.run(load())


def test_each_line_of_a_pipe_is_a_message(tmp_path: Path) -> None:
    ran = run("chat", "s", *SHELL, cwd=tmp_path, stdin="echo one\n\necho two")
    assert (ran.returncode, ran.stderr) == (0, "")
    shown = ran.stdout.splitlines()
    assert shown == [
        '→ shell {"command": "echo one"}',
        "one",
        '→ shell {"command": "echo two"}',
        "two",
    ]
    roles = [message.role for message in stored(tmp_path, "s")]
    assert roles == ["user", "assistant", "tool"] * 2


def test_the_next_chat_goes_on_with_the_conversation(tmp_path: Path) -> None:
    assert run("chat", "s", *SHELL, cwd=tmp_path, stdin="echo one\n").returncode == 0
    assert run("chat", "s", *SHELL, cwd=tmp_path, stdin="echo two\n").returncode == 0
    assert [message.text for message in stored(tmp_path, "s") if message.role == "user"] == [
        "echo one",
        "echo two",
    ]


def test_a_run_that_fails_is_one_line_and_the_next_one_goes_on(tmp_path: Path) -> None:
    lines = write_script(Say("partly", cut="fail")) + "\nhello again\n"
    ran = run("chat", "s", *SCRIPTED, cwd=tmp_path, stdin=lines)
    assert ran.returncode == 1
    assert ran.stderr.startswith("perdure: the run failed: ")
    assert ran.stderr.count("\n") == 1
    assert ran.stdout == "partly\nhello again\n"


def test_what_parallel_tools_write_says_whose_it_is(tmp_path: Path) -> None:
    calls = [
        Call("left", output=["l1\n", "l2\n"], delay_s=0.05),
        Call("right", output=["r1\n", "r2\n"], delay_s=0.05),
    ]
    script = write_script(Say("Both.", calls=calls), Say("Done."))
    shown = run("chat", "s", *SCRIPTED, cwd=tmp_path, stdin=script + "\n").stdout.splitlines()
    assert shown[0] == "Both."
    assert shown[-1] == "Done."
    speaker, said = "", {"→ left null": list[str](), "→ right null": list[str]()}
    for line in shown[1:-1]:
        if line in said:
            speaker = line
        else:
            said[speaker].append(line)
    assert said == {"→ left null": ["l1", "l2"], "→ right null": ["r1", "r2"]}


def test_text_is_shown_while_it_comes_and_ctrl_d_leaves(tmp_path: Path) -> None:
    with Terminal("chat", "s", *SHELL, cwd=tmp_path) as terminal:
        at = terminal.wait_for("session s, new")
        at = terminal.wait_for("> ", after=at)
        terminal.type("echo first; read nothing; sleep 60\n")
        at = terminal.wait_for("\nfirst\n", after=at)
        terminal.interrupt()
        at = terminal.wait_for("[stopped; what was shown is kept]", after=at)
        at = terminal.wait_for("> ", after=at)
        terminal.type("echo second\n")
        at = terminal.wait_for("\nsecond\n", after=at)
        terminal.wait_for("> ", after=at)
        assert terminal.end() == 0
    messages = stored(tmp_path, "s")
    (cut,) = messages[2].tool_results
    assert cut.interrupted
    assert cut.text.startswith("first\n")
    assert messages[5].tool_results[0].text == "second\n"


def test_ctrl_c_at_the_prompt_clears_the_line(tmp_path: Path) -> None:
    with Terminal("chat", "s", *SHELL, cwd=tmp_path) as terminal:
        at = terminal.wait_for("> ")
        terminal.interrupt_prompt()
        at = terminal.wait_for("> ", after=at)
        terminal.type("echo still here\n")
        at = terminal.wait_for("\nstill here\n", after=at)
        terminal.wait_for("> ", after=at)
        assert terminal.end() == 0


def test_a_killed_chat_says_so_when_it_is_opened_again(tmp_path: Path) -> None:
    with Terminal("chat", "s", *SHELL, cwd=tmp_path) as terminal:
        terminal.wait_for("> ")
        terminal.type("echo shown; sleep 60\n")
        terminal.wait_for("\nshown\n")
        terminal.kill()
    with Terminal("chat", "s", *SHELL, cwd=tmp_path) as terminal:
        at = terminal.wait_for("user: echo shown; sleep 60")
        command = json.dumps({"command": "echo shown; sleep 60"})
        at = terminal.wait_for(f"! interrupted: → shell {command} gave no result", after=at)
        at = terminal.wait_for("> ", after=at)
        terminal.type("echo goes on\n")
        at = terminal.wait_for("\ngoes on\n", after=at)
        terminal.wait_for("> ", after=at)
        assert terminal.end() == 0
    results = [result for message in stored(tmp_path, "s") for result in message.tool_results]
    assert [result.interrupted for result in results] == [True, False]


def test_tool_output_commands_no_terminal(tmp_path: Path) -> None:
    with Terminal("chat", "s", *SHELL, cwd=tmp_path) as terminal:
        terminal.wait_for("> ")
        terminal.type("printf 'a\\033]0;owned\\007b\\n'\n")
        terminal.wait_for("a␛]0;owned␇b\n")
        assert not {"\x1b", "\x07"} & set(terminal.shown)
