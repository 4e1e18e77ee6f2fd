from __future__ import annotations

import os
import subprocess
import sys
from asyncio.subprocess import PIPE, Process, create_subprocess_exec
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

REPO = Path(__file__).parents[2]


class Children:
    """Starts `tests.faults.child` processes; none outlives its test."""

    def __init__(self) -> None:
        self._started: list[Process] = []

    async def start(self, verb: str, *arguments: object) -> Process:
        path = os.pathsep.join((str(REPO / "src"), str(REPO)))
        child = await create_subprocess_exec(
            *(sys.executable, "-m", "tests.faults.child", verb, *map(str, arguments)),
            stdin=PIPE,
            stdout=PIPE,
            env=os.environ | {"PYTHONPATH": path},
            cwd=REPO,
        )
        self._started.append(child)
        return child

    async def end(self) -> None:
        for child in self._started:
            if child.returncode is None:
                child.kill()
            await child.communicate()


@pytest.fixture
async def children() -> AsyncIterator[Children]:
    all_of_them = Children()
    yield all_of_them
    await all_of_them.end()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of two MiB in memory; needs root, and under CI is not done without."""
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)]
    mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        reason = f"no small file system can be mounted here: {mounted.stderr.strip()}"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)
