"""What every test is held to: it does not block its event loop, and it leaves nothing running.

`@pytest.mark.may_block` lets one test block on purpose. Property tests judge by results alone, so a
slow machine fails none of them; where CI runs them they play the same cases every time.
"""

from __future__ import annotations

import asyncio
import asyncio.runners
import os
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "perdure",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=40,
    derandomize="CI" in os.environ,
)
settings.load_profile("perdure")

BOUND_S = 1.0
"""A callback that keeps the event loop this long blocks it: far above any sound step."""

_BEAT_S = 0.05
_THREAD_GRACE_S = 2.0


class _Heart:
    """A thread that only sleeps: where it wakes late, the machine stalled and not the test."""

    def __init__(self) -> None:
        self.stalled_s = 0.0
        threading.Thread(target=self._beat, name="test-heart", daemon=True).start()

    def _beat(self) -> None:
        while True:
            before = time.perf_counter()
            time.sleep(_BEAT_S)
            self.stalled_s += max(0.0, time.perf_counter() - before - _BEAT_S)


@pytest.fixture(scope="session")
def _heart() -> _Heart:
    return _Heart()


@pytest.fixture(autouse=True)
def _nothing_blocks_the_event_loop(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, _heart: _Heart
) -> Iterator[None]:
    blocked: list[str] = []
    run: Callable[[asyncio.Handle], None] = asyncio.Handle._run

    def timed(handle: asyncio.Handle) -> None:
        wall, cpu, stalled_s = time.perf_counter(), time.thread_time(), _heart.stalled_s
        try:
            run(handle)
        finally:
            if time.perf_counter() - wall >= BOUND_S:
                wall, cpu = time.perf_counter() - wall, time.thread_time() - cpu
                time.sleep(2 * _BEAT_S)
                worked = max(cpu, wall - (_heart.stalled_s - stalled_s))
                if worked >= BOUND_S:
                    blocked.append(f"{worked:.1f} s in {handle!r}")

    monkeypatch.setattr(asyncio.Handle, "_run", timed)
    yield
    if blocked and request.node.get_closest_marker("may_block") is None:
        pytest.fail("the event loop was blocked: " + "; ".join(blocked))


@pytest.fixture(autouse=True)
def _nothing_is_left_running(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No task outlives its event loop, and no thread its test."""
    leaked: list[str] = []
    cancel_all_tasks: Callable[[asyncio.AbstractEventLoop], None] = (
        asyncio.runners._cancel_all_tasks  # type: ignore[attr-defined]  # private, and the one place
    )

    def noting(loop: asyncio.AbstractEventLoop) -> None:
        leaked.extend(repr(task) for task in asyncio.all_tasks(loop) if not _is_closing(task))
        cancel_all_tasks(loop)

    monkeypatch.setattr(asyncio.runners, "_cancel_all_tasks", noting)
    before = set(threading.enumerate())
    yield
    if leaked:
        pytest.fail("tasks were left running: " + "; ".join(leaked))
    deadline = time.monotonic() + _THREAD_GRACE_S
    while left := [each for each in threading.enumerate() if _is_leak(each, before)]:
        if time.monotonic() > deadline:
            pytest.fail(f"threads were left running: {left}")
        time.sleep(0.01)


def _is_closing(task: asyncio.Task[object]) -> bool:
    """Whether it is asyncio's own task that closes a generator that was garbage collected."""
    return type(task.get_coro()).__name__ == "async_generator_athrow"


def _is_leak(thread: threading.Thread, before: set[threading.Thread]) -> bool:
    ours = thread.name.startswith(("test-heart", "asyncio_"))
    return thread not in before and not ours and thread.is_alive()
