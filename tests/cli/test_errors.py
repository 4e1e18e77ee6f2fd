"""Bad input to the command line: one line that says what to do, a status, and no stack trace."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.cli import main
from tests.cli.terminal import run

CASES = {
    "no verb": ([], 2, "VERB"),
    "an unknown verb": (["dance"], 2, "invalid choice"),
    "an unknown option": (["ls", "--quickly"], 2, "unrecognized arguments: --quickly"),
    "no session": (["show"], 2, "SESSION"),
    "two forms": (["show", "s", "--json", "--tree"], 2, "not allowed with"),
    "an unknown scheme": (["ls", "--store", "ftp://x"], 2, "sqlite:///file.db"),
    "no scheme": (["ls", "--store", "sessions.db"], 2, "sqlite:///file.db"),
    "two slashes": (["ls", "--store", "sqlite://s.db"], 2, "sqlite:///relative/path"),
    "a memory store": (["ls", "--store", "memory://"], 2, "ends with its process"),
    "an empty id": (["chat", ""], 2, "it is empty"),
    "an id with an escape": (["chat", "a\x1bb"], 2, "control characters"),
    "an id of 513 bytes": (["chat", "a" * 513], 2, "513 bytes"),
    "a path that is not UTF-8": (["chat", "s", "--store", "sqlite:///\udcff.db"], 1, "UTF-8"),
    "an unknown loop": (["chat", "s", "--loop", "nothing-like-it"], 2, "nothing-like-it"),
    "a workspace that is not there": (["chat", "s", "--workspace", "nowhere"], 2, "nowhere"),
    "a server's workspace that is not there": (["serve", "--workspace", "nowhere"], 2, "nowhere"),
    "a port that is none": (["serve", "--port", "70000"], 2, "--port"),
    "a port that is no number": (["serve", "--port", "http"], 2, "--port"),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_input_is_one_line(case: str, tmp_path: Path) -> None:
    arguments, status, text = CASES[case]
    ran = run(*arguments, cwd=tmp_path)
    assert ran.returncode == status, ran.stderr
    assert ran.stderr.startswith("perdure: ")
    assert ran.stderr.count("\n") == 1
    assert text in ran.stderr
    assert ran.stdout == ""
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_store_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("not a database, and longer than any header " * 100)
    before = (tmp_path / "notes.txt").read_bytes()
    for verb in (["ls"], ["show", "s"], ["verify"], ["chat", "s", "--loop", "shell"]):
        ran = run(*verb, "--store", "sqlite:///notes.txt", cwd=tmp_path)
        assert ran.returncode == 1, ran.stderr
        assert ran.stderr.startswith("perdure: ")
        assert ran.stderr.count("\n") == 1
    assert (tmp_path / "notes.txt").read_bytes() == before


def test_a_file_that_is_no_journal_is_damage_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "notes.jsonl").write_text("dear diary\n")
    for verb in ("show", "verify"):
        ran = run(verb, "notes", "--store", "jsonl:///s", cwd=tmp_path)
        assert ran.returncode == 1
        assert "notes.jsonl, line 1" in ran.stdout + ran.stderr
        assert "Traceback" not in ran.stderr


def test_an_unknown_session_is_named(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    for verb in ("show", "verify"):
        ran = run(verb, "nobody", "--store", "jsonl:///s", cwd=tmp_path)
        assert (ran.returncode, ran.stdout) == (1, "")
        assert "no session 'nobody'" in ran.stderr


def test_help_names_every_verb(tmp_path: Path) -> None:
    shown = run("--help", cwd=tmp_path).stdout
    for verb in ("serve", "chat", "ls", "show", "verify"):
        assert f"\n    {verb} " in shown
        assert run(verb, "--help", cwd=tmp_path).returncode == 0


MODULE = """
async def loop(context):
    yield None


def failing():
    raise RuntimeError("no luck")


def broken():
    async def run(context):
        raise ValueError
        yield

    return run
"""


@pytest.mark.parametrize(
    ("name", "status", "told"),
    [
        ("loop", 2, "'mine:loop' is a loop, not a loop factory"),
        ("absent", 2, "the module 'mine' has no 'absent'"),
        ("failing", 1, "the loop 'mine:failing' cannot start: RuntimeError: no luck"),
        ("broken", 1, "the run failed: ValueError"),
    ],
)
def test_a_mistake_in_a_loop_of_ones_own_is_one_line(
    name: str, status: int, told: str, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(MODULE)
    ran = run("chat", "s", "--loop", f"mine:{name}", cwd=tmp_path, stdin="hi\n")
    assert ran.returncode == status
    assert ran.stderr.startswith("perdure: ")
    assert ran.stderr.count("\n") == 1
    assert told in ran.stderr


@pytest.mark.parametrize("verb", [["ls"], ["verify"], ["show", "s"], ["export", "s", "-"]])
def test_a_reading_verb_makes_no_store_of_an_emptied_file(
    verb: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "s.db"
    file.touch()
    assert main([*verb, "--store", f"sqlite:///{file}"]) == 1
    assert "is empty (0 bytes)" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["s.db"]
    assert file.stat().st_size == 0
