"""Turns whose tools run elsewhere: what a lost line leaves in the journal, and what comes late."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from perdure.clock import new_id
from perdure.entry import ToolCall
from perdure.errors import RuntimeLostError
from perdure.runtimes.contract import CallOrigin
from perdure.server.journal import JournalStore
from perdure.stores.sqlite import SqliteStore
from perdure.testing import Call, Say, scripted_by_message, write_script
from perdure.testing.runtime_cases import lives, pid_in, until
from tests.runtimes.world import (
    FAR,
    Proxy,
    ask,
    dialed_in,
    proxied,
    serving_far,
    tables,
    until_attached,
)
from tests.server.live import Running, running
from tests.server.people import people

WAIT = "echo $$ > pid; while ! test -e go; do sleep 0.02; done; echo finished"


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[JournalStore]:
    async with SqliteStore(tmp_path / "sessions.db") as found:
        yield found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "ws"
    made.mkdir()
    return made


@asynccontextmanager
async def serving(store: JournalStore) -> AsyncIterator[Running]:
    async with running(scripted_by_message, store=store, settings=tables()) as server:
        yield server


@asynccontextmanager
async def over_a_line(store: JournalStore, folder: Path) -> AsyncIterator[tuple[Running, Proxy]]:
    """A server, and a runtime that has dialed in to it."""
    async with (
        serving(store) as server,
        proxied(server.base) as proxy,
        dialed_in(proxy.base, folder),
    ):
        yield server, proxy


async def create(server: Running, runtime: str | None = FAR) -> None:
    answer = await server.client.post("/v1/sessions", json={"session_id": "s", "runtime": runtime})
    assert answer.status_code == 201, answer.text


async def send(server: Running, *commands: str) -> None:
    calls = [
        Call("run_command", {"command": command}, runs=True, call_id=f"c{n}")
        for n, command in enumerate(commands)
    ]
    await server.send("s", write_script(Say("x", calls=calls), Say("end")))


async def rest(server: Running) -> dict[str, Any]:
    async with asyncio.timeout(30):
        while True:
            look: dict[str, Any] = (await server.client.get("/v1/sessions/s")).json()
            if look["turn"] is None:
                return look
            await asyncio.sleep(0.02)


async def entries(server: Running, kind: str) -> list[dict[str, Any]]:
    page = (await server.client.get("/v1/sessions/s/entries?limit=500")).json()
    return [entry for entry in page["entries"] if entry["type"] == kind]


async def results(server: Running) -> list[dict[str, Any]]:
    parts = [part for entry in await entries(server, "message") for part in entry["parts"]]
    return [part for part in parts if part["type"] == "tool_result"]


async def late(server: Running) -> list[str]:
    return [entry["parts"][0]["text"] for entry in await entries(server, "late_result")]


async def until_late(server: Running, count: int) -> None:
    await _count(late, server, count)


async def until_results(server: Running, count: int) -> None:
    await _count(results, server, count)


async def _count(
    ask: Callable[[Running], Awaitable[list[Any]]], server: Running, count: int
) -> None:
    async with asyncio.timeout(30):
        while True:
            if len(await ask(server)) >= count:
                return
            await asyncio.sleep(0.02)


async def test_a_line_that_goes_silent_interrupts_the_turn_and_its_results_come_late(
    store: JournalStore, folder: Path
) -> None:
    async with over_a_line(store, folder) as (server, proxy):
        await create(server)
        await send(server, "echo quick", WAIT)
        pid = await pid_in(folder / "pid")
        await until_results(server, 1)
        proxy.silence()
        look = await rest(server)
        assert look["status"] == "interrupted"
        (lost,) = await entries(server, "runtime_lost")
        assert lost["runtime_id"].startswith(f"{FAR}/")
        assert "nothing was heard" in lost["cause"]
        by_call = {each["call_id"]: each for each in await results(server)}
        assert by_call["c0"]["parts"][0]["text"] == "quick\n"
        assert by_call["c1"]["interrupted"]
        assert len(await results(server)) == 2
        (end,) = await entries(server, "turn_ended")
        assert end["reason"] == "interrupted"
        before = (await server.client.get("/v1/sessions/s/transcript")).json()
        proxy.talk()
        await until_attached(server.service.runtimes)
        (folder / "go").touch()
        await until_late(server, 1)
        assert await late(server) == ["finished\n"]
        assert not lives(pid)
        look = await rest(server)
        assert look["status"] == "interrupted"
        assert (await server.client.get("/v1/sessions/s/transcript")).json() == before
        await send(server, "echo next")
        assert (await rest(server))["status"] == "idle"
        assert (await results(server))[-1]["parts"][0]["text"] == "next\n"
        assert await late(server) == ["finished\n"]


async def test_a_server_that_dies_in_mid_call_gets_the_result_late(
    store: JournalStore, folder: Path
) -> None:
    async with proxied("http://127.0.0.1:0") as proxy, dialed_in(proxy.base, folder):
        async with serving(store) as first:
            proxy._target = int(first.base.rpartition(":")[2])
            await create(first)
            await send(first, WAIT)
            await pid_in(folder / "pid")
            proxy.silence()  # whatever the server still says as it ends, nobody hears it
        async with serving(store) as second:
            proxy._target = int(second.base.rpartition(":")[2])
            proxy.talk()
            await until_attached(second.service.runtimes)
            assert (await second.client.get("/v1/sessions/s")).json()["status"] == "interrupted"
            (folder / "go").touch()
            await until_late(second, 1)
            (result,) = await results(second)
            assert result["interrupted"]
            await send(second, "echo next")
            assert (await rest(second))["status"] == "idle"
            assert await late(second) == ["finished\n"]


async def test_results_that_are_stored_do_not_come_late(store: JournalStore, folder: Path) -> None:
    async with over_a_line(store, folder) as (server, proxy):
        await create(server)
        await send(server, "echo one", "echo two")
        assert (await rest(server))["status"] == "idle"
        proxy.silence()
        await asyncio.sleep(1.5)
        proxy.talk()
        await until_attached(server.service.runtimes)
        await asyncio.sleep(0.3)
        assert await late(server) == []


async def test_a_result_of_megabytes_is_stored_whole(store: JournalStore, folder: Path) -> None:
    async with over_a_line(store, folder) as (server, _):
        await create(server)
        await send(server, "yes 0123456789abcde | head -c 16777216")
        assert (await rest(server))["status"] == "idle"
        (result,) = await results(server)
        assert (result["bytes"], result["limit_chars"]) == (16 << 20, 50_000)
        whole = await server.client.get(f"{result['href']}/0")
        assert whole.content == b"0123456789abcde\n" * (1 << 20)


async def test_a_session_that_chose_none_has_no_tools_unless_the_setting_says_so(
    store: JournalStore, folder: Path
) -> None:
    for runtime, is_error in ((None, True), ("local", False)):
        settings = {"runtime": runtime, "workspace": str(folder)}
        async with running(scripted_by_message, store=store, settings=settings) as server:
            await server.client.post("/v1/sessions", json={"session_id": "s"})
            await send(server, "touch made")
            await rest(server)
            assert (await results(server))[-1].get("is_error", False) == is_error
        assert (folder / "made").exists() != is_error


async def test_late_results_of_sessions_that_are_not_there_are_in_nobodys_way(
    store: JournalStore, folder: Path
) -> None:
    async with over_a_line(store, folder) as (server, proxy):
        await create(server)
        await send(server, WAIT)
        await pid_in(folder / "pid")
        runtimes = server.service.runtimes
        box = runtimes.toolbox(FAR, session_id="there-never-was", turn_id="t")
        other = asyncio.create_task(ask(box, "run_command", key="k", command="sleep 1.5"))
        await asyncio.sleep(0.3)
        proxy.silence()
        await rest(server)
        with pytest.raises(RuntimeLostError):
            await other
        await asyncio.sleep(1)
        proxy.talk()
        (folder / "go").touch()
        await until_late(server, 1)
        assert await late(server) == ["finished\n"]


async def test_a_runtime_cannot_write_into_the_sessions_of_others(tmp_path: Path) -> None:
    (tmp_path / "ws").mkdir()
    kept: list[str] = []

    async def keep(call: Any) -> None:
        kept.append(call.origin.session_id)

    async with people(tmp_path) as here, proxied(here.server.base) as proxy:
        here.server.service.runtimes.on_late = keep
        for name in ("anna", "bob"):
            client = await here.come(name)
            made = await client.post("/v1/sessions", json={"session_id": f"of-{name}"})
            assert made.status_code == 201
        await here.come("anna", "runtime")
        runtimes = here.server.service.runtimes
        token = here.tokens["anna"]
        async with dialed_in(proxy.base, tmp_path / "ws", name="hers", token=token):
            slot = runtimes.guest("hers", "anna")
            async with slot.using("of-anna") as runtime:
                calls = []
                for name in ("bob", "anna"):
                    call = ToolCall("c", "run_command", {"command": "sleep 1"})
                    origin = CallOrigin(f"of-{name}", "t", new_id())
                    calls.append(
                        asyncio.create_task(
                            runtime.call(call, call.arguments, origin, lambda text: None)
                        )
                    )
                await asyncio.sleep(0.3)
                await runtime.close()
                await asyncio.gather(*calls, return_exceptions=True)
            await until(lambda: bool(kept), "anna's comes late")
            await asyncio.sleep(0.5)
            assert kept == ["of-anna"]


async def test_a_runtime_of_somebody_else_is_not_there_to_choose(tmp_path: Path) -> None:
    (tmp_path / "ws").mkdir()
    async with people(tmp_path) as here:
        anna, bob = await here.come("anna"), await here.come("bob")
        await here.come("anna", "runtime")
        base, token = here.server.base, here.tokens["anna"]
        async with dialed_in(base, tmp_path / "ws", name="hers", token=token):
            slot = here.server.service.runtimes.guest("hers", "anna")
            await until(lambda: slot.current is not None, "it is attached")
            told = [
                await bob.post("/v1/sessions", json={"runtime": name}) for name in ("hers", "none")
            ]
            assert [each.status_code for each in told] == [422, 422]
            assert told[0].json()["detail"] == told[1].json()["detail"].replace("none", "hers")
            assert (await anna.post("/v1/sessions", json={"runtime": "hers"})).status_code == 201


async def test_nothing_hangs_where_no_runtime_ever_comes(store: JournalStore) -> None:
    async with serving_far() as server:
        assert server.service.runtimes.names == ("local", FAR)
    settings = tables(attach_within_s=0.2)
    async with running(scripted_by_message, store=store, settings=settings) as server:
        await create(server)
        await send(server, "echo x")
        look = await rest(server)
        assert look["status"] == "interrupted"
        (lost,) = await entries(server, "runtime_lost")
        assert "not attached" in lost["cause"]
