"""A runtime that is lost, in every way and at every moment, is noticed in bounded time.

Its calls in flight raise once, the next turn goes to the next link, and a result that comes late
is handed over, once it is stored for good.
"""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from perdure.clock import monotonic
from perdure.errors import RuntimeLostError
from perdure.server.runtime.toolbox import Toolbox
from perdure.testing.runtime_cases import lives, pid_in, until
from perdure.testing.runtime_contract import is_seen
from tests.runtimes.world import (
    FAR,
    NOTICED_S,
    Late,
    Proxy,
    ask,
    dialed_in,
    look,
    proxied,
    runtime_process,
    serving_far,
    toolbox,
    until_attached,
)
from tests.server.live import Running, running

WAIT = "echo $$ > pid; while ! test -e go; do sleep 0.02; done; echo finished"


async def begun(box: Toolbox, folder: Path, *, key: str = "k") -> tuple[asyncio.Task[object], int]:
    """A call in flight that ends when a file is made, and its process."""
    call: asyncio.Task[object] = asyncio.create_task(ask(box, "run_command", key=key, command=WAIT))
    return call, await pid_in(folder / "pid")


async def is_lost(call: asyncio.Task[object], within_s: float = NOTICED_S) -> RuntimeLostError:
    """The error of a call whose runtime was lost, which comes in time."""
    began = monotonic()
    with pytest.raises(RuntimeLostError) as raised:
        await call
    assert monotonic() - began < within_s
    return raised.value


@pytest.mark.parametrize("ways", [("up", "down"), ("up",), ("down",)], ids="-".join)
async def test_a_line_that_goes_silent_is_lost_and_its_result_comes_late(
    ways: tuple[str, ...], tmp_path: Path
) -> None:
    late = Late()
    async with serving_far(late) as server, proxied(server.base) as proxy:
        runtimes = server.service.runtimes
        async with dialed_in(proxy.base, tmp_path):
            box = toolbox(runtimes)
            call, pid = await begun(box, tmp_path)
            proxy.silence(*ways)
            lost = await is_lost(call)
            assert lost.runtime_id == box.runtime_id
            shown = look(runtimes)
            assert (shown.status, shown.cause, shown.calls) == ("lost", lost.cause, 0)
            assert lives(pid)
            proxy.talk()
            await until_attached(runtimes)
            assert look(runtimes).runtime_id == lost.runtime_id  # the same life, come again
            (tmp_path / "go").touch()
            await until(lambda: bool(late.calls), "the late result comes")
            (came,) = late.calls
            assert (came.origin.key, came.result.text) == ("k", "finished\n")
            assert came.result.call_id == "call-k"
            again = await ask(toolbox(runtimes), "run_command", key="k", command=WAIT)
            assert (again.text, is_seen(again)) == ("finished\n", True)
            await asyncio.sleep(0.2)
            assert len(late.calls) == 1


async def test_a_line_that_is_silent_while_nothing_runs_is_lost_too(tmp_path: Path) -> None:
    async with serving_far() as server, proxied(server.base) as proxy:
        runtimes = server.service.runtimes
        async with dialed_in(proxy.base, tmp_path):
            await until_attached(runtimes)
            proxy.silence()
            began = monotonic()
            await until(lambda: look(runtimes).status == "lost", "it is noticed")
            assert monotonic() - began < NOTICED_S
            call = asyncio.create_task(ask(toolbox(runtimes), "run_command", command="echo on"))
            proxy.talk()
            assert (await call).text == "on\n"


async def test_a_call_that_begins_on_a_silent_line_is_lost(tmp_path: Path) -> None:
    async with (
        serving_far() as server,
        proxied(server.base) as proxy,
        dialed_in(proxy.base, tmp_path),
    ):
        box = toolbox(server.service.runtimes)
        await box.tools()
        proxy.silence()
        await is_lost(asyncio.create_task(ask(box, "run_command", command="echo on")))
        proxy.talk()


async def test_a_result_that_was_on_its_way_comes_late(tmp_path: Path) -> None:
    late = Late()
    async with (
        serving_far(late) as server,
        proxied(server.base) as proxy,
        dialed_in(proxy.base, tmp_path),
    ):
        box = toolbox(server.service.runtimes)
        call, pid = await begun(box, tmp_path)
        proxy.silence("up")
        (tmp_path / "go").touch()
        await until(lambda: not lives(pid), "the command has ended")
        await is_lost(call)
        proxy.talk()
        await until(lambda: bool(late.calls), "the late result comes")
        assert late.calls[0].result.text == "finished\n"


async def test_a_result_that_was_not_confirmed_comes_once_more(tmp_path: Path) -> None:
    late = Late()
    async with serving_far(late) as server, proxied(server.base) as proxy:
        runtimes = server.service.runtimes
        async with dialed_in(proxy.base, tmp_path):
            box = toolbox(runtimes)
            for key in ("stored", "not-stored"):
                await ask(box, "run_command", key=key, command=f"echo {key}")
            await box.confirm("stored")
            await ask(box, "read_file", key="", path="x")  # the confirmation is on its way
            proxy.silence()
            await until(lambda: look(runtimes).status == "lost", "it is lost")
            proxy.talk()
            await until(lambda: bool(late.calls), "it comes")
            await asyncio.sleep(0.2)
            assert [call.origin.key for call in late.calls] == ["not-stored"]


async def test_a_late_result_that_cannot_be_stored_is_handed_over_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.runtimes.linked._LATE_AGAIN_S", 0.05)
    taken: list[str] = []

    async def on_late(call: object) -> None:
        taken.append("tried")
        if len(taken) < 3:
            raise OSError("no space is left")

    async with serving_far() as server, proxied(server.base) as proxy:
        server.service.runtimes.on_late = on_late
        async with dialed_in(proxy.base, tmp_path):
            call, _ = await begun(toolbox(server.service.runtimes), tmp_path)
            proxy.silence()
            await is_lost(call)
            proxy.talk()
            (tmp_path / "go").touch()
            await until(lambda: len(taken) == 3, "it is tried until it is stored")
            await asyncio.sleep(0.3)
            assert len(taken) == 3


async def test_a_message_of_megabytes_on_a_slow_line_is_no_silence(tmp_path: Path) -> None:
    async with (
        serving_far(lost_after_s=0.5) as server,
        proxied(server.base) as proxy,
        dialed_in(proxy.base, tmp_path),
    ):
        slow = asyncio.create_task(_stutter(proxy))
        big = await ask(
            toolbox(server.service.runtimes),
            "run_command",
            command="yes 0123456789abcde | head -c 8000000",
        )
        slow.cancel()
        await asyncio.wait([slow])
        assert len(big.text) == 8_000_000
        assert proxy.accepted == 1


async def _stutter(proxy: Proxy) -> None:
    try:
        while True:
            proxy.silence()
            await asyncio.sleep(0.1)
            proxy.talk()
            await asyncio.sleep(0.02)
    finally:
        proxy.talk()


async def test_a_runtime_that_is_killed_is_lost_at_once_and_so_are_its_commands(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "ws"
    folder.mkdir()
    async with serving_far(lost_after_s=60) as server:
        runtimes = server.service.runtimes
        async with runtime_process(server.base, folder) as process:
            call, pid = await begun(toolbox(runtimes), folder)
            process.send(signal.SIGKILL)
            lost = await is_lost(call)
            await until(lambda: not lives(pid), "its command has ended with it")
        (folder / "pid").unlink()
        (folder / "go").touch()
        async with runtime_process(server.base, folder):
            box = toolbox(runtimes)
            again = await ask(box, "run_command", key="k", command=WAIT)
            assert (again.text, is_seen(again)) == ("finished\n", False)  # another life
            assert box.runtime_id != lost.runtime_id


async def test_a_runtime_that_is_stopped_is_lost_and_comes_again(tmp_path: Path) -> None:
    folder = tmp_path / "ws"
    folder.mkdir()
    late = Late()
    async with serving_far(late) as server:
        runtimes = server.service.runtimes
        async with runtime_process(server.base, folder) as process:
            box = toolbox(runtimes)
            call, _ = await begun(box, folder)
            process.send(signal.SIGSTOP)
            await is_lost(call)
            (folder / "go").touch()
            process.send(signal.SIGCONT)
            await until(lambda: bool(late.calls), "the late result comes")
            assert late.calls[0].result.text == "finished\n"
            assert look(runtimes).runtime_id == box.runtime_id


async def test_a_runtime_that_ends_takes_its_leave(tmp_path: Path) -> None:
    folder = tmp_path / "ws"
    folder.mkdir()
    async with (
        serving_far(lost_after_s=60) as server,
        runtime_process(server.base, folder) as process,
    ):
        call, pid = await begun(toolbox(server.service.runtimes), folder)
        assert await process.end() == 0
        lost = await is_lost(call)
        assert "ends" in lost.cause
        assert not lives(pid)


async def test_a_server_that_restarts_gets_the_late_result(tmp_path: Path) -> None:
    async with (
        serving_far() as first,
        proxied(first.base) as proxy,
        dialed_in(proxy.base, tmp_path),
    ):
        call, _ = await begun(toolbox(first.service.runtimes), tmp_path)
        late = Late()
        async with serving_far(late) as second:
            await _end(first)
            await is_lost(call)
            proxy._target = int(second.base.rpartition(":")[2])
            await until_attached(second.service.runtimes)
            (tmp_path / "go").touch()
            await until(lambda: bool(late.calls), "the late result comes")
            assert late.calls[0].result.text == "finished\n"
            answer = await second.client.get("/v1/runtimes")
            (far,) = (each for each in answer.json()["runtimes"] if each["name"] == FAR)
            assert (far["status"], far["workspace"]) == ("attached", str(tmp_path))


async def _end(server: Running) -> None:
    await server.service.runtimes.close()


async def test_a_turn_keeps_to_the_life_that_it_met(tmp_path: Path) -> None:
    async with serving_far() as server:
        runtimes = server.service.runtimes
        box = toolbox(runtimes)
        async with dialed_in(server.base, tmp_path):
            await box.tools()
            first = box.runtime_id
        await until(lambda: look(runtimes).status == "lost", "it is gone")
        async with dialed_in(server.base, tmp_path):
            await until_attached(runtimes)
            with pytest.raises(RuntimeLostError) as raised:
                await ask(box, "run_command", command="touch done")
            assert raised.value.runtime_id == first
            assert not (tmp_path / "done").exists()
            await ask(toolbox(runtimes), "run_command", command="touch done")
            assert (tmp_path / "done").exists()


async def test_a_runtime_that_never_comes_is_waited_for_in_bounded_time() -> None:
    async with serving_far(attach_within_s=0.2) as server:
        with pytest.raises(RuntimeLostError, match="not attached"):
            await toolbox(server.service.runtimes).tools()
        assert look(server.service.runtimes).calls == 0


async def test_a_second_runtime_of_the_name_waits_until_the_first_is_gone(tmp_path: Path) -> None:
    async with serving_far() as server, proxied(server.base) as proxy:
        runtimes = server.service.runtimes
        async with dialed_in(proxy.base, tmp_path):
            await until_attached(runtimes)
            first = look(runtimes).runtime_id
            async with dialed_in(server.base, tmp_path):
                await asyncio.sleep(1)
                assert look(runtimes).runtime_id == first
                proxy.silence()
                await until(
                    lambda: (
                        look(runtimes).status == "attached" and look(runtimes).runtime_id != first
                    ),
                    "the second is attached",
                )
                proxy.talk()


async def test_a_server_in_which_nothing_dials_in_ends_at_once() -> None:
    async with running():
        began = monotonic()
    assert monotonic() - began < 5
