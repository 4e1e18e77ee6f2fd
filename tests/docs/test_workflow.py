"""The page about workflows: its commands work on a server, and its file is one that it runs."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

from tests.serving import REPO, ServerProcess

PAGE = (REPO / "docs/howto/run-a-workflow.md").read_text()


def block(kind: str) -> str:
    (found,) = re.findall(rf"^```{kind}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    return str(found)


def run(server: ServerProcess, folder: Path, line: str) -> subprocess.CompletedProcess[str]:
    program, *arguments = shlex.split(line)
    assert program == "perdure"
    return subprocess.run(
        [sys.executable, "-m", "perdure", *arguments, "--server", server.base],
        env=os.environ | {"PYTHONPATH": str(REPO / "src"), "PERDURE_TOKEN": server.token},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_the_commands_of_the_page_work(tmp_path: Path) -> None:
    (tmp_path / "release.yaml").write_text(block("yaml"))
    with ServerProcess(tmp_path, loop="shell") as server:
        said = []
        for line in block("sh").splitlines():
            if " approve " in line:
                wait_until_it_waits(server, tmp_path)
            ran = run(server, tmp_path, line)
            assert (ran.returncode, ran.stderr) == (0, ""), line
            said.append(ran.stdout)
    checked, started, _, followed, shown, listed, removed = said
    assert checked.splitlines()[2] == "publish after build,notes"
    assert started == "workflow r1: release\n"
    assert followed.splitlines()[-1] == "completed"
    approved = followed.index("publish approve: looks good")
    assert approved < followed.index("publish attempt 1 started")
    assert checked.splitlines()[3] == "withdraw only if publish fails"
    assert "  withdraw: not needed" in shown
    assert listed.splitlines()[0].split() == ["WORKFLOW", "STATUS", "DONE", "STARTED", "NAME"]
    assert listed.splitlines()[1].startswith("r1        completed  3/3")
    assert removed == "r1: deleted\n"
    assert (tmp_path / "published").read_text() == "published 1.2\n"


def wait_until_it_waits(server: ServerProcess, folder: Path) -> None:
    for _ in range(100):
        if "publish: waiting" in run(server, folder, "perdure workflow show r1").stdout:
            return
        time.sleep(0.1)
    raise AssertionError("publish never waited")


def test_what_is_wrong_with_a_file_is_said_as_on_the_page(tmp_path: Path) -> None:
    (said,) = re.findall(r"^perdure: (.*)$", PAGE, re.MULTILINE)
    wrong = block("yaml").replace("{{ inputs.version }} >", "{{ inputs.verison }} >")
    (tmp_path / "release.yaml").write_text(wrong)
    check = shlex.split("workflow check release.yaml --input version=1")
    ran = subprocess.run(
        [sys.executable, "-m", "perdure", *check],
        env=os.environ | {"PYTHONPATH": str(REPO / "src")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (2, "", f"perdure: {said}\n")
