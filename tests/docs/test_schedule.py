"""The page about routines: its commands work on a server, and its file is one that it reads."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

from perdure.server.routine.table import read_table
from tests.serving import REPO, ServerProcess

PAGE = (REPO / "docs/howto/schedule-a-routine.md").read_text()


def block(kind: str) -> str:
    (found,) = re.findall(rf"^```{kind}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    return str(found)


def test_the_commands_of_the_page_work(tmp_path: Path) -> None:
    with ServerProcess(
        tmp_path, loop="perdure.testing.scripted_loop:scripted_by_message"
    ) as server:
        said = []
        for line in block("sh").splitlines():
            program, *arguments = shlex.split(line)
            assert program == "perdure"
            ran = subprocess.run(
                [sys.executable, "-m", "perdure", *arguments, "--server", server.base],
                env=os.environ | {"PYTHONPATH": str(REPO / "src"), "PERDURE_TOKEN": server.token},
                cwd=tmp_path,
                capture_output=True,
                text=True,
                check=False,
                timeout=30,
            )
            assert (ran.returncode, ran.stderr) == (0, ""), line
            said.append(ran.stdout)
        made, following, listed, shown, run, changed, paused, resumed, removed = said
        assert "At 09:30 on Monday through Friday (Europe/Berlin)" in changed
        assert "morning: enabled" in made
        assert made.count("due") == 5
        assert len(following.splitlines()) == 6
        assert "morning  enabled" in listed
        assert "At 09:00 on Monday through Friday (Europe/Berlin)" in shown
        assert "session morning, turn" in run
        assert "morning: paused" in paused
        assert "morning: enabled" in resumed
        assert removed == "morning: deleted\n"


def test_the_file_of_the_page_is_one_that_a_server_reads() -> None:
    found = read_table(tomllib.loads(block("toml")))
    assert list(found) == ["morning", "watch"]
    assert found["watch"].every_s == 900
