"""Whatever an agent tells, in whatever order, a journal can take, and nothing of it is lost."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.entry import Text, ToolCall
from perdure.loop import (
    Allowed,
    LoopEvent,
    MessageDelta,
    MessageEnded,
    MessageStarted,
    Refused,
    ToolDelta,
    ToolEnded,
    ToolStarted,
)
from perdure.loops import order as module
from perdure.loops.agent_told import Answered, Asked, CallTold, Said, TurnOver
from perdure.loops.order import Order
from tests.loops.test_order import Time

IDS = st.sampled_from("abc")
STATES = st.sampled_from([None, "pending", "running", "done", "failed"])
ARGUMENTS = st.sampled_from([None, {"n": 1}, {"n": 1, "m": 2}])
STEPS = st.one_of(
    st.tuples(st.just("say"), st.sampled_from(["text", "reasoning"]), st.sampled_from("xy")),
    st.tuples(st.just("call"), IDS, st.booleans(), ARGUMENTS, STATES, st.booleans()),
    st.tuples(st.just("ask"), IDS),
    st.tuples(st.just("answer"), st.booleans()),
    st.tuples(st.just("wait"), st.sampled_from([0.05, 0.2, 3.0])),
)


class Journal:
    """Holds events against the rules of a run."""

    def __init__(self) -> None:
        self.open: set[str] = set()
        self.is_making = False
        self.said = ""
        self.calls: Counter[str] = Counter()
        self.results: Counter[str] = Counter()

    def take(self, events: Iterable[LoopEvent]) -> None:
        for event in events:
            match event:
                case MessageStarted():
                    assert not self.open
                    assert not self.is_making
                    self.is_making = True
                case MessageDelta():
                    assert self.is_making
                case MessageEnded(parts=parts):
                    assert self.is_making
                    self.is_making = False
                    made = [part.call_id for part in parts if isinstance(part, ToolCall)]
                    assert len(set(made)) == len(made)
                    self.open.update(made)
                    self.calls.update(made)
                    self.said += "".join(getattr(part, "text", "") for part in parts)
                case ToolStarted(call_id=call_id) | ToolDelta(call_id=call_id):
                    assert call_id in self.open
                case ToolEnded(result=result):
                    self.open.remove(result.call_id)
                    self.results[result.call_id] += 1


@given(steps=st.lists(STEPS, max_size=30))
def test_any_order_is_one(steps: list[Any]) -> None:
    async def run() -> None:
        time = Time()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "monotonic", time)
            play(steps, time)

    asyncio.run(run())


def play(steps: list[Any], time: Time) -> None:
    order, journal, asked = Order(limit_chars=None), Journal(), list[Asked]()
    said = ""
    for number, step in enumerate(steps):
        match step:
            case ("say", kind, message_id):
                said += f"{number} "
                journal.take(order.take(Said(f"{number} ", kind, message_id)))
            case ("call", call_id, is_first, arguments, state, has_output):
                told = CallTold(
                    call_id,
                    name="t" if is_first else None,
                    arguments=arguments,
                    state=state,
                    is_first=is_first,
                    output=[Text("o")] if has_output else None,
                    more="" if has_output else "m",
                )
                journal.take(order.take(told))
            case ("ask", call_id):
                asked.append(Asked(call_id, None))
                told = CallTold(call_id, arguments={"n": 1}, is_whole=True, is_asked=True)
                journal.take(order.take(told))
                journal.take(order.take(asked[-1]))
                assert order.is_stored(asked[-1]) or order.is_held(asked[-1])
            case ("answer", is_allowed) if asked:
                one = asked.pop()
                if order.is_stored(one) or order.is_held(one):
                    order.call_of(one)
                    answer = Allowed({"n": 1}) if is_allowed else Refused("no")
                    journal.take(order.take(Answered(one, answer)))
            case ("wait", seconds):
                time.now += seconds
                journal.take(order.take(None))
    journal.take(order.take(TurnOver()))
    assert not journal.open
    assert not journal.is_making
    assert journal.said == said
    assert journal.calls == journal.results
    assert order.outputs >= journal.calls.total()
