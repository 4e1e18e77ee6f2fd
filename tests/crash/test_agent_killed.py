"""kill -9 of a process with durable agents, at random moments: nothing told is ever lost."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import perdure
from perdure.entry import Message, ToolCall, ToolResult
from tests.crash.chaos import chaos

ROUNDS = int(os.environ.get("PERDURE_CRASH_ROUNDS", "20"))
SEED = int(os.environ.get("PERDURE_CRASH_SEED", str(random.randrange(10**6))))
REPO = Path(__file__).parents[2]

Told = dict[tuple[str, int], tuple[str, str]]


def work_and_die(url: str, seed: int, delay_s: float, cwd: Path) -> Told:
    """Lets a child work, kills it `delay_s` after its first receipt, and says what it had told."""
    env = os.environ | {"PYTHONPATH": os.pathsep.join((str(REPO / "src"), str(REPO)))}
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.crash.agent_child", url, str(seed)],
        stdout=subprocess.PIPE,
        cwd=cwd,
        env=env,
        start_new_session=True,
    )
    assert child.stdout is not None
    first = child.stdout.readline()
    time.sleep(delay_s)
    os.killpg(child.pid, signal.SIGKILL)
    lines = [first, *child.stdout.read().splitlines(keepends=True)]
    child.stdout.close()
    assert child.wait() == -signal.SIGKILL, "the child ended by itself"
    told: Told = {}
    for line in lines:
        if line.endswith(b"\n"):
            session_id, seq, entry_id, digest = json.loads(line)
            told[session_id, seq] = (entry_id, digest)
    return told


def check_view(messages: list[Message]) -> None:
    """Every call has exactly one result right behind its message, and no result is without one."""
    expected: list[str] = []
    for message in messages:
        for part in message.parts:
            if isinstance(part, ToolResult):
                assert expected, f"a result without its call: {part}"
                assert part.call_id == expected.pop(0)
            elif isinstance(part, ToolCall):
                expected.append(part.call_id)
            else:
                assert not expected or message.tool_calls, f"{expected} without a result"
    assert not expected


async def check(url: str, told: Told) -> None:
    """Reopens what was told of, and goes on."""
    sessions = {session_id for session_id, _ in told}
    async with perdure.open_store(url) as store:
        for session_id in sorted(sessions):
            entries = await store.load_entries(session_id)
            assert [stored.seq for stored in entries] == list(range(1, len(entries) + 1))
            assert len({stored.id for stored in entries}) == len(entries)
            for (owner, seq), (entry_id, digest) in told.items():
                if owner == session_id:
                    stored = entries[seq - 1]
                    assert stored.id == entry_id
                    assert hashlib.sha256(stored.raw).hexdigest() == digest
            async with await perdure.open(session_id, chaos, store=store) as agent:
                check_view(agent.messages())
                assert len(agent.entries()) == len(entries), "opening wrote something"
                with contextlib.suppress(RuntimeError):
                    await agent.run("after the crash")
                check_view(agent.messages())
            await store.verify_session(session_id)  # type: ignore[attr-defined]


@pytest.mark.parametrize("scheme", ["jsonl", "sqlite"])
def test_whatever_was_told_survives_kill_9(scheme: str, tmp_path: Path) -> None:
    dice = random.Random(SEED)
    for round_ in range(max(1, ROUNDS // 2)):
        seed, delay_s = dice.randrange(10**9), dice.random() * 0.35
        folder = tmp_path / f"{scheme}{round_ % 4}"  # four stores, each killed again and again
        folder.mkdir(exist_ok=True)
        url = f"{scheme}:///{folder / 'store'}"
        told = work_and_die(url, seed, delay_s, tmp_path)
        assert told
        try:
            asyncio.run(check(url, told))
        except AssertionError as error:
            raise AssertionError(f"PERDURE_CRASH_SEED={SEED}, round {round_}: {error}") from error
