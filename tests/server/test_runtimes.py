"""The runtimes of a server: on need, idle, shown; who may dial in, and whose sessions use what."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from perdure.clock import new_id
from perdure.errors import ConfigurationError, RuntimeLostError
from perdure.runtimes.dial import connect_url
from perdure.server.access.token_file import revoke_tokens
from perdure.server.config import Settings, load_settings
from perdure.server.runtime.look import RuntimeLook
from perdure.server.runtime.runtimes import LOCAL, Runtimes, make_runtimes
from perdure.testing.runtime_cases import until
from tests.runtimes.world import FAR, ask, dialed_in, look, serving_far, toolbox
from tests.server.live import TOKEN, running
from tests.server.people import people


@asynccontextmanager
async def runtimes_of(**tables: Any) -> AsyncIterator[Runtimes]:
    runtimes = make_runtimes(Settings(tables={"runtimes": tables}))
    try:
        yield runtimes
    finally:
        await runtimes.close()


def local(runtimes: Runtimes) -> RuntimeLook:
    return look(runtimes, LOCAL)


# On need, idle, shown


async def test_looking_starts_nothing_and_need_does(tmp_path: Path) -> None:
    async with runtimes_of(local={"workspace": str(tmp_path)}) as runtimes:
        assert (local(runtimes).status, local(runtimes).runtime_id) == ("idle", None)
        box = toolbox(runtimes, LOCAL)
        assert local(runtimes).status == "idle"
        assert "run_command" in [spec.name for spec in await box.tools()]
        shown = local(runtimes)
        assert (shown.status, shown.runtime_id) == ("attached", box.runtime_id)
        assert (shown.workspace, shown.sessions, shown.calls) == (str(tmp_path), 1, 0)


@pytest.mark.parametrize("kind", ["in-process", "subprocess"])
async def test_many_that_need_it_at_once_get_the_same_life(kind: str, tmp_path: Path) -> None:
    async with runtimes_of(local={"kind": kind, "workspace": str(tmp_path)}) as runtimes:
        boxes = [runtimes.toolbox(LOCAL, session_id=f"s{n}", turn_id=f"t{n}") for n in range(20)]
        await asyncio.gather(*(box.tools() for box in boxes))
        assert len({box.runtime_id for box in boxes}) == 1
        assert local(runtimes).sessions == 20


@pytest.mark.parametrize("kind", ["in-process", "subprocess"])
async def test_one_that_nobody_uses_is_stopped_and_a_turn_meets_the_next(
    kind: str, tmp_path: Path
) -> None:
    table = {"kind": kind, "workspace": str(tmp_path), "idle_after_s": 0.4}
    async with runtimes_of(local=table) as runtimes:
        box = toolbox(runtimes, LOCAL)
        slow = await ask(box, "run_command", command="sleep 1; echo done")  # longer than idle
        assert slow.text == "done\n"
        first = box.runtime_id
        await until(lambda: local(runtimes).status == "idle", "it is stopped")
        assert (await ask(box, "run_command", command="echo on")).text == "on\n"
        assert box.runtime_id != first  # the same turn goes on: nothing was lost


async def test_one_that_cannot_start_is_lost_and_says_why(tmp_path: Path) -> None:
    folder = tmp_path / "ws"
    async with runtimes_of(local={"workspace": str(folder)}) as runtimes:
        with pytest.raises(RuntimeLostError, match="cannot be opened"):
            await toolbox(runtimes, LOCAL).tools()
        shown = local(runtimes)
        assert (shown.status, shown.calls) == ("lost", 0)
        assert str(folder) in (shown.cause or "")
        folder.mkdir()
        assert await toolbox(runtimes, LOCAL).tools()
        assert (local(runtimes).status, local(runtimes).cause) == ("attached", None)


async def test_closing_interrupts_what_runs_and_nothing_starts_afterwards(tmp_path: Path) -> None:
    async with runtimes_of(local={"workspace": str(tmp_path)}) as runtimes:
        box = toolbox(runtimes, LOCAL)
        call = asyncio.create_task(ask(box, "run_command", command="touch begun; sleep 600"))
        await until(lambda: (tmp_path / "begun").exists(), "it runs")
        await runtimes.close()
        with pytest.raises(RuntimeLostError):
            await call
        with pytest.raises(RuntimeLostError):
            await toolbox(runtimes, LOCAL).tools()


async def test_a_runtime_has_the_tools_that_its_table_names(tmp_path: Path) -> None:
    table = {"workspace": str(tmp_path), "tools": ["read_file", "list_files"], "excerpt_chars": 7}
    async with runtimes_of(local=table) as runtimes:
        box = toolbox(runtimes, LOCAL)
        assert [spec.name for spec in await box.tools()] == ["read_file", "list_files"]
        assert (await ask(box, "list_files")).limit_chars == 7
        assert (await ask(box, "run_command", command="true")).is_error


# Tables


@pytest.mark.parametrize(
    ("toml", "says"),
    [
        ("[runtimes.x]\nkind = 'docker'", r"\[runtimes\.x\].*kind"),
        ("[runtimes.x]\ncolour = 1", r"\[runtimes\.x\].*colour.*idle_after_s"),
        ("[runtimes.local]\ntools = ['rm']", r"\[runtimes\.local\].*tools"),
        ("[runtimes.'x y']", r"x y.*letters"),
        ("[runtimes]\nx = 1", r"\[runtimes\.x\]"),
        ("[runtimes.x]\nkind = 'remote'\nworkspace = '.'", "names its workspace itself"),
        ("[mcp.x]", "either a command"),
        ("[mcp.x]\ncommand = 'a'\nurl = 'b'", "either a command"),
        ("[mcp.x]\nurl = 'b'\nargs = ['a']", "go with a command"),
        ("[mcp.x]\ncommand = 'a'\nruntimes = ['nowhere']", "no runtime nowhere.*local"),
        ("runtime = 'nowhere'", "nowhere.*local"),
    ],
)
def test_a_table_that_is_not_valid_says_where_and_what_is_allowed(
    toml: str, says: str, tmp_path: Path
) -> None:
    (tmp_path / "perdure.toml").write_text(toml)
    with pytest.raises(ConfigurationError, match=says) as raised:
        make_runtimes(load_settings({}, environment={}, folder=tmp_path))
    assert "perdure.toml" in str(raised.value)


def test_a_session_may_choose_a_runtime_that_there_is() -> None:
    runtimes = make_runtimes(Settings(tables={"runtimes": {FAR: {"kind": "remote"}}}))
    runtimes.check(LOCAL)
    runtimes.check(FAR)
    with pytest.raises(ConfigurationError, match="nowhere"):
        runtimes.check("nowhere")


# Who may dial in


async def refused(base: str, token: str | None, name: str = "mine", **headers: str) -> Any:
    """The problem by which a WebSocket is refused."""
    address = connect_url(base, name=name, life=new_id(), workspace="w")
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    with pytest.raises(InvalidStatus) as raised:
        await connect(address, additional_headers=headers)
    import json

    body = json.loads(bytes(raised.value.response.body or b"{}"))
    assert body["status"] == raised.value.response.status_code
    return body["status"], body["code"]


async def to_the_end(connection: ClientConnection) -> None:
    """Reads until the connection is closed, which is soon."""
    async with asyncio.timeout(10):
        while True:
            await connection.recv()


async def test_only_who_may_dial_in_can(tmp_path: Path) -> None:
    async with people(tmp_path) as here:
        base = here.server.base
        for role in ("user", "viewer", "runtime"):
            await here.come(role, role)
        assert await refused(base, None) == (401, "unauthorised")
        assert await refused(base, "x" * 20) == (401, "unauthorised")
        assert await refused(base, here.tokens["user"]) == (403, "not_allowed")
        assert await refused(base, here.tokens["viewer"]) == (403, "not_allowed")
        assert await refused(base, TOKEN, Origin="https://evil.example") == (403, "foreign_origin")
        assert await refused(base, TOKEN, name="no name") == (422, "invalid_runtime")
        assert await refused(base, TOKEN, name=LOCAL) == (422, "invalid_runtime")
        runtimes = here.server.service.runtimes
        async with dialed_in(base, tmp_path, name="mine", token=here.tokens["runtime"]):
            await until(lambda: len(runtimes.looks(lambda _: True)) == 2, "it is attached")


async def test_a_host_that_is_not_the_servers_is_refused() -> None:
    async with running() as server:
        address = connect_url(server.base, name="mine", life=new_id(), workspace="w")
        with pytest.raises(InvalidStatus) as raised:
            await connect(
                address.replace("127.0.0.1", "localhost.evil.example"),
                host="127.0.0.1",
                additional_headers={"Authorization": f"Bearer {TOKEN}"},
            )
        assert raised.value.response.status_code == 421


async def test_a_runtime_of_no_table_is_for_the_sessions_of_its_principal(tmp_path: Path) -> None:
    async with people(tmp_path) as here:
        anna, bob = await here.come("anna"), await here.come("bob")
        await here.come("anna", "runtime")
        runtimes = here.server.service.runtimes
        async with dialed_in(here.server.base, tmp_path, name="hers", token=here.tokens["anna"]):
            theirs = runtimes.toolbox("hers", session_id="s", turn_id="t", owner="anna")
            assert (await ask(theirs, "run_command", command="echo on")).text == "on\n"
            seen = {
                name: [each["name"] for each in (await c.get("/v1/runtimes")).json()["runtimes"]]
                for name, c in {"anna": anna, "bob": bob, "admin": here.admin}.items()
            }
            assert seen == {"anna": [LOCAL, "hers"], "bob": [LOCAL], "admin": [LOCAL, "hers"]}
            bobs = runtimes.guest("hers", "bob")
            assert bobs.look().status == "idle"


async def test_a_token_that_is_revoked_ends_the_link(tmp_path: Path) -> None:
    async with people(tmp_path) as here:
        await here.come("builder", "runtime")
        address = connect_url(here.server.base, name="mine", life=new_id(), workspace="w")
        headers = {"Authorization": f"Bearer {here.tokens['builder']}"}
        async with connect(address, additional_headers=headers) as connection:
            await connection.recv()
            revoke_tokens(here.path, here.ids["builder"])
            with pytest.raises(ConnectionClosed) as raised:
                await to_the_end(connection)
            assert raised.value.rcvd is not None
            assert "token" in raised.value.rcvd.reason


async def test_what_is_no_runtime_is_let_go_in_bounded_time() -> None:
    async with serving_far() as server:
        address = connect_url(server.base, name=FAR, life=new_id(), workspace="w")
        headers = {"Authorization": f"Bearer {TOKEN}"}
        for says in ("!what", "{not json", b"bytes", None):
            async with connect(address, additional_headers=headers) as connection:
                if says is not None:
                    await connection.send(says)
                with pytest.raises(ConnectionClosed):
                    await to_the_end(connection)
        assert look(server.service.runtimes).status == "idle"
        assert (await server.client.get("/v1/health")).status_code == 200


async def test_a_request_that_is_no_websocket_is_told_what_to_do() -> None:
    async with running() as server:
        answer = await server.client.get("/v1/runtimes/connect")
        assert (answer.status_code, answer.json()["code"]) == (426, "upgrade_required")
        assert answer.headers["upgrade"] == "websocket"
        bare = await server.client.get("/v1/runtimes/connect", headers={"Authorization": ""})
        assert bare.status_code == 401


async def test_an_unknown_websocket_is_refused() -> None:
    async with running() as server:
        address = server.base.replace("http", "ws") + "/v1/nothing"
        with pytest.raises(InvalidStatus) as raised:
            await connect(address, additional_headers={"Authorization": f"Bearer {TOKEN}"})
        assert raised.value.response.status_code in {403, 404}
