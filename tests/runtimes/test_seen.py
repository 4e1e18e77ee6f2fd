from __future__ import annotations

import asyncio

import pytest

from perdure.entry import File, Text, ToolResult
from perdure.runtimes.seen import SeenKeys


def result(text: str) -> ToolResult:
    return ToolResult("c", (Text(text),))


async def ran(seen: SeenKeys, key: str, text: str) -> None:
    async def run() -> ToolResult:
        return result(text)

    task = seen.begin(key, b"what", run).task
    assert task is not None
    await task
    await asyncio.sleep(0)


async def test_results_over_the_bound_go_oldest_first_and_their_keys_stay() -> None:
    seen = SeenKeys(max_kept_chars=10)
    for key in ("a", "b", "c"):
        await ran(seen, key, "12345")
    kept = {key: seen.find(key) for key in ("a", "b", "c")}
    assert [run is not None and run.result is not None for run in kept.values()] == [
        False,
        True,
        True,
    ]
    assert all(run is not None for run in kept.values())


async def test_one_result_is_kept_however_big_it_is() -> None:
    seen = SeenKeys(max_kept_chars=10)

    async def run() -> ToolResult:
        return ToolResult("c", (File("a/b", data=b"x" * 100),))

    task = seen.begin("big", b"what", run).task
    assert task is not None
    await task
    await asyncio.sleep(0)
    assert (found := seen.find("big")) is not None
    assert found.result is not None


async def test_the_oldest_of_too_many_keys_is_forgotten_but_none_that_runs() -> None:
    seen = SeenKeys(max_keys=3)
    over = asyncio.Event()

    async def wait() -> ToolResult:
        await over.wait()
        return result("late")

    running = seen.begin("running", b"what", wait).task
    for key in ("a", "b", "c"):
        await ran(seen, key, key)
    assert [seen.find(key) is not None for key in ("running", "a", "b", "c")] == [
        True,
        False,
        True,
        True,
    ]
    over.set()
    assert running is not None
    assert await running == result("late")


async def test_a_call_that_was_ended_is_known_as_such() -> None:
    seen = SeenKeys()
    run = seen.begin("k", b"what", asyncio.Event().wait)  # type: ignore[arg-type]  # it never ends
    task = run.task
    assert task is not None
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0)
    assert seen.find("k") is run
    assert [run.task, run.result, run.was_ended] == [None, None, True]


async def test_a_call_without_a_key_is_not_remembered() -> None:
    seen = SeenKeys()
    await ran(seen, "", "x")
    assert seen.find("") is None
