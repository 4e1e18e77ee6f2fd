"""A cable is pulled: a runtime on another machine, as far as the kernel is concerned.

It runs in a network namespace of its own, and the link between the two is taken down: no packet
says so to either side. Where namespaces are not permitted this is skipped, and CI says so.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from perdure.clock import monotonic
from perdure.testing.runtime_cases import lives, until
from tests.runtimes.test_loss import begun, is_lost
from tests.runtimes.world import (
    NOTICED_S,
    Late,
    look,
    proxied,
    runtime_process,
    serving_far,
    toolbox,
    until_attached,
)


class Cable(NamedTuple):
    """Two ends: `address` is this machine's, and what runs `inside` is at the other one."""

    device: str
    address: str
    inside: tuple[str, ...]

    def pull(self) -> None:
        _ip("link", "set", self.device, "down")

    def plug_in(self) -> None:
        _ip("link", "set", self.device, "up")


@pytest.fixture
def cable(request: pytest.FixtureRequest) -> Iterator[Cable]:
    number = os.getpid() % 60_000
    name, near, far = f"pd{number}", f"pdn{number}", f"pdf{number}"
    subnet = f"10.{200 + number // 16_000}.{number // 64 % 250}"
    address, other = f"{subnet}.{number % 63 * 4 + 1}", f"{subnet}.{number % 63 * 4 + 2}"
    try:
        if shutil.which("ip") is None:
            raise PermissionError("there is no program ip")
        _ip("netns", "add", name)
    except PermissionError as error:
        _skip(request, str(error))
    try:
        try:
            _ip("link", "add", near, "type", "veth", "peer", "name", far, "netns", name)
            _ip("addr", "add", f"{address}/30", "dev", near)
            _ip("link", "set", near, "up")
            _ip("-n", name, "addr", "add", f"{other}/30", "dev", far)
            _ip("-n", name, "link", "set", far, "up")
        except PermissionError as error:
            _skip(request, str(error))
        yield Cable(near, address, ("ip", "netns", "exec", name))
    finally:
        subprocess.run(["ip", "link", "del", near], capture_output=True, check=False)
        _ip("netns", "del", name)


def _ip(*arguments: str) -> None:
    ran = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if ran.returncode:
        raise PermissionError(f"ip {' '.join(arguments)}: {ran.stderr.strip()}")


def _skip(request: pytest.FixtureRequest, why: str) -> None:
    reason = f"a cable cannot be pulled here: {why}"
    terminal = request.config.pluginmanager.get_plugin("terminalreporter")
    if "CI" in os.environ and terminal is not None:
        terminal.write_line(f"NOT TESTED: {reason}")
    pytest.skip(reason)


async def test_a_cable_that_is_pulled_is_noticed_in_time_and_its_result_comes_late(
    cable: Cable, tmp_path: Path
) -> None:
    folder = tmp_path / "ws"
    folder.mkdir()
    late = Late()
    async with (
        serving_far(late, hosts=[cable.address]) as server,
        proxied(server.base, cable.address) as line,
        runtime_process(line.base, folder, before=cable.inside),
    ):
        runtimes = server.service.runtimes
        call, pid = await begun(toolbox(runtimes), folder)
        cable.pull()
        began = monotonic()
        lost = await is_lost(call)
        assert monotonic() - began < NOTICED_S
        assert "nothing was heard" in lost.cause
        assert lives(pid)
        (folder / "go").touch()
        await until(lambda: not lives(pid), "the command ends over there")
        await asyncio.sleep(0.5)
        assert late.calls == []
        cable.plug_in()
        await until_attached(runtimes)
        await until(lambda: bool(late.calls), "the late result comes")
        assert late.calls[0].result.text == "finished\n"
        assert look(runtimes).runtime_id == lost.runtime_id
