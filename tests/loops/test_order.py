"""The order of a journal, out of what an agent tells in any order; time is the test's."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from perdure.codec import seal
from perdure.entry import Message, Text
from perdure.errors import LoopError
from perdure.loop import (
    Allowed,
    LoopEvent,
    MessageEnded,
    MessageStarted,
    Refused,
    ToolDelta,
    ToolEnded,
    ToolStarted,
)
from perdure.loops import order as module
from perdure.loops.agent_told import Answered, Asked, CallTold, Said, Told, TurnOver
from perdure.loops.order import GATHER_S, QUIET_S, Order


class Time:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    moved = Time()
    monkeypatch.setattr(module, "monotonic", moved)
    return moved


def brief(events: Sequence[LoopEvent]) -> list[object]:
    """Messages as their parts, starts and ends of tools by their calls; deltas left out."""
    told: list[object] = []
    for event in events:
        match event:
            case MessageEnded(parts=parts):
                told.append([getattr(part, "call_id", getattr(part, "text", "")) for part in parts])
            case ToolStarted(call_id=call_id):
                told.append(f"{call_id} starts")
            case ToolEnded(result=result):
                told.append(f"{result.call_id} {'fails' if result.is_error else 'ends'}")
    return told


def take(order: Order, *all_told: Told | None) -> list[object]:
    return brief([event for told in all_told for event in order.take(told)])


def new_order() -> Order:
    return Order(limit_chars=None)


def running(call_id: str) -> CallTold:
    return CallTold(call_id, name="t", arguments={"n": call_id}, state="running")


def done(call_id: str) -> CallTold:
    return CallTold(call_id, state="done")


def test_calls_of_one_moment_are_one_message(time: Time) -> None:
    order = new_order()
    assert take(order, Said("x"), running("a"), running("b")) == []
    assert order.wait_s() == pytest.approx(GATHER_S)
    time.now += GATHER_S
    assert take(order, None) == [["x", "a", "b"], "a starts", "b starts"]
    assert order.wait_s() is None
    assert take(order, done("b"), done("a"), TurnOver()) == ["b ends", "a ends"]


def test_what_comes_while_calls_are_open_is_held_back(time: Time) -> None:
    order = new_order()
    take(order, running("a"))
    time.now += GATHER_S
    assert take(order, None) == [["a"], "a starts"]
    assert take(order, Said("one"), running("b"), done("b"), Said("two")) == []
    assert take(order, done("a")) == ["a ends", ["one", "b"], "b starts", "b ends"]
    assert take(order, TurnOver()) == [["two"]]
    assert order.outputs == 5


def test_a_call_that_is_asked_about_is_stored_at_once_and_starts_when_allowed(time: Time) -> None:
    order = new_order()

    async def run() -> None:
        asked = Asked("a", None)
        assert take(order, running("a"), asked) == [["a"]]
        assert order.is_stored(asked)
        assert take(order, Answered(asked, Allowed({"n": "a"}))) == ["a starts"]
        assert not order.is_stored(asked)
        assert take(order, done("a")) == ["a ends"]

    asyncio.run(run())


def test_what_is_asked_while_others_are_open_is_asked_before_it_is_stored(time: Time) -> None:
    order = new_order()

    async def run() -> None:
        take(order, running("a"))
        time.now += GATHER_S
        take(order, None)
        asked = Asked("b", None)
        assert take(order, running("b"), asked) == []
        assert (order.is_stored(asked), order.is_held(asked)) == (False, True)
        assert order.call_of(asked).arguments == {"n": "b"}
        assert take(order, Answered(asked, Refused("no")), done("b")) == []
        assert not order.is_held(asked)
        assert take(order, done("a")) == ["a ends", ["b"], "b starts", "b ends"]

    asyncio.run(run())


def test_a_refused_call_says_why(time: Time) -> None:
    order = new_order()

    async def run() -> None:
        asked = Asked("a", None)
        take(order, running("a"), asked)
        answered = list(order.take(Answered(asked, Refused("not now"))))
        ended = list(order.take(CallTold("a", state="failed", output=[Text("rejected")])))
        (result,) = [event.result for event in [*answered, *ended] if isinstance(event, ToolEnded)]
        assert (result.text, result.is_error) == ("refused: not now", True)

    asyncio.run(run())


def test_a_call_that_ends_while_it_is_asked_about_is_not_waited_for(time: Time) -> None:
    order = new_order()

    async def run() -> None:
        asked = Asked("a", None)
        take(order, running("a"), asked)
        assert take(order, CallTold("a", state="failed")) == ["a starts", "a fails"]
        assert not order.is_stored(asked)
        assert take(order, Answered(asked, Allowed(None)), TurnOver()) == []

    asyncio.run(run())


def test_arguments_in_the_making_are_waited_for_until_they_rest(time: Time) -> None:
    order = new_order()
    take(order, CallTold("a", name="t", arguments={"x": 1}, state="pending"))
    time.now += QUIET_S / 2
    assert take(order, CallTold("a", arguments={"x": 1, "y": 2})) == []
    time.now += QUIET_S / 2
    assert take(order, None) == []
    time.now += QUIET_S / 2
    assert take(order, None) == [["a"], "a starts"]


def test_arguments_that_changed_later_are_in_the_result(time: Time) -> None:
    order = new_order()
    take(order, running("a"))
    time.now += GATHER_S
    take(order, None)
    (ended,) = order.take(CallTold("a", arguments={"n": "b"}, state="done"))
    assert isinstance(ended, ToolEnded)
    assert ended.result.provider == {"input": {"n": "b"}}


def test_a_preview_of_the_arguments_does_not_replace_them(time: Time) -> None:
    order = new_order()

    async def run() -> None:
        take(order, running("a"))
        asked = CallTold("a", arguments={"diff": "+hi"}, is_asked=True)
        take(order, asked, Asked("a", None))
        assert order.call_of(Asked("a", None)).arguments == {"n": "a"}
        more = CallTold("b", arguments={"n": 1, "m": 2}, is_asked=True)
        take(order, done("a"), CallTold("b", arguments={"n": 1}), more, Asked("b", None))
        assert order.call_of(Asked("b", None)).arguments == {"n": 1, "m": 2}

    asyncio.run(run())


def test_a_call_without_arguments_yet_waits_for_the_next_message(time: Time) -> None:
    order = new_order()
    take(order, running("a"), CallTold("b", name="t", state="pending"))
    time.now += GATHER_S
    assert take(order, None) == [["a"], "a starts"]
    assert take(order, done("a")) == ["a ends"]
    assert take(order, TurnOver()) == [["b"], "b starts", "b fails"]


def test_another_message_of_the_agent_is_another_message(time: Time) -> None:
    order = new_order()
    assert take(order, Said("a", message_id="1"), Said("b", message_id="1")) == []
    assert take(order, Said("c", message_id="2")) == [["ab"]]
    assert take(order, TurnOver()) == [["c"]]


def test_a_turn_over_ends_every_call_that_is_open_or_was_never_stored(time: Time) -> None:
    order = new_order()
    take(order, running("a"))
    time.now += GATHER_S
    take(order, None, Said("x"), running("b"))
    assert take(order, TurnOver()) == ["a fails", ["x", "b"], "b starts", "b fails"]


def test_what_is_cut_off_keeps_its_calls(time: Time) -> None:
    order = new_order()
    take(order, Said("x"), running("a"))
    assert brief(list(order.cut_off())) == [["x", "a"], "a starts"]
    assert brief(list(order.cut_off())) == []


def test_output_is_shown_once_as_it_grows(time: Time) -> None:
    order = new_order()
    take(order, running("a"))
    time.now += GATHER_S
    take(order, None)
    shown = [
        event.text
        for output in ("one", "one two", "one two")
        for event in order.take(CallTold("a", output=[Text(output)]))
        if isinstance(event, ToolDelta)
    ]
    assert shown == ["one", " two"]


def test_what_is_held_has_a_bound(time: Time, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_HELD_CHARS", 10)
    order = new_order()
    assert MessageStarted() in list(order.take(Said("x" * 10)))
    with pytest.raises(LoopError, match="more than 10 characters"):
        list(order.take(Said("x")))
    other = new_order()
    for n in range(5):
        list(other.take(Said("x" * 5, message_id=str(n))))  # the one before is stored


def test_what_cannot_be_stored_of_a_call_costs_itself(time: Time) -> None:
    deep: list[object] = []
    for _ in range(300):
        deep = [deep]
    order = new_order()
    events = [
        event
        for told in (
            CallTold("a", name="t", arguments=deep, state="running", provider={"title": deep}),
            CallTold("a", state="done", output=[Text("fine")], provider={"output": deep, "n": 1}),
        )
        for event in order.take(told)
    ]
    (message,) = [event for event in events if isinstance(event, MessageEnded)]
    (result,) = [event.result for event in events if isinstance(event, ToolEnded)]
    seal(Message("assistant", tuple(message.parts)))
    seal(Message("tool", (result,)))
    assert (result.text, result.provider["n"]) == ("fine", 1)


def test_what_is_told_of_a_call_that_has_ended_is_no_other_call(time: Time) -> None:
    order = new_order()
    assert take(order, running("a"), done("a")) == [["a"], "a starts", "a ends"]
    late = CallTold("a", name="t", arguments={"n": "a"}, state="running", provider={"output": 1})
    assert take(order, late, Said("x"), TurnOver()) == [["x"]]


def test_a_call_that_is_made_anew_with_an_old_id_is_one(time: Time) -> None:
    order = new_order()
    take(order, running("a"), done("a"))
    again = CallTold("a", name="t", arguments={"n": 2}, is_first=True)
    assert take(order, again, done("a")) == [["a"], "a starts", "a ends"]


def test_streamed_output_is_shown_once_and_kept_whole(time: Time) -> None:
    order = new_order()
    take(order, running("a"))
    time.now += GATHER_S
    told = [CallTold("a", more=piece) for piece in ("one ", "two ", "three")]
    events = [event for each in (None, *told, done("a")) for event in order.take(each)]
    assert [e.text for e in events if isinstance(e, ToolDelta)] == ["one ", "two ", "three"]
    (result,) = [e.result for e in events if isinstance(e, ToolEnded)]
    assert result.text == "one two three"


def test_output_that_is_told_whole_each_time_is_shown_as_it_grows(time: Time) -> None:
    order = new_order()
    take(order, running("a"))
    time.now += GATHER_S
    told = [CallTold("a", output=[Text(text)]) for text in ("one", "one two", "one two")]
    events = [event for each in (None, *told) for event in order.take(each)]
    assert [e.text for e in events if isinstance(e, ToolDelta)] == ["one", " two"]


def test_output_without_end_fails_the_turn(time: Time, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_HELD_CHARS", 100)
    order = new_order()
    take(order, running("a"))
    time.now += GATHER_S
    for _ in range(3):  # a call that ends makes room
        take(order, CallTold("b", name="t", arguments={}, output=[Text("x" * 90)]), done("b"), None)
        take(order, done("a"), CallTold("a", name="t", is_first=True, arguments={"n": 1}))
        time.now += GATHER_S
    for _ in range(10):
        take(order, CallTold("a", more="x" * 10))
    with pytest.raises(LoopError, match="more than 100 characters that cannot be stored yet"):
        take(order, CallTold("a", more="x"))
