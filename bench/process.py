"""A server in a process of its own, and what the kernel says of it: CPU time and memory."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

ROOT = Path(__file__).parents[1]
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
FIRST, LAST = min(os.sched_getaffinity(0)), max(os.sched_getaffinity(0))
"""The core of the servers, and the one of who measures them."""


def raise_limit() -> None:
    """Lets this process, and those that it starts, have as many connections as it may."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def cpu_s_of(process_id: int) -> float:
    """CPU seconds of a process and its threads so far, without its children."""
    total = 0
    for task in Path(f"/proc/{process_id}/task").iterdir():
        try:
            total += int((task / "schedstat").read_text().split()[0])
        except FileNotFoundError:  # this kernel counts in ticks only
            fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) * TICK_S
    return total / 1e9


def _family(process_id: int) -> list[int]:
    """A process and its children."""
    children = Path(f"/proc/{process_id}/task/{process_id}/children").read_text()
    return [process_id, *map(int, children.split())]


class Process:
    """A command that runs inside the block, on the first core where `is_pinned`."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        folder: Path = ROOT,
        environment: Mapping[str, str] | None = None,
        is_pinned: bool = True,
        ends_with_input: bool = True,
    ) -> None:
        self._command = ["taskset", "-c", str(FIRST), *command] if is_pinned else [*command]
        self._ends_with_input = ends_with_input
        self._folder = folder
        self._environment = {**os.environ, **(environment or {})}

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=self._folder,
            env=self._environment,
            text=True,
        )
        return self

    def write_line(self, line: str) -> None:
        """Gives it a line on its standard input."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def read_line(self) -> str:
        """The next line of its standard output."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            sys.exit(f"{' '.join(self._command)} ended with {self._process.wait()}")
        return line.rstrip("\n")

    @property
    def cpu_s(self) -> float:
        """CPU seconds so far, of all its processes."""
        return sum(cpu_s_of(each) for each in _family(self._process.pid))

    @property
    def resident_bytes(self) -> int:
        """Memory that it has now, in all its processes."""
        return sum(
            int(Path(f"/proc/{each}/statm").read_text().split()[1]) * resource.getpagesize()
            for each in _family(self._process.pid)
        )

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        if not self._ends_with_input:
            self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
