"""Functions that block: whatever they do, nobody else stands still."""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar

import pytest

from perdure.blocking import Blocking

MORE_THAN_A_POOL_HAS = 48
"""A pool has at most 32 threads: concurrent.futures.ThreadPoolExecutor."""


async def until(holds: object) -> None:
    for _ in range(400):
        if callable(holds) and holds():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not come to it")


async def test_those_that_hang_leave_the_threads_of_others_alone() -> None:
    free = threading.Event()
    blocking = Blocking(free.wait)
    calls = [asyncio.create_task(blocking(30)) for _ in range(MORE_THAN_A_POOL_HAS)]
    await asyncio.sleep(0.05)
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    assert blocking.hanging == MORE_THAN_A_POOL_HAS
    async with asyncio.timeout(5):
        assert await asyncio.to_thread(lambda: "at once") == "at once"
    free.set()
    await until(lambda: blocking.hanging == 0)


async def test_what_it_returns_and_raises_comes_out() -> None:
    assert await Blocking(int)("7", base=8) == 7
    with pytest.raises(ValueError, match="invalid literal"):
        await Blocking(int)("x")


async def test_a_stop_iteration_comes_out_and_hangs_nobody() -> None:
    async with asyncio.timeout(5):
        with pytest.raises(RuntimeError, match="StopIteration"):
            await Blocking(next)(iter(()))


async def test_it_sees_the_context_variables_of_its_caller() -> None:
    variable: ContextVar[str] = ContextVar("variable")
    variable.set("mine")
    assert await Blocking(variable.get)() == "mine"
