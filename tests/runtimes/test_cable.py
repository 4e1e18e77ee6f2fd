"""A cable is pulled: a runtime on another machine, as far as the kernel is concerned.

It runs in a network namespace of its own, and the link between the two is taken down: no packet
says so to either side. Where namespaces are not permitted this is skipped, and CI says so.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.clock import monotonic
from perdure.testing.runtime_cases import lives, until
from tests.runtimes.cable import Cable, NoCableError, laid, tell
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


@pytest.fixture
def cable(request: pytest.FixtureRequest) -> Iterator[Cable]:
    try:
        with laid() as found:
            yield found
    except NoCableError as error:
        _skip(request, str(error))


def _skip(request: pytest.FixtureRequest, why: str) -> None:
    reason = f"a cable cannot be pulled here: {why}"
    if "CI" in os.environ:
        tell(request, f"NOT TESTED: {reason}")
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
