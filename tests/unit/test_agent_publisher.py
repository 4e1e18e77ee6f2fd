"""The publisher hears of what is committed, in order, and can harm nothing."""

from __future__ import annotations

import pytest

import perdure
from perdure.errors import (
    ConfigurationError,
)
from perdure.events import LifecycleEvent
from tests.unit.checks import check_agrees
from tests.unit.looping import Probe
from tests.unit.opened import conversation, opened


async def test_a_publisher_that_would_have_to_be_awaited_is_refused() -> None:
    async def publish(event: object) -> None: ...

    class Publishes:
        async def publish(self, event: object) -> None: ...

    for publisher in (publish, Publishes()):
        with pytest.raises(ConfigurationError, match="not awaited"):
            await opened(publisher=publisher)


async def test_lifecycle_events_come_in_order_after_the_commit_and_never_on_the_runs_stream() -> (
    None
):
    class Recorder:
        def __init__(self) -> None:
            self.events: list[LifecycleEvent] = []

        def publish(self, event: LifecycleEvent) -> None:
            self.events.append(event)

    recorder = Recorder()
    agent, store = await opened(Probe(), recorder)
    await agent.run("hi")
    leaf_id = agent.leaf_id
    child = await agent.fork("child")
    await agent.compact(keep_turns=0)
    agent.branch(None)
    await perdure.open("s", store=store, publisher=recorder)
    assert [
        (event.type, getattr(event, "session_id", None), getattr(event, "leaf_id", None))
        for event in recorder.events
    ] == [
        ("session_init", "s", None),
        ("session_forked", "child", None),
        ("session_init", "child", leaf_id),
        ("session_compacted", None, agent.entries()[-1].id),
        ("session_branched", None, None),
        ("session_init", "s", agent.entries()[-1].id),
    ]
    assert recorder.events[1].parent_id == "s"  # type: ignore[union-attr]  # it is a fork
    await child.append("x")
    await child.fork("grandchild")
    assert recorder.events[-1].type == "session_init"


async def test_a_publisher_that_raises_harms_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def broken(event: LifecycleEvent) -> None:
        raise ZeroDivisionError

    agent, store = await opened(Probe(), broken)
    await agent.run("hi")
    await agent.fork("child")
    await agent.compact(keep_turns=0)
    agent.branch(None)
    await agent.append("next")
    assert len(caplog.records) == 5
    await check_agrees(agent, store)


async def test_a_publisher_may_use_the_agent() -> None:
    def publisher(event: LifecycleEvent) -> None:
        if event.type == "session_compacted":
            agent.branch(None)

    agent, _ = await opened(publisher=publisher)
    await conversation(agent, 2)
    await agent.compact(keep_turns=0, summary="S")
    assert agent.leaf_id is None
