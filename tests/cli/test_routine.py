"""`perdure routine` on a server that runs, and what it says when there is none."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from perdure.cli import main
from perdure.cli.command import parser
from tests.serving import REPO, ServerProcess, free_port

LOOP = "perdure.testing.scripted_loop:scripted_by_message"


@pytest.fixture
def perdure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PERDURE_TOKEN", raising=False)

    def run(*arguments: str) -> tuple[int, str, str]:
        status = main(["routine", *arguments])
        said = capsys.readouterr()
        return status, said.out, said.err

    return run


def test_it_finds_the_server_of_this_folder_by_its_settings(
    tmp_path: Path, perdure: Callable[..., tuple[int, str, str]]
) -> None:
    with ServerProcess(tmp_path, loop=LOOP) as server:
        (tmp_path / "perdure.toml").write_text(f"port = {server.port}\ndata = 'data'\n")
        status, out, err = perdure(
            *("add", "watch", "hello", "--every", "1.5h", "--session", "s", "--paused"),
            *("--deadline", "10m", "--jitter", "30", "--overlap", "queue", "--resends", "2"),
        )
        assert (status, err) == (0, "")
        assert out == "watch: paused\n  Every 90 minutes, into session s\n"
        status, out, _ = perdure("show", "watch", "--json")
        look = json.loads(out)
        assert (look["deadline_s"], look["jitter_s"], look["resends"]) == (600, 30, 2)
        assert (look["overlap"], look["runs"]) == ("queue", [])
        status, out, err = perdure("add", "late", "hello", "--at", "2099-12-24T18:00")
        assert (status, err) == (0, "")
        assert "Once, at 2099-12-24T18:00:00+00:00, into session late" in out
        _, out, _ = perdure("ls", "--json")
        assert [json.loads(line)["routine_id"] for line in out.splitlines()] == ["late", "watch"]
        status, out, _ = perdure("run", "watch")
        assert status == 0
        assert "session s, turn" in out

        status, out, err = perdure("change", "watch", "--cron", "0 9 * * *", "--zone", "Asia/Tokyo")
        assert (status, err) == (0, "")
        assert out == "watch: paused\n  At 09:00 every day (Asia/Tokyo), into session s\n"
        perdure("resume", "watch")
        status, out, _ = perdure("change", "watch", "--text", "bye", "--overlap", "skip")
        assert re.findall(r"due .* (09:00:00\+09:00)\n", out) == ["09:00:00+09:00"] * 5
        _, out, _ = perdure("ls")
        assert " 09:00:00+09:00 " in out.splitlines()[-1]
        _, out, _ = perdure("show", "watch")
        assert re.search(r"\+09:00 (started|succeeded) session s", out)
        _, out, _ = perdure("show", "watch", "--json")
        look = json.loads(out)
        assert (look["parts"][0]["text"], look["overlap"], look["deadline_s"]) == (
            "bye",
            "skip",
            600,
        )

        for arguments, code, says in (
            (("change", "watch"), 2, "there is nothing to change"),
            (("change", "none", "--text", "x"), 1, "there is no routine 'none'"),
            (("next", "--cron", "61 * * * *"), 2, "the minute field of '61 * * * *'"),
            (("show", "none"), 1, "there is no routine 'none'"),
            (("add", "watch", "else", "--every", "60"), 1, "exists and does something else"),
            (("next", "--every", "soon"), 2, "--every is a span of time like"),
            (("next", "--at", "noon"), 2, "--at is a time like"),
        ):
            status, out, err = perdure(*arguments)
            assert (status, out) == (code, ""), arguments
            assert err.startswith("perdure: ")
            assert says in err
            assert err.count("\n") == 1


def test_without_a_server_it_says_so(
    tmp_path: Path, perdure: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    status, _, err = perdure("ls")
    assert status == 2
    assert "there is no token" in err
    monkeypatch.setenv("PERDURE_TOKEN", "a-token-of-sixteen-characters")
    place = f"http://127.0.0.1:{free_port()}"
    status, _, err = perdure("ls", "--server", place)
    assert status == 1
    assert f"there is no server at {place}" in err
    for address in ("nowhere", "http://here:99999", "http://[::1"):
        status, _, err = perdure("ls", "--server", address)
        assert status == 2
        assert address in err


def test_every_option_of_every_action_is_documented() -> None:
    text = (REPO / "docs/reference/command-line.md").read_text()
    (verbs,) = (each.choices for each in parser()._actions if isinstance(each.choices, dict))
    (actions,) = (
        each.choices for each in verbs["routine"]._actions if isinstance(each.choices, dict)
    )
    section = text.partition("## `perdure routine ACTION`")[2]
    for name, action in actions.items():
        assert re.search(rf"`{name}\b", section), name
        for option in (o for each in action._actions for o in each.option_strings):
            assert option in {"-h", "--help"} or f"`{option}" in section, (name, option)
