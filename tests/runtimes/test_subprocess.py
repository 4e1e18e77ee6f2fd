from __future__ import annotations

import asyncio
import os
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
