"""Turns whose tools run in a runtime of the server, through the whole of it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from perdure.testing import Call, Say, write_script
from tests.serving import ServerProcess

SCRIPTED = "perdure.testing.scripted_loop:scripted_by_message"
TOML = """
[runtimes.box]
kind = "subprocess"
workspace = "box"
lost_after_s = 2
"""


class Client:
    """A session of a server, as a program uses it; every request has a connection of its own."""

    def __init__(self, server: ServerProcess) -> None:
        self._server = server

    def _ask(self, method: str, path: str, body: object = None) -> httpx.Response:
        address, headers = self._server.base + path, self._server.headers
        return httpx.request(method, address, headers=headers, json=body, timeout=30)

    def create(self, runtime: str | None = None) -> httpx.Response:
        return self._ask("POST", "/v1/sessions", {"session_id": "s", "runtime": runtime})

    def post(self, verb: str, **body: Any) -> dict[str, Any]:
        answer = self._ask("POST", f"/v1/sessions/s/{verb}", body)
        assert answer.status_code < 300, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def call(self, command: str, **more: Any) -> str:
        """Sends a message whose run calls this command; returns the turn's id."""
        call = Call("run_command", {"command": command, **more}, runs=True, call_id="c1")
        turn_id = self.post("messages", text=write_script(Say("x", calls=[call]), Say("end")))
        return str(turn_id["turn_id"])

    def look(self) -> dict[str, Any]:
        found: dict[str, Any] = self._ask("GET", "/v1/sessions/s").json()
        return found

    def until(
        self, holds: Callable[[dict[str, Any]], bool], within_s: float = 20
    ) -> dict[str, Any]:
        ends = time.monotonic() + within_s
        while not holds(look := self.look()):
            assert time.monotonic() < ends, look
            time.sleep(0.02)
        return look

    def rest(self) -> dict[str, Any]:
        return self.until(lambda look: look["turn"] is None)

    def entries(self, kind: str) -> list[dict[str, Any]]:
        page = self._ask("GET", "/v1/sessions/s/entries?limit=500").json()
        return [entry for entry in page["entries"] if entry["type"] == kind]

    def results(self) -> list[dict[str, Any]]:
        parts = (part for entry in self.entries("message") for part in entry["parts"])
        return [part for part in parts if part["type"] == "tool_result"]

    def runtime(self) -> dict[str, Any]:
        looks = self._ask("GET", "/v1/runtimes").json()["runtimes"]
        found: dict[str, Any] = next(look for look in looks if look["name"] == "box")
        return found


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    (tmp_path / "box").mkdir()
    (tmp_path / "perdure.toml").write_text(TOML)
    server = ServerProcess(tmp_path, loop=SCRIPTED, options=["--approve", "write_*"]).start()
    yield server
    server.kill()


def pids_in(folder: Path) -> list[int]:
    """The processes that a runtime noted in its workspace."""
    return [int(path.read_text()) for path in folder.glob("*.pid")]


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_session_runs_its_tools_in_the_runtime_that_it_chose(server: ServerProcess) -> None:
    client = Client(server)
    assert client.create("nowhere").status_code == 422
    assert client.create("box").status_code == 201
    assert client.runtime()["status"] == "idle"
    client.call("echo $PERDURE_IDEMPOTENCY_KEY; pwd")
    client.rest()
    (result,) = client.results()
    (dispatched,) = client.entries("tool_dispatched")
    key, folder = result["parts"][0]["text"].split()
    assert key == dispatched["idempotency_key"]
    assert Path(folder) == (server.folder / "box").resolve()
    assert client.runtime()["status"] == "attached"


def test_a_runtime_that_is_killed_in_mid_call_interrupts_the_turn_and_another_takes_it_up(
    server: ServerProcess,
) -> None:
    client = Client(server)
    client.create("box")
    script = "test -e done && exec echo again; echo $PPID > runtime.pid; touch done; sleep 600"
    client.call(f"echo $$ > own.pid; {script}")
    client.until(lambda _: (server.folder / "box" / "done").exists())
    time.sleep(0.2)
    for pid in children_of(server):
        os.kill(pid, signal.SIGKILL)
    look = client.rest()
    assert look["status"] == "interrupted", look
    (lost,) = client.entries("runtime_lost")
    assert lost["runtime_id"].startswith("box/")
    (result,) = client.results()
    assert result["interrupted"]
    assert client.runtime()["status"] == "lost"
    client.post("resend")
    look = client.rest()
    assert look["status"] == "idle", look
    assert client.results()[-1]["parts"][0]["text"] == "again\n"
    (own,) = [pid for pid in pids_in(server.folder / "box") if not is_alive(pid)][:1]
    assert not is_alive(own), "what the call had started is gone"


def children_of(server: ServerProcess) -> list[int]:
    """The runtime's process: the server's child that serves the workspace."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == server.pid:
            found.append(int(stat.parent.name))
    return found


def test_a_server_that_is_killed_in_mid_call_leaves_no_child_and_the_turn_is_sent_again(
    server: ServerProcess,
) -> None:
    client = Client(server)
    client.create("box")
    client.call("test -e done && exec echo again; echo $$ > own.pid; touch done; sleep 600")
    client.until(lambda _: (server.folder / "box" / "done").exists())
    (own,) = pids_in(server.folder / "box")
    server.kill_alone()
    ends = time.monotonic() + 20
    while is_alive(own):
        assert time.monotonic() < ends, "the command outlived its server"
        time.sleep(0.05)
    server.start()
    client = Client(server)
    assert client.look()["status"] == "interrupted"
    client.post("resend")
    assert client.rest()["status"] == "idle"
    assert client.results()[-1]["parts"][0]["text"] == "again\n"


def test_a_tool_that_needs_an_approval_runs_in_the_runtime_once_it_is_there(
    server: ServerProcess,
) -> None:
    client = Client(server)
    client.create("box")
    call = Call("write_file", {"path": "a", "content": "no"}, runs=True, call_id="w")
    client.post("messages", text=write_script(Say("x", calls=[call]), Say("end")))
    look = client.until(lambda look: look["status"] == "waiting")
    assert look["approvals"][0]["name"] == "write_file"
    assert not (server.folder / "box" / "a").exists()
    server.kill()
    server.start()
    client = Client(server)
    assert client.look()["status"] == "waiting"
    client.post("approvals/w", approve=True, arguments={"path": "a", "content": "yes"})
    client.rest()
    assert (server.folder / "box" / "a").read_text() == "yes"
