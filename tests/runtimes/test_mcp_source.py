"""Real MCP servers as sources of tools, over standard input and output and streamable HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec import structs

from perdure.entry import File, ToolCall
from perdure.errors import ConfigurationError
from perdure.fact import Fact
from perdure.loop import Allowed, Refused
from perdure.plugin import Plugins
from perdure.runtimes import mcp_source
from perdure.runtimes.child import Charge
from perdure.runtimes.contract import Runtime
from perdure.runtimes.local import LocalRuntime, open_local
from perdure.runtimes.mcp_source import McpSource
from perdure.runtimes.source import sources_of
from perdure.runtimes.subprocess_runtime import start_subprocess
from perdure.runtimes.table import McpServer, parse_mcp
from perdure.server.config import Settings
from perdure.server.hook.setup import load_hooks
from perdure.server.runtime.runtimes import make_runtimes
from perdure.server.session.surroundings import Scope
from perdure.server.surroundings import ServerSurroundings
from perdure.testing.runtime_cases import lives, pid_in, until, use
from perdure.testing.runtime_contract import WORKSPACE_TOOLS, is_seen
from tests.runtimes.world import FAR, ask, runtime_process, serving_far, toolbox
from tests.server.hooking import command, group, write_hooks
from tests.serving import free_port

SOME = ("run_command", "a_b_c", "echo")
PROGRAM = Path(__file__).with_name("mcp_program.py")


def stdio(**more: Any) -> dict[str, McpServer]:
    table = {"small": {"command": sys.executable, "args": [str(PROGRAM), "stdio"], **more}}
    return parse_mcp(table, "here")


@asynccontextmanager
async def runtime_with(servers: dict[str, McpServer], folder: Path) -> AsyncIterator[LocalRuntime]:
    runtime = await open_local(folder, sources=sources_of(servers, folder))
    try:
        yield runtime
    finally:
        await runtime.close()


@asynccontextmanager
async def http_server(folder: Path) -> AsyncIterator[str]:
    port = free_port()
    command = [sys.executable, str(PROGRAM), "http", str(port)]
    process = subprocess.Popen(command, cwd=folder)  # noqa: ASYNC220  # it starts while we wait
    try:
        async with asyncio.timeout(30):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                except OSError:
                    await asyncio.sleep(0.05)
                else:
                    writer.close()
                    break
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        await asyncio.to_thread(process.wait)


@asynccontextmanager
async def over_stdio(folder: Path) -> AsyncIterator[Runtime]:
    async with runtime_with(stdio(), folder) as runtime:
        yield runtime


@asynccontextmanager
async def over_http(folder: Path) -> AsyncIterator[Runtime]:
    async with http_server(folder) as url:
        servers = parse_mcp({"small": {"url": url, "headers": {"X-Key": "open"}}}, "here")
        async with runtime_with(servers, folder) as runtime:
            yield runtime


@asynccontextmanager
async def in_a_subprocess(folder: Path) -> AsyncIterator[Runtime]:
    charge = Charge(str(folder), "sub", "life", 15, mcp=stdio())
    runtime = await start_subprocess(charge)
    try:
        yield runtime
    finally:
        await runtime.close()


@pytest.mark.parametrize("opened", [over_stdio, over_http, in_a_subprocess])
async def test_its_tools_are_the_runtimes(opened: Any, tmp_path: Path) -> None:
    async with opened(tmp_path) as runtime:
        specs = await runtime.tools()
        assert {spec.name: spec.full_name for spec in specs if spec.name.endswith(SOME)} == {
            "run_command": None,
            "small_run_command": "mcp__small__run_command",
            "small_a_b_c": "mcp__small__a.b c",
            "echo": "mcp__small__echo",
        }
        names = [spec.name for spec in specs]
        assert names[: len(WORKSPACE_TOOLS)] == list(WORKSPACE_TOOLS)
        assert set(names[len(WORKSPACE_TOOLS) :]) == {
            *("echo", "meta", "hang", "die", "image", "refuse", "spawn", "big"),
            *("small_run_command", "small_a_b_c"),
        }
        shown: list[str] = []
        said = await use(runtime, "echo", key="k-1", text="é\u2028", show=shown.append)
        assert (said.text, said.is_error, is_seen(said)) == ("é\u2028", False, False)
        await until(lambda: shown == ["half way\n"], "its progress is shown")
        again = await use(runtime, "echo", key="k-1", text="é\u2028")
        assert (again.text, is_seen(again)) == ("é\u2028", True)
        assert (await use(runtime, "meta")).text == "session/turn"
        assert (await use(runtime, "small_a_b_c", text="x")).text == "x"
        assert (await use(runtime, "small_run_command", text="theirs")).text == "theirs"
        assert (await use(runtime, "run_command", command="echo ours")).text == "ours\n"
        assert (await use(runtime, "image")).parts == (File("image/png", data=b"\x89PNG"),)
        assert (await use(runtime, "refuse")).is_error
        assert len((await use(runtime, "big")).text) == 4 << 20
        calls = (tmp_path / "calls").read_text().split("\n")
        assert calls.count("echo k-1") == 1


@pytest.mark.parametrize("opened", [over_stdio, over_http])
async def test_a_call_that_is_stopped_is_told_to_stop(opened: Any, tmp_path: Path) -> None:
    async with opened(tmp_path) as runtime:
        await runtime.tools()
        call = asyncio.create_task(use(runtime, "hang"))
        await until(lambda: (tmp_path / "calls").exists(), "it runs")
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await until(lambda: (tmp_path / "was-cancelled").exists(), "it was told")
        assert (await use(runtime, "echo", text="on")).text == "on"


async def test_a_server_that_dies_costs_its_call_and_is_started_again(tmp_path: Path) -> None:
    async with runtime_with(stdio(), tmp_path) as runtime:
        first = await _server_pid(runtime, tmp_path)
        died = await use(runtime, "die")
        assert died.is_error
        assert "went away" in died.text
        assert (await use(runtime, "echo", text="on")).text == "on"
        assert await _server_pid(runtime, tmp_path) != first


async def test_a_server_that_was_killed_meanwhile_is_started_again(tmp_path: Path) -> None:
    async with runtime_with(stdio(), tmp_path) as runtime:
        pid = await _server_pid(runtime, tmp_path)
        os.kill(pid, signal.SIGKILL)
        await until(lambda: not lives(pid), "it is gone")
        assert "echo" in [spec.name for spec in await runtime.tools()]
        assert (await use(runtime, "echo", text="on")).text == "on"


async def test_a_server_that_does_not_answer_in_time_is_told_to_stop(tmp_path: Path) -> None:
    async with runtime_with(stdio(timeout_s=0.5), tmp_path) as runtime:
        late = await use(runtime, "hang")
        assert late.is_error
        assert "0.5 seconds" in late.text
        await until(lambda: (tmp_path / "was-cancelled").exists(), "it was told")


@pytest.mark.parametrize(
    "table",
    [
        {"command": "/no/such/program"},
        {"command": sys.executable, "args": ["-c", "print('hello')"]},
        {"command": "sleep", "args": ["600"], "start_within_s": 1},
        {"url": "http://127.0.0.1:9/mcp"},
    ],
    ids=["missing", "no-server", "silent", "nobody"],
)
async def test_a_server_that_cannot_be_reached_costs_its_own_tools(
    table: dict[str, Any], tmp_path: Path
) -> None:
    servers = parse_mcp({"broken": table}, "here") | stdio()
    async with runtime_with(servers, tmp_path) as runtime:
        names = [spec.name for spec in await runtime.tools()]
        assert "echo" in names
        assert list(runtime.troubles) == ["broken"]
        assert runtime.troubles["broken"]
        assert (await use(runtime, "run_command", command="echo on")).text == "on\n"


async def test_a_silent_server_costs_one_wait_and_not_one_a_turn(tmp_path: Path) -> None:
    script = "echo $$ >> starts; echo no licence >&2; exec sleep 600"
    table = {"silent": {"command": "sh", "args": ["-c", script], "start_within_s": 1}}
    async with runtime_with(parse_mcp(table, "here"), tmp_path) as runtime:
        for _ in range(3):
            await runtime.tools()
        assert len((tmp_path / "starts").read_text().split()) == 1
        assert "did not answer within 1 seconds" in runtime.troubles["silent"]
        assert "not waited for again for 10 seconds" in runtime.troubles["silent"]
        assert "no licence" in runtime.troubles["silent"]


async def test_a_silent_server_is_tried_again_after_its_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_source, "RESTS", 0.01)
    server = f"exec {sys.executable} {PROGRAM} stdio"
    script = f"test -e starts && {server}; echo $$ >> starts; exec sleep 600"
    table = {"late": {"command": "sh", "args": ["-c", script], "start_within_s": 20}}
    async with runtime_with(parse_mcp(table, "here"), tmp_path) as runtime:
        source = cast("McpSource", runtime._sources[0])
        source._server = structs.replace(source._server, start_within_s=1.0)
        await runtime.tools()
        source._server = structs.replace(source._server, start_within_s=20.0)
        assert list(runtime.troubles) == ["late"]
        await asyncio.sleep(0.05)
        assert "echo" in [spec.name for spec in await runtime.tools()]
        assert not runtime.troubles


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo first >&2; echo '  no /etc/notes.conf' >&2; echo >&2; exit 3", "no /etc/notes.conf"),
        ("head -c 3000000 /dev/zero | tr '\\0' x >&2; echo >&2; echo the end >&2", "the end"),
        ("exec no-such-program-here", "not found"),
    ],
)
async def test_why_a_program_ended_as_it_was_started_is_said(
    script: str, why: str, tmp_path: Path
) -> None:
    table = {"broken": {"command": "sh", "args": ["-c", script]}}
    async with runtime_with(parse_mcp(table, "here"), tmp_path) as runtime:
        await runtime.tools()
        assert "its last error: " in runtime.troubles["broken"]
        assert why in runtime.troubles["broken"]


@pytest.mark.parametrize(
    "headers", [{"Authorization": "Bearer …"}, {"X Key": "open"}, {"X-Key": "a\r\nB: c"}]
)
def test_a_header_that_cannot_be_sent_is_refused_at_the_start(headers: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match=r"\[mcp\.small\] in here: the header"):
        parse_mcp({"small": {"url": "http://127.0.0.1:9/mcp", "headers": headers}}, "here")


async def test_the_servers_programs_end_with_the_runtime(tmp_path: Path) -> None:
    async with runtime_with(stdio(), tmp_path) as runtime:
        server = await _server_pid(runtime, tmp_path)
        child = int((await use(runtime, "spawn")).text)
        assert lives(child)
    await until(lambda: not lives(server) and not lives(child), "both are gone")


async def test_a_server_that_is_being_started_ends_with_the_runtime(tmp_path: Path) -> None:
    script = "echo $$ > pid; exec sleep 600"
    table = {"slow": {"command": "sh", "args": ["-c", script], "start_within_s": 60}}
    runtime = await open_local(tmp_path, sources=sources_of(parse_mcp(table, "here"), tmp_path))
    asking = asyncio.create_task(runtime.tools())
    pid = await pid_in(tmp_path / "pid")
    async with asyncio.timeout(10):
        await runtime.close()
        await asking
    assert "slow" in runtime.troubles
    await until(lambda: not lives(pid), "it is gone")


async def test_a_remote_runtime_has_what_the_file_of_its_folder_names(tmp_path: Path) -> None:
    folder = tmp_path / "ws"
    folder.mkdir()
    (folder / "perdure.toml").write_text(
        f"[mcp.small]\ncommand = {sys.executable!r}\nargs = [{str(PROGRAM)!r}, 'stdio']\n"
        f"[runtimes.{FAR}]\ntools = ['read_file']\nexcerpt_chars = 9\n"
    )
    async with serving_far(lost_after_s=15) as server, runtime_process(server.base, folder):
        box = toolbox(server.service.runtimes)
        names = [spec.name for spec in await box.tools()]
        assert names[:2] == ["read_file", "echo"]
        said = await ask(box, "echo", text="far away")
        assert (said.text, said.limit_chars) == ("far away", 9)


async def test_a_program_whose_keeper_is_killed_ends_too(tmp_path: Path) -> None:
    async with runtime_with(stdio(), tmp_path) as runtime:
        server = await _server_pid(runtime, tmp_path)
        os.kill(_parent(server), signal.SIGKILL)
        await until(lambda: not lives(server), "the program is gone")
        await runtime.tools()
        assert (await use(runtime, "echo", text="on")).text == "on"


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


_OWNER = """
import asyncio, sys
from perdure.runtimes.local import open_local
from perdure.runtimes.source import sources_of
from perdure.testing.runtime_cases import use
from tests.runtimes.test_mcp_source import stdio

async def main():
    runtime = await open_local(sys.argv[1], sources=sources_of(stdio(), sys.argv[1]))
    await runtime.tools()
    print((await use(runtime, "spawn")).text, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


async def test_the_servers_programs_end_with_an_owner_that_is_killed(tmp_path: Path) -> None:
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    owner = subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, "-c", _OWNER, str(tmp_path)], env=env, stdout=subprocess.PIPE, text=True
    )
    try:
        assert owner.stdout is not None
        child = int(await asyncio.to_thread(owner.stdout.readline))
        server = await pid_in(tmp_path / "server-pid")
        assert lives(server)
        assert lives(child)
        owner.kill()
        await until(lambda: not lives(server) and not lives(child), "both are gone")
    finally:
        owner.kill()
        owner.communicate()


async def _server_pid(runtime: Runtime, folder: Path) -> int:
    await runtime.tools()
    return await pid_in(folder / "server-pid")


async def test_a_hook_meets_a_servers_tool_by_the_name_that_coding_agents_give_it(
    tmp_path: Path,
) -> None:
    guard = group(command("cat > told; echo not that >&2; exit 2"), matcher="mcp__small__.*")
    hooks = load_hooks([write_hooks(tmp_path, {"PreToolUse": [guard]})], Plugins(), folder=tmp_path)
    table = {"command": sys.executable, "args": [str(PROGRAM), "stdio"]}
    runtimes = make_runtimes(Settings(workspace=str(tmp_path), tables={"mcp": {"small": table}}))
    around = ServerSurroundings(hooks, runtimes=runtimes)

    async def note(facts: Sequence[Fact]) -> None:
        assert facts

    scope = Scope("s", "t", "loop", "local", None, note, lambda texts: None, lambda why: None, note)
    try:
        await around.toolbox(scope).tools()
        for name, told in {
            "echo": "mcp__small__echo",
            "small_run_command": "mcp__small__run_command",
        }.items():
            verdict = await around.permit(scope, ToolCall("c", name, {"text": "x"}))
            assert verdict == Refused("not that")
            event = json.loads((tmp_path / "told").read_text())
            assert (event["tool_name"], event["tool_input"]) == (told, {"text": "x"})
        for name in ("run_command", "greet"):
            assert await around.permit(scope, ToolCall("c", name, {})) == Allowed({})
    finally:
        await runtimes.close()
