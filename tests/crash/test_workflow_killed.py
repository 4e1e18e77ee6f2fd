"""A workflow whose server and whose runtime are killed ends by itself, and tells the truth.

Three steps with real commands in a runtime of its own process. The server is killed with -9 in the
second attempt at the second step, the runtime in the third step. A `perdure workflow run` that
started it all sees it through.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from perdure.testing.scripted_loop import Call, Say, write_script
from tests.serving import REPO, ServerProcess

ONE = "echo one >> one; cat one"
TWO = (
    'echo two >> two; echo "found $(($(wc -l < two) - 1)) before"; '
    "[ $(wc -l < two) != 2 ] || sleep 600"
)
THREE = "echo three >> three; cat three; [ $(wc -l < three) != 1 ] || sleep 600"


def script(command: str) -> str:
    call = Call("run_command", {"command": command}, runs=True)
    return write_script(Say("I shall do it.", calls=[call]), Say("It is done."))


WORKFLOW = {
    "name": "three steps",
    "runtime": "box",
    "retry": {"attempts": 4, "wait_s": 0.2},
    "steps": [
        {"id": "one", "prompt": script(ONE), "check": {"command": "test $(wc -l < one) = 1"}},
        {"id": "two", "prompt": script(TWO), "check": {"command": "test $(wc -l < two) -ge 3"}},
        {"id": "three", "prompt": script(THREE)},
    ],
}


def wait_until(holds: Callable[[], object], what: str) -> None:
    for _ in range(400):
        if holds():
            return
        time.sleep(0.05)
    raise AssertionError(f"it never came to this: {what}")


def lines(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.exists() else 0


def runtime_pids(folder: Path) -> list[int]:
    """The processes of runtimes whose workspace is in this folder."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            command = (entry / "cmdline").read_bytes()
            is_ours = (entry / "cwd").resolve().is_relative_to(folder.resolve())
        except (OSError, ValueError):
            continue
        if b"perdure.runtimes.child" in command and is_ours:
            found.append(int(entry.name))
    return found


def test_a_workflow_survives_the_death_of_its_server_and_of_its_runtime(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (tmp_path / "perdure.toml").write_text(
        '[runtimes.box]\nkind = "subprocess"\nworkspace = "work"\n'
    )
    (tmp_path / "w.yaml").write_text(json.dumps(WORKFLOW))  # JSON is YAML
    with ServerProcess(tmp_path, loop="tests.crash.step_loop:step_loop") as server:
        runner = start_run(server, tmp_path)
        try:
            wait_until(lambda: lines(work / "two") == 2, "the second attempt at step two runs")
            server.kill()
            server.start()
            wait_until(lambda: lines(work / "three") == 1, "step three runs")
            (pid,) = runtime_pids(tmp_path)
            os.kill(pid, signal.SIGKILL)
            said, _ = runner.communicate(timeout=60)
        finally:
            runner.kill()
            runner.wait()
        assert (runner.returncode, said.splitlines()[-1]) == (0, "completed")
        look = httpx.get(f"{server.base}/v1/workflows/w", headers=server.headers).json()
        check_history(look)
        check_effects(work)
        check_transcript(server, look)
        assert "two attempt 2 interrupted" in said
        assert "three attempt 1 interrupted" in said


def start_run(server: ServerProcess, folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "perdure", "workflow", "run", "w.yaml", "--id", "w"]
    return subprocess.Popen(
        [*command, "--server", server.base],
        env=os.environ | {"PYTHONPATH": str(REPO / "src"), "PERDURE_TOKEN": server.token},
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
    )


def reasons(look: dict[str, Any]) -> dict[str, list[str]]:
    return {step["step"]: [each["reason"] for each in step["attempts"]] for step in look["steps"]}


def check_history(look: dict[str, Any]) -> None:
    """Every attempt is there, with how it ended, and what was seen of it."""
    assert look["status"] == "completed"
    assert reasons(look) == {
        "one": ["completed"],
        "two": ["check_failed", "interrupted", "completed"],
        "three": ["interrupted", "completed"],
    }
    _, two, three = look["steps"]
    first, second, third = two["attempts"]
    assert [call["state"] for call in first["seen"]["calls"]] == ["ok"]
    assert [call["state"] for call in second["seen"]["calls"]] == ["interrupted"]
    assert "runtime" in three["attempts"][0]["cause"]
    assert "found 0 before" in second["prompt"], "what the first attempt saw is told in the second"
    assert "A retry is not a rollback" in third["prompt"]
    assert "cut off" in third["prompt"]
    assert third["seen"]["calls"][0]["result"] == "found 2 before\n", "what it found on the disk"
    assert look["note"].startswith("A retry is not a rollback")


def check_effects(work: Path) -> None:
    """What a finished step did was done once; what an attempt left behind is still there."""
    assert (work / "one").read_text() == "one\n"
    assert lines(work / "two") == 3
    assert lines(work / "three") == 2


def check_transcript(server: ServerProcess, look: dict[str, Any]) -> None:
    """Each attempt leads to its turn in a session."""
    for step in look["steps"]:
        for attempt in step["attempts"]:
            place = f"{server.base}/v1/sessions/{attempt['session_id']}/transcript"
            page = httpx.get(
                place, params={"through": attempt["message_id"]}, headers=server.headers
            ).json()
            found = [each for each in page["entries"] if each["id"] == attempt["message_id"]]
            assert found[0]["parts"][0]["text"] == attempt["prompt"]
