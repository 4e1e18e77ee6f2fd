"""kill -9 at every write of a routine on SQLite, and of a real server at random moments."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import httpx
import pytest

from perdure.fact import RoutineFired, RoutineRunEnded, RoutineRunStarted, TurnStarted
from perdure.stores.sqlite import SqliteStore
from tests.crash.test_agent_killed import ROUNDS, SEED
from tests.serving import REPO, ServerProcess


async def check(path: Path, routine_id: str = "r") -> int:
    """No due time was claimed twice or started two turns, and every claim came to an end."""
    fired: Counter[str] = Counter()
    messages: set[str] = set()
    ended: Counter[str] = Counter()
    async with SqliteStore(path) as store:
        for stored in await store.of_kind("routine").load_entries(routine_id):
            match stored.view:
                case RoutineFired(due_at=due):
                    fired[due] += 1
                case RoutineRunStarted(message_id=message_id):
                    messages.add(message_id)
                case RoutineRunEnded(run_id=run_id):
                    ended[run_id] += 1
        entries = await store.load_entries(routine_id)
        turns = Counter(
            view.message_id for each in entries if isinstance(view := each.view, TurnStarted)
        )
        assert await store.verify_store() == []
    assert set(fired.values()) | set(ended.values()) | set(turns.values()) <= {1}
    assert ended.keys() == fired.keys(), "a claim has no end"
    assert turns.keys() == messages, "a turn is in no run history, or the other way"
    return len(turns)


def run_child(n: int, when: str, path: Path, start: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(REPO / "src"), str(REPO)))}
    return subprocess.run(
        [sys.executable, "-m", "tests.crash.routine_child", str(n), when, str(path), start],
        cwd=REPO,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("when", ["before", "after"])
async def test_killed_at_any_write_it_starts_nothing_twice_and_loses_nothing(
    when: str, tmp_path: Path
) -> None:
    n = 0
    while True:
        n += 1
        path = tmp_path / f"{n}.db"
        killed = await asyncio.to_thread(run_child, n, when, path, "2026-01-05T08:30:00+00:00")
        if killed.returncode == 0:
            break
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        again = await asyncio.to_thread(run_child, 0, when, path, "2026-01-05T11:15:00+00:00")
        assert again.returncode == 0, again.stderr
        statuses = [status for _, status in json.loads(again.stdout)]
        assert set(statuses) <= {"succeeded", "missed", "interrupted"}, statuses
        assert await check(path) >= 3
    assert n > 10


@pytest.mark.may_block
@pytest.mark.parametrize("number", range(max(1, ROUNDS // 10)))
async def test_a_server_that_is_killed_again_and_again(number: int, tmp_path: Path) -> None:
    print(f"PERDURE_CRASH_SEED={SEED} makes this again")  # noqa: T201 # shown where it fails
    dice = random.Random(SEED + number)
    server = ServerProcess(tmp_path, loop="perdure.testing.scripted_loop:scripted_by_message")
    for turn in range(4):
        with server:
            async with httpx.AsyncClient(base_url=server.base, headers=server.headers) as client:
                if not turn:
                    body = {"routine_id": "r", "text": "hello", "every_s": 1, "overlap": "queue"}
                    assert (await client.post("/v1/routines", json=body)).status_code == 201
                await asyncio.sleep(0.9 + dice.random() * 0.3)
    with server:
        async with httpx.AsyncClient(base_url=server.base, headers=server.headers) as client:
            await asyncio.sleep(1)
            await client.patch("/v1/routines/r", json={"status": "paused"})
            for _ in range(500):
                if not (await client.get("/v1/routines/r")).json()["running"]:
                    break
                await asyncio.sleep(0.01)
            assert (await client.get("/v1/routines/r")).json()["running"] == []
    assert await check(tmp_path / "sessions.db") >= 2
