"""A program that is spoken to in lines: cut off at any moment, nothing of it is left."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from perdure.loops.command import Command, read_message

STEPS = 30


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def cut_off_after(steps: int, folder: Path) -> bool:
    """Starts a program and is cancelled after so many steps; whether it had started by then."""
    command = Command(grace_s=0.1)
    program = [sys.executable, "-c", "import time; time.sleep(60)"]
    starting = asyncio.create_task(command.start(program, cwd=folder, env=dict(os.environ)))
    for _ in range(steps):
        await asyncio.sleep(0)
    has_started = starting.done()
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    async with asyncio.timeout(10):
        await command.end()
    return has_started


async def test_a_start_that_is_cut_off_anywhere_can_be_ended(tmp_path: Path) -> None:
    await cut_off_after(STEPS, tmp_path)
    before = descriptors()
    steps = 1
    while not await cut_off_after(steps, tmp_path):
        steps += 1
        assert steps < STEPS
    await asyncio.sleep(0)
    assert steps > 2
    assert descriptors() == before


def test_a_line_is_a_message_whatever_its_text() -> None:
    assert read_message(b'{"a": "\\ud800"}') == {"a": "\ud800"}
    assert read_message(b'{"a": NaN}') is not None
    for line in (b"", b"no JSON", b"[1]", b"[" * 100_000, b'{"a":' * 100_000):
        assert read_message(line) is None
