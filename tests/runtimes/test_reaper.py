"""What a dead runtime left behind is ended at the next start, and nothing else is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from perdure.runtimes import reaper
from perdure.testing.runtime_cases import lives, pid_in, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it reads what Linux has in /proc")

# A runtime runs a command that flees: a session of its own, and its watcher is killed with it.
_OWNER = """
import asyncio, os, sys
from perdure.runtimes.local import open_local
from perdure.testing.runtime_cases import use

async def main():
    runtime = await open_local(sys.argv[1])
    await use(runtime, "run_command", command="setsid sleep 600 & echo $! > fled; sleep 600")

asyncio.run(main())
"""


async def test_what_fled_is_ended_when_its_owner_is_dead(tmp_path: Path) -> None:
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    owner = subprocess.Popen([sys.executable, "-c", _OWNER, str(tmp_path)], env=env)  # noqa: ASYNC220
    fled = -1
    try:
        fled = await pid_in(tmp_path / "fled")
        assert fled not in reaper.reap()
        assert lives(fled)
        owner.send_signal(signal.SIGKILL)
        owner.wait()
        await until(lambda: fled in reaper.reap() or not lives(fled), "it is ended")
        await until(lambda: not lives(fled), "it is gone")
    finally:
        owner.kill()
        owner.wait()
        if fled > 0 and lives(fled):
            os.kill(fled, signal.SIGKILL)


def test_what_carries_the_mark_of_another_machine_is_left_alone() -> None:
    mark = reaper.mark().replace("/", "-elsewhere/", 1)
    dead = mark.rpartition("/")[0] + "/1"
    child = subprocess.Popen(["sleep", "600"], env={**os.environ, reaper.VARIABLE: dead})
    try:
        assert child.pid not in reaper.reap()
        assert lives(child.pid)
    finally:
        child.kill()
        child.wait()


def test_what_carries_the_mark_of_a_process_that_began_at_another_time_is_ended() -> None:
    dead = reaper.mark().rpartition("/")[0] + "/1"  # the number is taken by somebody else now
    child = subprocess.Popen(["sleep", "600"], env={**os.environ, reaper.VARIABLE: dead})
    try:
        assert child.pid in reaper.reap()
        assert child.wait() == -signal.SIGKILL
    finally:
        child.kill()
        child.wait()
