from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from perdure.clock import monotonic, new_id
from perdure.errors import ConfigurationError, RuntimeLostError
from perdure.runtimes.child import Charge
from perdure.runtimes.command_tool import CommandLimits
from perdure.runtimes.contract import Runtime
from perdure.runtimes.subprocess_runtime import start_subprocess
from perdure.testing import RuntimeContract
from perdure.testing.runtime_cases import lives, pid_in, until, use


def charge(workspace: Path, *, lost_after_s: float = 15.0) -> Charge:
    return Charge(str(workspace), "sub", new_id(), lost_after_s)


class TestSubprocessRuntime(RuntimeContract):
    @asynccontextmanager
    async def open_runtime(self, workspace: Path) -> AsyncIterator[Runtime]:
        runtime = await start_subprocess(charge(workspace))
        try:
            yield runtime
        finally:
            await runtime.close()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
async def test_one_that_dies_or_stands_still_is_lost_in_time_and_leaves_nothing(
    number: signal.Signals, tmp_path: Path
) -> None:
    runtime = await start_subprocess(charge(tmp_path, lost_after_s=1))
    try:
        command = "trap '' TERM; echo $$ > pid; sleep 600; sleep 600"
        call = asyncio.create_task(use(runtime, "run_command", command=command))
        pid = await pid_in(tmp_path / "pid")
        os.kill(runtime.pid, number)
        began = monotonic()
        with pytest.raises(RuntimeLostError):
            await call
        assert monotonic() - began < 4
        assert await runtime.until_lost()
        await until(lambda: not lives(runtime.pid) and not lives(pid), "both are gone")
        with pytest.raises(RuntimeLostError):
            await runtime.tools()
    finally:
        await runtime.close()


async def test_one_that_cannot_be_what_it_is_asked_to_be_says_why(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be opened"):
        await start_subprocess(charge(tmp_path / "nowhere"))


_OWNER = """
import asyncio, sys
from pathlib import Path
from perdure.runtimes.subprocess_runtime import start_subprocess
from perdure.testing.runtime_cases import use
from tests.runtimes.test_subprocess import charge

async def main():
    runtime = await start_subprocess(charge(Path(sys.argv[1])))
    print(runtime.pid, flush=True)
    await use(runtime, "run_command", command="echo $$ > pid; sleep 600")

asyncio.run(main())
"""


async def test_a_command_that_never_stops_writing_takes_bounded_memory(tmp_path: Path) -> None:
    limits = CommandLimits(max_output_bytes=4 << 20)
    asked = Charge(str(tmp_path), "sub", new_id(), 15.0, limits=limits)
    runtime = await start_subprocess(asked)
    try:
        await runtime.tools()
        before = peak_bytes(runtime.pid)
        shown: list[str] = []
        for _ in range(3):
            endless = await use(runtime, "run_command", command="yes", show=shown.append)
            assert endless.is_error
            assert endless.text[: 4 << 20] == "y\n" * (2 << 20)
            assert "more than" in endless.text[4 << 20 :]
        await until(lambda: sum(map(len, shown)) == 3 * (4 << 20), "all of it is shown")
        # Each result is there once as text, once as JSON, and is kept; not three times each.
        assert peak_bytes(runtime.pid) - before < 12 * (4 << 20)
    finally:
        await runtime.close()


def peak_bytes(pid: int) -> int:
    """The most memory that a process has had."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


@pytest.mark.parametrize("is_stopped", [False, True], ids=["running", "stopped"])
async def test_one_ends_with_an_owner_that_is_killed_and_so_do_its_commands(
    is_stopped: bool, tmp_path: Path
) -> None:
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    owner = subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, "-c", _OWNER, str(tmp_path)], env=env, stdout=subprocess.PIPE, text=True
    )
    try:
        assert owner.stdout is not None
        child = int(await asyncio.to_thread(owner.stdout.readline))
        command = await pid_in(tmp_path / "pid")
        if is_stopped:
            os.kill(child, signal.SIGSTOP)
        owner.kill()
        await until(lambda: not lives(child) and not lives(command), "both are gone")
    finally:
        owner.kill()
        owner.communicate()
