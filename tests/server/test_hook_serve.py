"""Hooks of a real server: over HTTP, and across its death in the middle of one."""

from __future__ import annotations

import json
import time
import urllib.request
from pathlib import Path
from typing import Any

from tests.server.hooking import command, group, is_alive, write_hooks
from tests.serving import ServerProcess


def ask(server: ServerProcess, path: str, body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(server.base + path, data=data, headers=server.headers)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.loads(answer.read())


def send(server: ServerProcess, text: str) -> None:
    ask(server, "/v1/sessions/s/messages", {"text": text})


def rest(server: ServerProcess) -> Any:
    until = time.monotonic() + 20
    while time.monotonic() < until:
        look = ask(server, "/v1/sessions/s")
        if look["turn"] is None:
            return look
        time.sleep(0.02)
    raise AssertionError(look)


def entries(server: ServerProcess, kind: str) -> list[Any]:
    page = ask(server, "/v1/sessions/s/entries?limit=200")
    return [entry for entry in page["entries"] if entry["type"] == kind]


def test_a_guard_refuses_a_command_and_the_journal_says_all_of_it(tmp_path: Path) -> None:
    guard = command("grep -q 'rm -r' && { echo not that >&2; exit 2; }; exit 0")
    write_hooks(tmp_path, {"PreToolUse": [group(guard, matcher="Bash")]})
    (tmp_path / "kept").mkdir()
    with ServerProcess(tmp_path, loop="shell") as server:
        ask(server, "/v1/sessions", {"session_id": "s"})
        send(server, "rm -r kept")
        rest(server)
        send(server, "echo fine")
        assert rest(server)["status"] == "idle"
        assert (tmp_path / "kept").exists()
        refused, allowed = entries(server, "hook_ran")
        assert (refused["event"], refused["exit"], allowed["exit"]) == ("PreToolUse", 2, 0)
        assert refused["input"]["tool_input"] == {"command": "rm -r kept"}
        assert refused["output"]["stderr"] == "not that\n"
        assert refused["seconds"] > 0
        results = [
            part
            for message in entries(server, "message")
            for part in message["parts"]
            if part["type"] == "tool_result"
        ]
        assert [result.get("is_error", False) for result in results] == [True, False]


def test_a_startup_comes_once_whatever_dies_in_its_middle(tmp_path: Path) -> None:
    start = "cat >> told; echo >> told; echo $$ > pid; if [ -e slow ]; then sleep 60; fi"
    write_hooks(tmp_path, {"SessionStart": [group(command(start))]})
    (tmp_path / "slow").touch()
    server = ServerProcess(tmp_path, loop="shell").start()
    try:
        ask(server, "/v1/sessions", {"session_id": "s"})
        send(server, "echo one")
        until = time.monotonic() + 20
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
            assert time.monotonic() < until
            time.sleep(0.02)
        assert ask(server, "/v1/sessions/s")["status"] == "running"
        server.kill()
        pid = int((tmp_path / "pid").read_text())
        while is_alive(pid):
            assert time.monotonic() < until
            time.sleep(0.02)
        (tmp_path / "slow").unlink()
        server.start()
        assert ask(server, "/v1/sessions/s")["status"] == "interrupted"
        assert [fact["source"] for fact in entries(server, "session_started")] == ["startup"]
        for text in ("echo two", "echo three"):
            send(server, text)
            rest(server)
        assert [fact["source"] for fact in entries(server, "session_started")] == [
            "startup",
            "resume",
        ]
        told = [json.loads(line) for line in (tmp_path / "told").read_text().splitlines() if line]
        assert [each["source"] for each in told] == ["startup", "resume"]
        assert [fact["source"] for fact in entries(server, "hook_ran")] == ["resume"]
        assert server.stop() == 0
    finally:
        server.kill()
