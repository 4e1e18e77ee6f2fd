"""Real command-line agents in a real server, against a provider mock: `make test-agents`.

Not collected by `make test`: it installs more than a gigabyte of other people's programs.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.agents.install import NotInstallableError, install
from tests.agents.setups import Setup, setups
from tests.provider.mock import Provider, recording, running_mock
from tests.serving import ServerProcess

NAMES = ("claude", "claude-stream", "codex", "opencode", "gemini")
PATIENCE_S = 60.0


@pytest.fixture(scope="session")
def bin_folder() -> Path:
    try:
        return install()
    except NotInstallableError as error:
        pytest.skip(f"NOT RUN: the agents' command lines cannot be installed here: {error}")


@pytest.fixture(scope="session")
def mock_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_mock(tmp_path_factory.mktemp("provider")) as url:
        yield url


class World:
    """A server with one agent as its loop, one session in it, and the mock behind the agent."""

    def __init__(self, folder: Path, setup: Setup, provider: Provider) -> None:
        self.folder = folder
        self.setup = setup
        self.provider = provider
        self.work = folder / "work"
        self.work.mkdir()
        for name, content in setup.files.items():
            file = folder / "home" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content)
        lines = ["[loops.agent]", f'kind = "{setup.kind}"']
        table = {**setup.table, "workspace": str(self.work)}
        lines += [f"{key} = {json.dumps(value)}" for key, value in table.items()]
        lines += ["[loops.agent.env]"]
        lines += [f"{key} = {json.dumps(value)}" for key, value in setup.env.items()]
        (folder / "perdure.toml").write_text("\n".join(lines))
        self.server = ServerProcess(folder, loop="agent")
        self.http = httpx.AsyncClient(timeout=60, trust_env=False)

    async def start(self) -> None:
        await asyncio.to_thread(self.server.start)
        await self.http.aclose()
        self.http = httpx.AsyncClient(
            base_url=self.server.base, headers=self.server.headers, timeout=60, trust_env=False
        )
        await self.http.post("/v1/sessions", json={"session_id": "s"})

    async def close(self) -> None:
        await self.http.aclose()
        await asyncio.to_thread(self.server.kill)

    async def teach(self, prompt: str, *answers: Mapping[str, Any]) -> None:
        """What the model says to this prompt: a call first, where there are two answers."""
        matches = [{"hasToolResult": bool(n)} if len(answers) > 1 else {} for n in range(2)]
        fixtures = [
            {"match": {"userMessage": prompt, **match}, "response": answer}
            for match, answer in zip(matches, answers, strict=False)
        ]
        await self.provider.teach(*fixtures, {"match": {}, "response": {"content": "Noted."}})

    def call(self, command: str) -> Mapping[str, Any]:
        """A call of the agent's tool that runs commands."""
        arguments = json.dumps(self.setup.arguments(command))
        return {"toolCalls": [{"id": "call_1", "name": self.setup.tool, "arguments": arguments}]}

    async def send(self, prompt: str) -> None:
        answer = await self.http.post("/v1/sessions/s/messages", json={"text": prompt})
        assert answer.status_code == 202, answer.text

    async def until(self, *statuses: str) -> dict[str, Any]:
        look: dict[str, Any] = {}
        for _ in range(int(PATIENCE_S / 0.1)):
            look = (await self.http.get("/v1/sessions/s")).json()
            if look["status"] in statuses:
                return look
            await asyncio.sleep(0.1)
        raise AssertionError(f"{look}\n{self.log()}")

    async def approve_all(self) -> list[str]:
        """Says yes to whatever is asked until the turn is over; returns what was asked for."""
        asked: list[str] = []
        while (look := await self.until("idle", "waiting", "failed"))["status"] == "waiting":
            for each in look["approvals"]:
                asked.append(each["name"])
                path = f"/v1/sessions/s/approvals/{each['call_id']}"
                answer = await self.http.post(path, json={"approve": True})
                assert answer.status_code in (202, 404, 409), answer.text
        assert look["status"] == "idle", f"{look}\n{self.log()}"
        return asked

    async def entries(self) -> list[dict[str, Any]]:
        page = (await self.http.get("/v1/sessions/s/entries", params={"limit": 200})).json()
        return list(page["entries"])

    async def texts(self, role: str) -> list[str]:
        """What each message of this role says."""
        return [
            "".join(part.get("text", "") for part in entry["parts"])
            for entry in await self.entries()
            if entry.get("role") == role
        ]

    def log(self) -> str:
        return (self.folder / "server.log").read_text()[-3000:]

    def left(self) -> list[str]:
        """The processes whose home is this world's: what the agent started, wherever it fled."""
        mark = f"HOME={self.folder / 'home'}".encode()
        found = []
        for each in Path("/proc").iterdir():
            if each.name.isdigit():
                try:
                    if mark in (each / "environ").read_bytes().split(b"\0"):
                        found.append((each / "cmdline").read_bytes().decode()[:80])
                except OSError:
                    continue
        return found

    async def until_none_left(self) -> None:
        for _ in range(100):
            if not (left := await asyncio.to_thread(self.left)):
                return
            await asyncio.sleep(0.1)
        raise AssertionError(f"still running: {left}")

    async def until_file(self, name: str) -> str:
        for _ in range(int(PATIENCE_S / 0.1)):
            if text := read(self.work / name):
                return text
            await asyncio.sleep(0.1)
        raise AssertionError(f"{name} was not written\n{self.log()}")


def read(file: Path) -> str:
    return file.read_text() if file.exists() else ""


@pytest.fixture(params=NAMES)
async def world(
    request: pytest.FixtureRequest, bin_folder: Path, mock_url: str, tmp_path: Path
) -> AsyncIterator[World]:
    async with recording(mock_url) as provider:
        base = provider.base_url("anthropic")
        made = setups(bin_folder, tmp_path / "home", base)[request.param]
        world = World(tmp_path, made, provider)
        try:
            await world.start()
            yield world
        finally:
            await world.close()


async def test_it_answers_and_remembers(world: World) -> None:
    await world.teach("first question", {"content": "The first answer."})
    await world.send("first question")
    await world.approve_all()
    assert "The first answer." in (await world.texts("assistant"))[-1]
    await world.teach("second question", {"content": "The second answer."})
    before = len(world.provider.requests)
    await world.send("second question")
    await world.approve_all()
    assert "The second answer." in (await world.texts("assistant"))[-1]
    asked = b"\n".join(world.provider.requests[before:])
    assert b"The first answer." in asked
    if world.setup.reloads:
        assert b"END OF TRANSCRIPT" not in asked
    await world.until_none_left()


async def test_a_call_waits_for_a_person_and_goes_on(world: World) -> None:
    command = f"echo it-ran > {world.work / 'file'}; cat {world.work / 'file'}"
    await world.teach("write the file", world.call(command), {"content": "It is written."})
    await world.send("write the file")
    look = await world.until("waiting", "failed")
    assert look["status"] == "waiting", f"{look}\n{world.log()}"
    assert not read(world.work / "file")
    assert await world.approve_all()
    assert read(world.work / "file") == "it-ran\n"
    entries = await world.entries()
    types = [entry["type"] for entry in entries]
    assert types.index("tool_dispatched") < types.index("approval_requested")
    calls = [
        part
        for entry in entries
        for part in entry.get("parts", ())
        if part["type"] == "tool_call" and command in json.dumps(part)
    ]
    assert calls, entries
    results = [
        part for e in entries for part in e.get("parts", ()) if part["type"] == "tool_result"
    ]
    assert any("it-ran" in json.dumps(part) for part in results), results
    assert "It is written." in (await world.texts("assistant"))[-1]


async def test_a_refusal_reaches_it(world: World) -> None:
    command = f"echo it-ran > {world.work / 'file'}"
    await world.teach("write the file", world.call(command), {"content": "As you wish."})
    await world.send("write the file")
    look = await world.until("waiting")
    path = f"/v1/sessions/s/approvals/{look['approvals'][0]['call_id']}"
    await world.http.post(path, json={"approve": False, "reason": "not in this folder"})
    await world.until("idle", "failed")
    assert not read(world.work / "file")
    results = [
        part
        for entry in await world.entries()
        for part in entry.get("parts", ())
        if part["type"] == "tool_result"
    ]
    assert any("not in this folder" in json.dumps(part) for part in results), results


async def start_long_command(world: World) -> int:
    """Has the agent run a command that does not end; returns its process id."""
    command = f"echo $$ > {world.work / 'pid'}; sleep 1000"
    await world.teach("run for long", world.call(command), {"content": "Ran."})
    await world.send("run for long")
    look = await world.until("waiting", "failed")
    assert look["status"] == "waiting", f"{look}\n{world.log()}"
    for each in look["approvals"]:
        path = f"/v1/sessions/s/approvals/{each['call_id']}"
        await world.http.post(path, json={"approve": True})
    pid = int(await world.until_file("pid"))
    os.kill(pid, 0)
    return pid


async def test_a_stop_in_mid_turn_leaves_nothing_running(world: World) -> None:
    await start_long_command(world)
    await world.http.post("/v1/sessions/s/stop", json={})
    await world.until("idle")
    await world.until_none_left()
    await world.teach("go on", {"content": "Gone on."})
    await world.send("go on")
    await world.approve_all()
    assert "Gone on." in (await world.texts("assistant"))[-1]


async def test_kill_9_of_the_server_leaves_nothing_running_and_a_resend_works(
    world: World,
) -> None:
    await start_long_command(world)
    await asyncio.to_thread(world.server.kill_alone)
    await world.until_none_left()
    await world.teach("run for long", {"content": "This time without a command."})
    await world.start()
    look = (await world.http.get("/v1/sessions/s")).json()
    assert look["status"] == "interrupted"
    answer = await world.http.post("/v1/sessions/s/resend")
    assert answer.status_code == 202, answer.text
    await world.approve_all()
    assert "This time without a command." in (await world.texts("assistant"))[-1]
    await world.until_none_left()


@pytest.mark.parametrize("waits", [True, False])
async def test_an_agent_that_it_started_asks_and_its_work_is_done(
    world: World, waits: bool
) -> None:
    """It waits for that agent, or ends its answer meanwhile and goes on when it is done."""
    if not world.setup.name.startswith("claude"):
        pytest.skip("others have no such tool, or none that is stable")
    command = f"echo it-ran > {world.work / 'file'}"
    task = {"description": "a task", "prompt": "work for me", "subagent_type": "general-purpose"}
    arguments = json.dumps({**task, "run_in_background": not waits})
    call = {"toolCalls": [{"id": "call_0", "name": "Agent", "arguments": arguments}]}

    def when(prompt: str, response: Mapping[str, Any], *, later: bool) -> Mapping[str, Any]:
        return {"match": {"userMessage": prompt, "hasToolResult": later}, "response": response}

    await world.provider.teach(
        when("delegate it", call, later=False),
        when("delegate it", {"content": "Delegated."}, later=True),
        when("work for me", world.call(command), later=False),
        when("work for me", {"content": "Worked."}, later=True),
        {"match": {}, "response": {"content": "Noted."}},
    )
    await world.send("delegate it")
    assert "Bash" in await world.approve_all()
    assert read(world.work / "file") == "it-ran\n"
    await world.until_none_left()
