from __future__ import annotations

import asyncio
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import perdure
from perdure import clock
from perdure.context import RunContext
from perdure.entry import Message, Reasoning, Text, ToolCall, ToolResult
from perdure.errors import LoopError
from perdure.loop import (
    LoopEvent,
    LoopFactory,
    MessageDelta,
    MessageEnded,
    MessageStarted,
    Purpose,
    ToolDelta,
    ToolEnded,
    ToolStarted,
)
from perdure.testing import (
    Call,
    Fail,
    Hang,
    ManualClock,
    Repeat,
    Say,
    ScriptedLoop,
    Wait,
    scripted,
    scripted_by_message,
    write_script,
)


def context(*input: Message, purpose: Purpose = "turn") -> RunContext:
    async def messages() -> list[Message]:
        return list(input)

    return RunContext("s", turn_id="t", input=input, messages=messages, purpose=purpose)


async def played(
    factory: LoopFactory, *input: Message, purpose: Purpose = "turn"
) -> list[LoopEvent]:
    return [event async for event in factory()(context(*input, purpose=purpose))]


async def test_ids_are_the_same_in_every_run() -> None:
    one, two, other = ManualClock(), ManualClock(), ManualClock(seed=1)
    ids = [one.new_id() for _ in range(3)]
    assert ids == [two.new_id() for _ in range(3)]
    assert len({*ids, other.new_id()}) == 4
    assert all(len(new) == 32 and set(new) <= set("0123456789abcdef") for new in ids)


async def test_the_clock_is_used_by_what_runs_inside_the_block() -> None:
    manual = ManualClock(datetime(2030, 5, 1, tzinfo=UTC))
    with clock.use(manual):
        message = perdure.text("hello")
    assert message.created_at == datetime(2030, 5, 1, tzinfo=UTC)
    assert message.id == f"{1:032x}"
    assert perdure.text("hello").id != f"{2:032x}"


async def test_sleepers_wake_at_their_own_time_and_in_order() -> None:
    manual = ManualClock()
    woken: list[tuple[str, float]] = []

    async def sleeper(name: str, *delays_s: float) -> None:
        for delay_s in delays_s:
            await manual.sleep(delay_s)
            woken.append((name, manual.monotonic()))

    tasks = [
        asyncio.create_task(sleeper("a", 2, 2)),
        asyncio.create_task(sleeper("b", 1, 1.5, 10)),
        asyncio.create_task(sleeper("c", 0)),
    ]
    await manual.advance(5)
    assert woken == [("c", 0), ("b", 1), ("a", 2), ("b", 2.5), ("a", 4)]
    assert manual.monotonic() == 5
    assert manual.sleeping == 1
    tasks[1].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert manual.sleeping == 0
    await manual.advance(100)
    assert len(woken) == 5


async def test_the_wall_clock_can_step_back_and_the_monotonic_one_does_not() -> None:
    manual = ManualClock()
    await manual.advance(60)
    before = manual.now()
    manual.step(timedelta(hours=-1))
    assert manual.now() == before - timedelta(hours=1)
    assert manual.monotonic() == 60


async def test_a_script_says_its_text_in_deltas() -> None:
    events = await played(scripted(Say("hello world", reasoning="hm", delta_chars=6)))
    assert events == [
        MessageStarted(),
        MessageDelta("hm", part=0, kind="reasoning"),
        MessageDelta("hello ", part=1),
        MessageDelta("world", part=1),
        MessageEnded([Reasoning("hm"), Text("hello world")]),
    ]


async def test_calls_of_one_message_run_in_parallel() -> None:
    manual = ManualClock()
    calls = [
        Call("slow", {"n": 1}, output=["a", "b"], delay_s=2, call_id="s"),
        Call("fast", result="done", duration_s=1, fails=True, limit_chars=3),
    ]
    with clock.use(manual):
        playing = asyncio.create_task(played(scripted(Say(calls=calls), Say("end"))))
    await manual.advance(10)
    events = await playing
    assert events[:2] == [
        MessageStarted(),
        MessageEnded([ToolCall("s", "slow", {"n": 1}), ToolCall("t-2", "fast")]),
    ]
    assert events[2:8] == [
        ToolStarted("s"),
        ToolStarted("t-2"),
        ToolEnded(ToolResult("t-2", (Text("done"),), name="fast", is_error=True, limit_chars=3)),
        ToolDelta("s", "a"),
        ToolDelta("s", "b"),
        ToolEnded(ToolResult("s", (Text("ab"),), name="slow")),
    ]
    assert events[-1] == MessageEnded([Text("end")])


async def test_leaving_a_run_stops_its_tools() -> None:
    before = asyncio.all_tasks()
    running = scripted(Say(calls=[Call("forever", hangs=True), Call("other", hangs=True)]))()(
        context()
    )
    async for event in running:
        if isinstance(event, ToolStarted):
            assert len(asyncio.all_tasks() - before) == 2
            break
    await running.aclose()
    assert asyncio.all_tasks() == before


async def test_a_script_can_fail_and_hang_where_it_is_told() -> None:
    with pytest.raises(LoopError, match="out of luck"):
        await played(scripted(Say("x"), Fail("out of luck")))
    with pytest.raises(LoopError, match="middle"):
        await played(scripted(Say("x", cut="fail")))
    for steps in ([Hang()], [Say("x", cut="hang")], [Wait(1e9)]):
        playing = asyncio.create_task(played(scripted(*steps)))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not playing.done()
        playing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await playing


async def test_a_summary_is_one_message_without_calls() -> None:
    events = await played(scripted(Fail()), perdure.text("a"), purpose="summary")
    assert events == [MessageEnded((Text("a summary of 1 messages"),))]


async def test_each_run_plays_the_next_script_and_the_last_is_repeated() -> None:
    loop = ScriptedLoop([Say("one")], [Say("two"), Say("three")])
    ends = []
    for n in range(3):
        events = await played(loop, perdure.text(f"q{n}"))
        ends.append([e.parts[0] for e in events if isinstance(e, MessageEnded)])
    assert ends == [[Text("one")], [Text("two"), Text("three")], [Text("two"), Text("three")]]
    assert [view[0].text for view in loop.views] == ["q0", "q1", "q2"]


async def test_a_message_can_bring_the_script() -> None:
    steps = (Repeat(2, [Say("hi", calls=[Call("t", {"a": [1]}, output=["x"])])]), Fail("so"))
    events: list[LoopEvent] = []

    async def play() -> None:
        async for event in scripted_by_message()(context(perdure.text(write_script(*steps)))):
            events.append(event)  # noqa: PERF401  # a comprehension would lose them at the failure

    with pytest.raises(LoopError, match="so"):
        await play()
    ended = [event.result for event in events if isinstance(event, ToolEnded)]
    assert [(result.call_id, result.text) for result in ended] == [("t-1", "x"), ("t-2", "x")]


async def test_a_message_that_is_no_script_is_said_back_or_refused() -> None:
    assert (await played(scripted_by_message, perdure.text("plain")))[-1] == MessageEnded(
        [Text("plain")]
    )
    one = '{"do":"say","text":"one"}'
    assert (await played(scripted_by_message, perdure.text(one)))[-1] == MessageEnded([Text("one")])
    for bad in ('[{"do":"dance"}]', "[1", '{"do":"wait"}', '[{"do":"say","text":5}]'):
        with pytest.raises(LoopError, match="no script"):
            await played(scripted_by_message, perdure.text(bad))


async def test_a_durable_agent_plays_a_script() -> None:
    loop = ScriptedLoop(
        [Say("looking", calls=[Call("a", output=["1"]), Call("b", fails=True)]), Say("ok")]
    )
    async with await perdure.open("s", loop) as agent:
        messages = await agent.run("go")
        assert [message.role for message in messages] == ["assistant", "tool", "tool", "assistant"]
        assert agent.messages()[0].role == "user"
        assert agent.messages()[-1].text == "ok"


def test_the_fakes_need_no_pytest() -> None:
    code = (
        "import sys, perdure.testing as t; t.ManualClock; t.scripted; t.ScriptedLoop;"
        "assert 'pytest' not in sys.modules;"
        "assert all(hasattr(t, name) for name in t.__all__)"
    )
    source = Path(perdure.__file__).parents[1]
    subprocess.run([sys.executable, "-c", code], check=True, cwd=source)


def test_testing_has_no_other_name() -> None:
    import perdure.testing

    with pytest.raises(AttributeError, match="nothing"):
        _ = perdure.testing.nothing
