"""An agent over the Agent Client Protocol in a server: people who approve, stops, a death."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from perdure.entry import ToolCall, ToolResult
from perdure.fact import ApprovalRequested, LoopRemembered
from perdure.loop import Refused, Verdict, Waits
from perdure.server.session.surroundings import Nothing, Scope
from perdure.stores.memory import MemoryStore
from perdure.tree import Tree
from perdure.view import model_view
from tests.loops.test_acp import acp
from tests.server.house import ID, House, Loops
from tests.serving import ServerProcess
from tests.unit.checks import check_model_view


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    house = House(MemoryStore(), Loops(acp(tmp_path)))
    await house.create()
    yield house
    await house.close()


async def until_asked(house: House) -> str:
    look = await house.until(lambda look: look.status == "waiting")
    (asked,) = look.approvals
    return asked.call_id


async def the_result(house: House) -> ToolResult:
    tree = Tree(await house.log())
    view = model_view(tree.path(tree.leaf_id))
    check_model_view(view)
    return [each for message in view for each in message.tool_results][-1]


async def test_a_yes_lets_the_agent_go_on(house: House, tmp_path: Path) -> None:
    sent = await house.send("ask file")
    call_id = await until_asked(house)
    assert not (tmp_path / "work" / "file").exists()
    (fact,) = [each.view for each in await house.log() if each.type == "approval_requested"]
    assert isinstance(fact, ApprovalRequested)
    assert fact.arguments == {"path": "file", "content": "hi"}
    assert fact.reason == "Write it"
    await house.registry.answer(ID, call_id, approve=True)
    await house.rest()
    assert await house.ends() == [(sent.turn_id, "completed")]
    assert (await house.texts())[-1] == "You said yes."
    assert (tmp_path / "work" / "file").read_text() == "hi"
    types = await house.types()
    assert types.index("tool_dispatched") < types.index("approval_requested")


async def test_a_no_is_told_to_the_agent_and_kept_with_its_reason(house: House) -> None:
    await house.send("ask file")
    await house.registry.answer(ID, await until_asked(house), approve=False, reason="not there")
    await house.rest()
    assert (await house.texts())[-1] == "You said no."
    result = await the_result(house)
    assert (result.text, result.is_error) == ("refused: not there", True)


async def test_other_arguments_cannot_be_passed_on_so_nothing_runs(
    house: House, tmp_path: Path
) -> None:
    await house.send("ask file")
    call_id = await until_asked(house)
    await house.registry.answer(ID, call_id, approve=True, arguments={"path": "other"})
    await house.rest()
    result = await the_result(house)
    assert "approved with other arguments" in result.text
    assert '"other"' in result.text
    assert not (tmp_path / "work" / "file").exists()


async def test_a_call_that_is_asked_about_twice_is_answered_twice(house: House) -> None:
    await house.send("twice file")
    first = await until_asked(house)
    await house.registry.answer(ID, first, approve=True)
    await house.until(lambda look: look.status == "running" or len(look.approvals) > 1)
    second = await until_asked(house)
    assert second == f"{first}#2"
    await house.registry.answer(ID, second, approve=True)
    await house.rest()
    assert (await house.texts())[-1] == "You said yes."


async def test_a_stop_while_a_person_is_asked_ends_the_turn(house: House, tmp_path: Path) -> None:
    sent = await house.send("ask file")
    await until_asked(house)
    await house.registry.stop(ID)
    await house.rest()
    assert await house.ends() == [(sent.turn_id, "stopped")]
    assert (await the_result(house)).interrupted
    await house.send("told all")
    await house.rest()
    said = json.loads((await house.texts())[-1])
    assert said[0] == "ask file"
    assert "called edit" in said[1]
    assert not (tmp_path / "work" / "file").exists()


class Strict(Nothing):
    """Hooks that refuse, or that want a person for another reason."""

    def __init__(self, verdict: Verdict) -> None:
        self._verdict = verdict

    async def permit(self, scope: Scope, call: ToolCall, /) -> Verdict:
        return self._verdict


async def test_a_hook_refuses_before_a_person_is_asked(tmp_path: Path) -> None:
    verdict = Refused("never there")
    house = House(MemoryStore(), Loops(acp(tmp_path)), surroundings=Strict(verdict))
    await house.create()
    await house.send("ask file")
    await house.rest()
    assert (await the_result(house)).text == "refused: never there"
    assert "approval_requested" not in await house.types()
    await house.close()


async def test_a_hook_asks_a_person_where_the_agent_would_not_have_to(tmp_path: Path) -> None:
    loop = acp(tmp_path, asks_people=False)
    house = House(MemoryStore(), Loops(loop), surroundings=Strict(Waits("it costs money")))
    await house.create()
    await house.send("ask file")
    await until_asked(house)
    assert (await house.look()).approvals[0].reason == "it costs money"
    await house.registry.answer(ID, "c1", approve=True)
    await house.rest()
    assert (await house.texts())[-1] == "You said yes."
    await house.close()


async def test_the_agents_session_is_remembered_across_a_restart(house: House) -> None:
    await house.send("say one")
    await house.rest()
    (first, second) = [e.view for e in await house.log() if isinstance(e.view, LoopRemembered)]
    assert first.value != second.value
    await house.registry.close()
    other = house.restart()
    await other.send("told all")
    await other.rest()
    assert json.loads((await other.texts())[-1]) == ["say one", "told all"]


async def test_after_the_death_of_the_server_nothing_runs_and_a_resend_begins_anew(
    tmp_path: Path,
) -> None:
    server = ServerProcess(tmp_path, loop="tests.loops.acp_served:agent")
    try:
        await asyncio.to_thread(server.start)
        async with client(server) as http:
            await http.post("/v1/sessions", json={"session_id": "s"})
            await http.post("/v1/sessions/s/messages", json={"text": "hang up"})
            pids = await until_pids(tmp_path / "pids")
        await asyncio.to_thread(server.kill_alone)
        for pid in pids:
            await until_gone(pid)
        await asyncio.to_thread(server.start)
        async with client(server) as http:
            (tmp_path / "pids").unlink()
            answer = await http.post("/v1/sessions/s/resend")
            assert answer.status_code == 202, answer.text
            pids = await until_pids(tmp_path / "pids")
            await http.post("/v1/sessions/s/stop", json={})
            await until_idle(http)
            for pid in pids:
                await until_gone(pid)
            await http.post("/v1/sessions/s/messages", json={"text": "told all"})
            await until_idle(http)
            page = (await http.get("/v1/sessions/s/entries")).json()
    finally:
        server.kill()
    answers = [each for each in page["entries"] if each.get("role") == "assistant"]
    told = json.loads(answers[-1]["parts"][0]["text"])
    assert (told[0], told[-1]) == ("hang up", "told all")
    assert len(list((tmp_path / "sessions").iterdir())) == 2


def client(server: ServerProcess) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        base_url=server.base, headers=server.headers, timeout=30, trust_env=False
    )


async def until_idle(http: httpx.AsyncClient) -> None:
    for _ in range(600):
        look = (await http.get("/v1/sessions/s")).json()
        if look["status"] == "idle" and look["turn"] is None:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(look)


def pids_in(file: Path) -> list[int]:
    return [int(pid) for pid in file.read_text().split()] if file.exists() else []


async def until_pids(file: Path) -> list[int]:
    for _ in range(600):
        if len(pids := pids_in(file)) == 2:
            return pids
        await asyncio.sleep(0.05)
    raise AssertionError("the agent did not start")


async def until_gone(pid: int) -> None:
    for _ in range(200):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"process {pid} is still there")


async def test_what_asks_within_another_call_is_asked_while_that_is_open(
    house: House, tmp_path: Path
) -> None:
    sent = await house.send("nested file")
    call_id = await until_asked(house)
    assert call_id == "c1"
    await house.registry.answer(ID, call_id, approve=True)
    await house.rest()
    assert await house.ends() == [(sent.turn_id, "completed")]
    assert (tmp_path / "work" / "file").read_text() == "hi"
    tree = Tree(await house.log())
    view = model_view(tree.path(tree.leaf_id))
    check_model_view(view)
    results = [result for message in view for result in message.tool_results]
    assert [(each.call_id, each.is_error) for each in results] == [("p", False), ("c1", False)]
