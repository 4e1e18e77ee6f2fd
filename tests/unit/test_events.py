"""What runs and agents tell: each event says its type, and a publisher is an object or a call."""

from __future__ import annotations

from typing import get_args

import pytest

import perdure
from perdure.events import (
    AgentEnd,
    LifecycleEvent,
    Publisher,
    RunEvent,
    SessionBranched,
    SessionInit,
)


def test_every_event_has_the_type_that_the_contract_names() -> None:
    names = {kind.__struct_config__.tag for kind in get_args(RunEvent)}
    assert names == {
        "agent_start",
        "message_start",
        "message_update",
        "message_end",
        "tool_start",
        "tool_end",
        "notice",
        "agent_end",
    }
    names = {kind.__struct_config__.tag for kind in get_args(LifecycleEvent)}
    assert names == {
        "session_init",
        "session_branched",
        "session_forked",
        "session_compacted",
    }
    assert AgentEnd((), None).type == "agent_end"
    assert SessionBranched("a", None).type == "session_branched"


def test_events_are_immutable() -> None:
    event = SessionInit("s", None)
    with pytest.raises(AttributeError):
        event.leaf_id = "x"  # type: ignore[misc]  # what is refused


async def test_a_publisher_is_an_object_or_a_callable() -> None:
    class Recorder:
        def __init__(self) -> None:
            self.events: list[LifecycleEvent] = []

        def publish(self, event: LifecycleEvent) -> None:
            self.events.append(event)

    recorder, events = Recorder(), list[LifecycleEvent]()
    assert isinstance(recorder, Publisher)
    assert not isinstance(events.append, Publisher)

    class Quiet(Publisher):
        def publish(self, event: LifecycleEvent, /) -> None:
            pass

    assert isinstance(Quiet(), Publisher)
    for publisher in (recorder, events.append):
        await perdure.open("s", publisher=publisher)
    assert recorder.events == events == [SessionInit("s", None)]
