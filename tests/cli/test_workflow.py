"""`perdure workflow` shows what happens and exits with the outcome."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serving import REPO, ServerProcess, free_port

PYTHON = """\
from perdure.workflow import Retry, Step, Workflow

workflow = Workflow("py", [Step("a", "hello"), Step("b", "{{ steps.a.output }} again")])
"""
FAILS = """\
name: fails
steps:
- id: a
  prompt: '{"do": "fail", "message": "broken"}'
  retry: {attempts: 2, wait_s: 0, prompt: "{{ prompt }}"}
"""
HELD = "name: held\nsteps:\n- id: a\n  prompt: hello\n  approve: true\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("server")
    loop = "perdure.testing.scripted_loop:scripted_by_message"
    with ServerProcess(folder, loop=loop) as server:
        yield server


def start(server: ServerProcess, folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "perdure", "workflow", *arguments, "--server", server.base],
        env=os.environ | {"PYTHONPATH": str(REPO / "src"), "PERDURE_TOKEN": server.token},
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(server: ServerProcess, folder: Path, *arguments: str, text: str = "") -> tuple[int, str]:
    """The exit status, and what was said on both streams."""
    with start(server, folder, *arguments) as process:
        said, complained = process.communicate(text, timeout=60)
    return process.returncode, said + complained


def test_a_file_of_python_runs_and_completes(server: ServerProcess, tmp_path: Path) -> None:
    (tmp_path / "w.py").write_text(PYTHON)
    assert run(server, tmp_path, "check", "w.py") == (0, "a\nb after a\n")
    status, said = run(server, tmp_path, "run", "w.py", "--id", "py")
    assert (status, said.splitlines()[-1]) == (0, "completed")
    status, said = run(server, tmp_path, "show", "py", "--json")
    assert json.loads(said)["steps"][1]["attempts"][0]["output"] == "hello again"
    (tmp_path / "none.py").write_text("workflow = 5\n")
    status, said = run(server, tmp_path, "run", "none.py")
    assert (status, "makes no workflow" in said) == (2, True)


def test_a_failure_is_shown_with_its_attempts_and_is_1(
    server: ServerProcess, tmp_path: Path
) -> None:
    status, said = run(server, tmp_path, "run", "-", "--id", "fails", text=FAILS)
    assert status == 1
    assert "a attempt 1 failed: broken; again at" in said
    assert "(a retry is not a rollback)" in said
    assert said.splitlines()[-1] == "failed: step 'a': failed: broken"


def test_one_that_is_cancelled_is_3(server: ServerProcess, tmp_path: Path) -> None:
    (tmp_path / "held.yaml").write_text(HELD)
    with start(server, tmp_path, "run", "held.yaml", "--id", "held") as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "waits for an approval: perdure workflow approve held a" in line:
                break
        assert run(server, tmp_path, "cancel", "held", "--why", "enough")[0] == 0
        said, _ = process.communicate(timeout=60)
    assert (process.returncode, said.splitlines()[-1]) == (3, "cancelled: enough")


def test_what_is_wrong_is_2_and_nothing_runs(server: ServerProcess, tmp_path: Path) -> None:
    wrong = HELD.replace("prompt: hello", "prompt: '{{ inputs.x }}'\n  after: [b]")
    status, said = run(server, tmp_path, "run", "-", "--id", "wrong", text=wrong)
    assert status == 2
    assert said.splitlines() == [
        "perdure: -: line 4, steps[0].prompt: there is no input 'x'; there are: none",
        "perdure: -: line 5, steps[0].after[0]: there is no step 'b'; there are a",
    ]
    assert run(server, tmp_path, "show", "wrong")[0] == 1
    status, said = run(server, tmp_path, "run", "nowhere.yaml")
    assert (status, "cannot be read" in said) == (2, True)


def test_a_server_that_is_not_there_is_said(tmp_path: Path) -> None:
    (tmp_path / "held.yaml").write_text(HELD)
    address = f"http://127.0.0.1:{free_port()}"
    ran = subprocess.run(
        [sys.executable, "-m", "perdure", "workflow", "run", "held.yaml", "--server", address],
        env=os.environ | {"PYTHONPATH": str(REPO / "src"), "PERDURE_TOKEN": "x" * 20},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (ran.returncode, "there is no server at" in ran.stderr) == (1, True)


UNDOING = """\
name: undoing
steps:
- {id: a, prompt: hello, compensate: undo}
- {id: b, prompt: hello, compensate: undo}
- {id: undo, prompt: sorry}
"""


def test_a_compensation_step_is_told_apart(server: ServerProcess, tmp_path: Path) -> None:
    (tmp_path / "w.yaml").write_text(UNDOING)
    told = "a\nb after a\nundo only if a or b fail\n"
    assert run(server, tmp_path, "check", "w.yaml") == (0, told)
    assert run(server, tmp_path, "run", "w.yaml", "--id", "undoing")[0] == 0
    assert "\n  undo: not needed\n" in run(server, tmp_path, "show", "undoing")[1]
    _, listed = run(server, tmp_path, "ls")
    assert listed.split()[:5] == ["WORKFLOW", "STATUS", "DONE", "STARTED", "NAME"]
    (row,) = (line.split() for line in listed.splitlines() if line.startswith("undoing"))
    assert row[1:3] == ["completed", "2/2"]


def test_a_pause_and_its_end_are_said_once_in_the_order_of_what_happened(
    server: ServerProcess, tmp_path: Path
) -> None:
    (tmp_path / "held.yaml").write_text(HELD)
    with start(server, tmp_path, "run", "held.yaml", "--id", "paused") as process:
        assert process.stdout is not None
        said = [next(process.stdout), next(process.stdout)]
        assert run(server, tmp_path, "pause", "paused", "--why", "lunch")[0] == 0
        said.append(next(process.stdout))
        assert run(server, tmp_path, "approve", "paused", "a", "--reason", "fine")[0] == 0
        said.append(next(process.stdout))
        assert run(server, tmp_path, "resume", "paused")[0] == 0
        rest, _ = process.communicate(timeout=60)
    told = "".join(said) + rest
    assert "paused: lunch\na approve: fine\n" in told
    assert told.count("paused: lunch") == told.count("it is no longer paused") == 1
    assert told.index("a approve: fine") < told.index("a attempt 1 started")
    _, again = run(server, tmp_path, "follow", "paused")
    assert again.splitlines()[0] == "a approve: fine"


def test_a_step_that_completed_although_its_command_failed_says_so(tmp_path: Path) -> None:
    text = "name: w\nsteps:\n- {id: a, prompt: 'true'}\n- {id: b, prompt: 'false'}\n"
    with ServerProcess(tmp_path, loop="shell") as server:
        status, said = run(server, tmp_path, "run", "-", text=text)
    assert status == 0
    assert "a attempt 1 completed\n" in said
    assert "b attempt 1 completed, although its last tool call failed\n" in said
