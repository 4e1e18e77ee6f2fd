"""The durable agent's verbs: what each stores, publishes, refuses and leaves alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

import perdure
from perdure import DurableAgent, Message, Text, ToolCall, ToolResult
from perdure.codec import Draft, Entry, import_entry, seal
from perdure.entry import Custom
from perdure.errors import (
    AppendRejectedError,
    ConfigurationError,
    EntryNotFoundError,
    InvalidSessionIdError,
    JournalCorruptError,
    LoopError,
    NoLoopError,
    RunEndedError,
    SessionBusyError,
    SessionClosedError,
    SessionDeletedError,
    SessionExistsError,
    StoreUnavailableError,
)
from perdure.events import AgentStart, LifecycleEvent
from perdure.fact import LeafMoved, SessionStarted
from perdure.loop import LoopContext, MessageDelta, MessageEnded
from perdure.stores.memory import MemoryStore
from perdure.view import INTERRUPTED
from tests.unit.checks import answers, check_agrees, check_at_rest, check_model_view, said
from tests.unit.looping import Probe, SlowStore, answer, factory, result


@perdure.custom("test.note")
@dataclass
class Note:
    said: str
    stars: int = 0


async def opened(
    loop: Callable[[], Any] | None = None, publisher: Any = None
) -> tuple[DurableAgent, MemoryStore]:
    store = SlowStore()
    return await perdure.open("s", loop, store=store, publisher=publisher), store


def forever() -> Callable[[], Any]:
    """Loops that show half a message and wait."""
    return factory(MessageDelta("half"), asyncio.Event().wait)


async def started(agent: DurableAgent, *entries: Draft) -> tuple[perdure.Run, Any]:
    """A run that has begun to speak, and its iterator."""
    run = agent.run(*entries)
    events = aiter(run)
    async for event in events:
        if event.type == "message_update":
            break
    return run, events


# --- opening


async def test_an_unknown_id_is_created_and_one_that_exists_is_resumed() -> None:
    agent, store = await opened()
    assert (agent.session_id, agent.leaf_id, agent.entries()) == ("s", None, ())
    await agent.append("hello")
    again = await perdure.open("s", store=store)
    assert again.leaf_id == agent.leaf_id
    assert again.session is not None
    assert again.session == agent.session
    await check_agrees(again, store)


async def test_many_can_open_one_new_session_at_once() -> None:
    store = SlowStore()
    agents = await asyncio.gather(*(perdure.open("s", store=store) for _ in range(5)))
    assert len({agent.session for agent in agents}) == 1
    assert agents[0].session is not None


async def test_without_an_id_or_a_store_both_are_made() -> None:
    first, second = await perdure.open(), await perdure.open()
    assert first.session_id != second.session_id
    await first.append("hello")
    assert second.entries() == ()


@pytest.mark.parametrize("session_id", ["", ".", "x" * 513, "a\nb", "\ud800"])
async def test_an_id_that_is_none_is_refused(session_id: str) -> None:
    agent, store = await opened()
    with pytest.raises(InvalidSessionIdError):
        await perdure.open(session_id, store=store)
    with pytest.raises(InvalidSessionIdError):
        await agent.fork(session_id)
    assert await store.session_ids() == ("s",)


async def test_a_damaged_log_does_not_open() -> None:
    store = MemoryStore()
    for session_id, entry in {
        "hole": Message("user", (), parent_id="nowhere"),
        "leaf": LeafMoved(from_id=None, leaf_id="nowhere"),
    }.items():
        await store.create_session(session_id, entries=[entry])
        with pytest.raises(JournalCorruptError) as caught:
            await perdure.open(session_id, store=store)
        assert caught.value.session_id == session_id


async def test_a_reopened_session_resumes_where_a_moved_leaf_says() -> None:
    agent, store = await opened()
    first = await agent.append("a")
    await agent.append("b")
    await agent.append(LeafMoved(from_id=agent.leaf_id, leaf_id=first.entries[0].id))
    assert said(agent.messages()) == ["a"]
    await check_agrees(agent, store)
    await agent.append("c")
    assert said(agent.messages()) == ["a", "c"]
    await check_agrees(agent, store)


# --- appending


async def test_an_append_is_one_batch_at_the_leaf_and_its_receipt_says_where() -> None:
    agent, store = await opened()
    receipt = await agent.append("a", Note("n", 3), SessionStarted(source="s"), "b")
    assert (receipt.first_seq, receipt.last_seq, len(receipt.entries)) == (1, 4, 4)
    assert agent.leaf_id == receipt.entries[-1].id
    assert receipt.entries[3].parent_id == receipt.entries[1].id
    view = receipt.entries[1].view
    assert isinstance(view, Custom)
    assert view.data == Note("n", 3)
    assert said(agent.messages()) == ["a", "b"]
    assert [entry.type for entry in agent.transcript()] == ["message", "custom", "message"]
    await check_agrees(agent, store)
    empty = await agent.append()
    assert (empty.entries, empty.last_seq) == ((), 4)


async def test_a_refused_append_stores_nothing_and_the_next_one_works() -> None:
    agent, store = await opened()
    message = perdure.text("a")
    await agent.append(message)
    for bad in (
        [message],
        ["fine", message],
        [perdure.ephemeral("x")],
        ["fine", object()],
        [perdure.text("x", meta=1)],  # type: ignore[arg-type]  # what is refused
        [LeafMoved(from_id=None, leaf_id="nowhere")],
        [seal(Message("user", (), parent_id="elsewhere"))],
        [Message("user", (), id="twice"), Message("user", (), id="twice")],
    ):
        with pytest.raises(AppendRejectedError):
            await agent.append(*bad)
        assert len(await store.load_entries("s")) == 1
    await agent.append("b")
    await check_agrees(agent, store)


async def test_an_unknown_entry_can_be_appended_and_be_a_parent() -> None:
    agent, store = await opened()
    await agent.append("a")
    raw = b'{"type":"new","id":"n","parent_id":"%s","w":1.50}' % str(agent.leaf_id).encode()
    await agent.append(import_entry(raw))
    await agent.append("b")
    child = await agent.fork("child")
    assert child.entries()[1].raw == raw
    assert [entry.id for entry in child.transcript()][1] == "n"
    await check_agrees(agent, store)
    await check_agrees(child, store)


async def test_a_message_is_preceded_by_the_repair_of_open_calls_and_a_result_is_not() -> None:
    agent, store = await opened()
    calls = Message("assistant", (ToolCall("a", "t"), ToolCall("b", "t")))
    await agent.append(calls)
    await agent.append(Message("tool", (ToolResult("b", (Text("real"),)),)))
    assert answers(agent.messages()) == [("a", INTERRUPTED), ("b", "real")]
    assert len(agent.entries()) == 2
    receipt = await agent.append("next")
    assert [each.type for each in receipt.entries] == ["message", "message"]
    check_at_rest(agent)
    await check_agrees(agent, store)


async def test_repair_stores_what_is_missing_once() -> None:
    agent, store = await opened()
    assert await agent.repair() is None
    await agent.append(Message("assistant", (ToolCall("a", "t"),)))
    before = agent.messages()
    receipt = await agent.repair()
    assert receipt is not None
    assert len(receipt.entries) == 1
    assert await agent.repair() is None
    assert answers(agent.messages()) == answers(before)
    await check_agrees(agent, store)


async def test_a_call_in_flight_is_not_repaired() -> None:
    async def during() -> None:
        assert await agent.repair() is None
        await agent.append("meanwhile")

    agent, store = await opened(factory(answer("x", "a"), during, result("a", "real")))
    await agent.run("hi")
    assert answers(agent.messages()) == [("a", "real")]
    assert said(agent.messages())[-1] == "meanwhile"
    await check_agrees(agent, store)


# --- running


async def test_the_input_is_stored_before_the_loop_starts_repairs_first() -> None:
    seen: list[list[str]] = []

    async def look() -> None:
        seen.append([type(each.view).__name__ for each in await store.load_entries("s")])

    agent, store = await opened(factory(look, answer("x")))
    await agent.append(Message("assistant", (ToolCall("a", "t"),)))
    events = [event async for event in agent.run("one", perdure.text("two", meta=True))]
    assert seen == [["Message"] * 4]
    assert isinstance(start := events[0], AgentStart)
    assert [each.seq for each in start.receipt.entries] == [2, 3, 4]
    assert start.leaf_id == start.receipt.entries[-1].id
    assert said(agent.messages()) == ["one", "two", "x"]
    check_model_view(agent.messages())


async def test_a_factory_that_raises_leaves_the_transcript_as_it_was() -> None:
    def broken() -> Any:
        raise ZeroDivisionError

    agent, store = await opened(broken)
    await agent.append(Message("assistant", (ToolCall("a", "t"),)))
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            await agent.run("hi")
        assert len(await store.load_entries("s")) == 1
    await agent.append("works")
    await check_agrees(agent, store)


async def test_without_input_a_run_goes_on_from_the_leaf() -> None:
    probe = Probe()
    agent, store = await opened(probe)
    await agent.append("hi")
    await agent.run()
    assert said(probe.views[0]) == ["hi"]
    await check_agrees(agent, store)


async def test_what_is_no_loop_factory_and_no_store_is_refused_before_anything() -> None:
    store = MemoryStore()
    loop = factory(answer("hi"))()
    with pytest.raises(ConfigurationError, match="is a loop, not a loop factory"):
        await perdure.open("s", loop, store=store)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"perdure\.open_store\('memory://'\)"):
        await perdure.open("s", store="memory://")  # type: ignore[arg-type]
    assert not await store.session_ids()


async def test_without_a_loop_everything_works_but_running() -> None:
    agent, store = await opened()
    await agent.append("a")
    with pytest.raises(NoLoopError):
        agent.run("hi")
    with pytest.raises(NoLoopError):
        await agent.compact(keep_turns=0)
    assert len(await store.load_entries("s")) == 1
    agent.branch(None)
    await agent.append("b")
    child = await agent.fork("child")
    with pytest.raises(NoLoopError):
        child.run()
    await check_agrees(child, store)


async def test_a_second_run_while_one_is_active_is_refused_and_stores_nothing() -> None:
    agent, store = await opened(forever())
    run, events = await started(agent, "first")
    stored = await store.load_entries("s")
    leaf_id = agent.leaf_id
    with pytest.raises(SessionBusyError):
        await agent.run("second")
    with pytest.raises(SessionBusyError):
        await agent.compact(keep_turns=0, summary="s")
    with pytest.raises(SessionBusyError):
        agent.branch(None)
    assert await store.load_entries("s") == stored
    assert agent.leaf_id == leaf_id
    await events.aclose()
    with pytest.raises(RunEndedError):
        await run
    await check_agrees(agent, store)


async def test_of_two_runs_that_start_at_once_one_is_refused() -> None:
    agent, store = await opened(Probe())

    async def wait(content: str) -> object:
        return await agent.run(content)

    results = await asyncio.gather(wait("a"), wait("b"), return_exceptions=True)
    assert [isinstance(each, SessionBusyError) for each in results].count(True) == 1
    await check_agrees(agent, store)


async def test_the_next_verb_waits_for_a_run_that_was_left() -> None:
    for verb in ("append", "run", "fork", "compact", "repair", "branch"):
        probe = Probe()
        agent, store = await opened(probe)
        first = await agent.append("zero")
        async for event in agent.run("hi"):
            if event.type == "tool_start":
                break
        assert not probe.is_quiet
        match verb:
            case "append":
                await agent.append("x")
            case "run":
                await agent.run("x")
            case "fork":
                await agent.fork("child")
            case "compact":
                await agent.compact(summary="S", keep_turns=0)
            case "repair":
                await agent.repair()
            case "branch":
                await agent.branch(first.entries[0].id)
                assert agent.leaf_id == first.entries[0].id
        assert probe.is_quiet
        if verb == "branch":
            check_model_view(agent.messages())
        else:
            await check_agrees(agent, store)


async def test_a_branch_after_a_run_was_left_happens_even_if_nobody_awaits_it() -> None:
    published: list[LifecycleEvent] = []
    agent, store = await opened(forever(), published.append)
    first = await agent.append("zero")
    _, events = await started(agent, "hi")
    del events
    agent.branch(first.entries[0].id)
    with pytest.raises(EntryNotFoundError):
        agent.branch("nowhere")
    await agent.append("other")
    assert said(agent.messages()) == ["zero", "other"]
    assert [event.type for event in published] == ["session_init", "session_branched"]
    await check_agrees(agent, store)


async def test_an_ephemeral_message_is_seen_once_and_stored_never() -> None:
    probe = Probe()
    agent, store = await opened(probe)
    await agent.append("before")
    run = agent.run(
        "one", perdure.ephemeral("whisper"), Note("n"), SessionStarted(source="s"), "two"
    )
    events = [event async for event in run]
    assert said(probe.views[0]) == ["before", "one", "whisper", "two"]
    await agent.run("next")
    assert "whisper" not in said(probe.views[1])
    assert all(b"whisper" not in each.raw for each in await store.load_entries("s"))
    for event in events:
        receipt = getattr(event, "receipt", None)
        assert receipt is None or all(b"whisper" not in each.raw for each in receipt.entries)
    await check_agrees(agent, store)


async def test_an_ephemeral_message_alone_is_an_input() -> None:
    probe = Probe()
    agent, _ = await opened(probe)
    events = [event async for event in agent.run(perdure.ephemeral(perdure.text("whisper")))]
    assert said(probe.views[0]) == ["whisper"]
    assert isinstance(events[0], AgentStart)
    assert (events[0].receipt.entries, events[0].leaf_id) == ((), None)


async def test_an_ephemeral_message_never_breaks_the_pairs() -> None:
    contexts: list[Sequence[Message]] = []

    async def loop(context: LoopContext) -> Any:
        contexts.append(await context.messages())
        yield answer("x")

    agent, _ = await opened(lambda: loop)
    await agent.append(Message("assistant", (ToolCall("a", "t"),)))
    real = Message("tool", (ToolResult("a", (Text("r"),)),))
    strange = Message("assistant", (ToolCall("z", "t"),))
    await agent.run(real, perdure.ephemeral("whisper"), perdure.ephemeral(strange))
    check_model_view(contexts[0])
    assert answers(contexts[0])[0] == ("a", "r")


# --- branching and forking


async def test_a_branch_moves_the_leaf_and_a_reopened_session_resumes_at_the_last_entry() -> None:
    agent, store = await opened()
    ids = [each.id for each in (await agent.append("a", "b", "c")).entries]
    agent.branch(ids[0])
    assert said(agent.messages()) == ["a"]
    assert (await perdure.open("s", store=store)).leaf_id == ids[2]
    await agent.append("d")
    assert said(agent.messages()) == ["a", "d"]
    assert (await perdure.open("s", store=store)).leaf_id == agent.leaf_id
    await agent.branch(None)
    assert agent.messages() == []
    await agent.append("root")
    assert agent.entries()[-1].parent_id is None
    with pytest.raises(EntryNotFoundError):
        agent.branch("nowhere")
    await check_agrees(agent, store)


async def test_a_branch_to_a_fact_is_refused() -> None:
    agent, _ = await opened()
    receipt = await agent.append("a", SessionStarted(source="s"))
    with pytest.raises(EntryNotFoundError):
        agent.branch(receipt.entries[1].id)
    with pytest.raises(EntryNotFoundError):
        await agent.fork("child", entry_id=receipt.entries[1].id)
    assert agent.leaf_id == receipt.entries[0].id


async def test_a_fork_copies_the_active_path_and_nothing_else() -> None:
    agent, store = await opened()
    ids = [each.id for each in (await agent.append("a", "b")).entries]
    await agent.append(SessionStarted(source="s"))
    agent.branch(ids[0])
    await agent.append("c")
    child = await agent.fork("child")
    assert [each.raw for each in child.entries()] == [each.raw for each in agent.transcript()]
    assert [each.seq for each in child.entries()] == [1, 2]
    assert child.messages() == agent.messages()
    assert child.session is not None
    assert child.session.parent_id == "s"
    earlier = await agent.fork("earlier", entry_id=ids[1])
    assert said(earlier.messages()) == ["a", "b"]
    await child.append("d")
    assert said(agent.messages()) == ["a", "c"]
    for each in (agent, child, earlier):
        await check_agrees(each, store)


async def test_a_fork_of_an_empty_session_is_empty() -> None:
    agent, store = await opened()
    child = await agent.fork("child")
    assert child.entries() == ()
    await check_agrees(child, store)


async def test_a_taken_id_is_refused() -> None:
    published: list[LifecycleEvent] = []
    agent, store = await opened(publisher=published.append)
    await agent.append("a")
    for taken in ("s", "child", "child"):
        if taken == "child" and "child" not in await store.session_ids():
            await agent.fork("child")
            continue
        with pytest.raises(SessionExistsError):
            await agent.fork(taken)
    assert [event.type for event in published].count("session_forked") == 1


async def test_a_fork_in_mid_call_is_valid_at_once_and_sees_what_the_parent_sees() -> None:
    agent, store = await opened(factory(answer("x", "a"), asyncio.Event().wait))
    events = aiter(agent.run("hi"))
    async for event in events:
        if event.type == "message_end":
            break
    child = await agent.fork("child")
    check_model_view(child.messages())
    assert child.messages() == agent.messages()
    assert answers(child.messages()) == [("a", INTERRUPTED)]
    await child.append("goes on")
    await check_agrees(child, store)
    await events.aclose()  # type: ignore[attr-defined]  # as of any asynchronous iterator
    await check_agrees(agent, store)


# --- compaction


async def conversation(agent: DurableAgent, turns: int) -> None:
    for n in range(turns):
        call = Message("assistant", (ToolCall(f"c{n}", "t"),))
        found = Message("tool", (ToolResult(f"c{n}", (Text(f"r{n}"),)),))
        await agent.append(f"q{n}", call, found, Message("assistant", (Text(f"a{n}"),)))


async def test_a_compaction_appends_and_branching_before_it_gives_everything_back() -> None:
    published: list[LifecycleEvent] = []
    agent, store = await opened(publisher=published.append)
    await conversation(agent, 6)
    whole, leaf_id = agent.messages(), agent.leaf_id
    receipt = await agent.compact(keep_turns=2, summary="S")
    assert receipt is not None
    assert (len(receipt.entries), receipt.entries[0].type) == (1, "compaction")
    view = agent.messages()
    assert view[0].text.endswith("S")
    assert [message.text for message in view if message.role == "user"][1:] == ["q4", "q5"]
    assert len(agent.transcript()) == 25
    await check_agrees(agent, store)
    again = await agent.compact(keep_turns=1, summary="T")
    assert again is not None
    assert agent.messages()[0].text.endswith("T")
    await check_agrees(agent, store)
    agent.branch(leaf_id)
    assert agent.messages() == whole
    assert [event.type for event in published] == [
        "session_init",
        "session_compacted",
        "session_compacted",
        "session_branched",
    ]


async def test_with_nothing_to_summarise_nothing_is_appended_or_published() -> None:
    published: list[LifecycleEvent] = []
    agent, store = await opened(Probe(), published.append)
    assert await agent.compact() is None
    await conversation(agent, 4)
    assert await agent.compact() is None
    assert await agent.compact(keep_turns=0, summary="S") is not None
    assert await agent.compact(keep_turns=0) is None
    assert len(await store.load_entries("s")) == 17
    assert [event.type for event in published] == ["session_init", "session_compacted"]


async def test_the_summary_comes_from_a_throw_away_run_of_the_loop() -> None:
    probe = Probe()
    agent, store = await opened(probe)
    await conversation(agent, 3)
    await agent.compact(keep_turns=1, prompt="Sum up!")
    assert said(probe.views[0])[0] == "q0"
    assert said(probe.views[0])[-2:] == ["a1", "Sum up!"]
    assert agent.messages()[0].text.endswith("a summary")
    assert len(agent.entries()) == 13
    assert probe.is_quiet
    await agent.compact(keep_turns=0)
    assert "a summary" in probe.views[1][0].text
    await check_agrees(agent, store)


@pytest.mark.parametrize(
    ("events", "error"),
    [
        ((), LoopError),
        ((MessageEnded((Text("  \n"),)),), LoopError),
        ((answer("x", "a"),), LoopError),
        ((ZeroDivisionError(),), ZeroDivisionError),
    ],
)
async def test_a_summary_that_fails_stores_and_publishes_nothing(
    events: tuple[Any, ...], error: type[Exception]
) -> None:
    published: list[LifecycleEvent] = []
    went_on: list[int] = []
    agent, store = await opened(factory(*events, lambda: went_on.append(1)), published.append)
    await conversation(agent, 2)
    with pytest.raises(error):
        await agent.compact(keep_turns=1)
    assert len(await store.load_entries("s")) == 8
    assert [event.type for event in published] == ["session_init"]
    assert bool(went_on) == (error is LoopError and not any("call" in repr(e) for e in events))
    await agent.append("works")
    await check_agrees(agent, store)


async def test_what_is_appended_while_a_summary_is_made_is_not_lost() -> None:
    async def meanwhile() -> None:
        await agent.append("meanwhile")

    agent, store = await opened(factory(meanwhile, answer("S")))
    await conversation(agent, 2)
    await agent.compact(keep_turns=0)
    assert said(agent.messages())[1:] == ["meanwhile"]
    await check_agrees(agent, store)


async def test_a_leaf_that_moves_while_a_summary_is_made_wins() -> None:
    async def meanwhile() -> None:
        await agent.append(LeafMoved(from_id=None, leaf_id=None))

    agent, store = await opened(factory(meanwhile, answer("S")))
    await conversation(agent, 2)
    with pytest.raises(SessionBusyError):
        await agent.compact(keep_turns=0)
    assert all(each.type != "compaction" for each in await store.load_entries("s"))


async def test_a_compaction_can_be_cancelled_at_any_step() -> None:
    for step in range(1, 200):
        probe, published = Probe(), list[LifecycleEvent]()
        agent, store = await opened(probe, published.append)
        await conversation(agent, 2)
        task = asyncio.create_task(agent.compact(keep_turns=1))
        for _ in range(step):
            await asyncio.sleep(0)
        if task.done():
            await task
            break
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert probe.is_quiet
        stored = sum(each.type == "compaction" for each in await store.load_entries("s"))
        assert stored == sum(event.type == "session_compacted" for event in published)
        await check_agrees(agent, store)
        await agent.run("next")
        await check_agrees(agent, store)
    else:
        pytest.fail("the compaction never went through")
    assert step > 5


async def test_closing_the_agent_ends_a_compaction() -> None:
    agent, store = await opened(forever())
    await conversation(agent, 2)
    task = asyncio.create_task(agent.compact(keep_turns=1))
    for _ in range(10):
        await asyncio.sleep(0)
    await agent.close()
    with pytest.raises(RunEndedError):
        await task
    assert len(await store.load_entries("s")) == 8


# --- the publisher


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


# --- closing


async def test_a_closed_agent_refuses_every_verb_and_the_store_stays_open() -> None:
    agent, store = await opened(Probe())
    await agent.append("a")
    async with agent:
        await agent.run("hi")
    await agent.close()
    verbs: list[Callable[[], Any]] = [
        lambda: agent.append("x"),
        agent.repair,
        lambda: agent.fork("child"),
        lambda: agent.compact(summary="S"),
        agent.__aenter__,
    ]
    for verb in verbs:
        with pytest.raises(SessionClosedError):
            await verb()
    looks: list[Callable[[], Any]] = [
        lambda: agent.run("x"),
        lambda: agent.branch(None),
        agent.entries,
        agent.transcript,
        agent.messages,
    ]
    for look in looks:
        with pytest.raises(SessionClosedError):
            look()
    assert len(await store.load_entries("s")) == 8


async def test_a_run_that_was_not_started_before_the_close_is_refused() -> None:
    agent, store = await opened(Probe())
    run = agent.run("hi")
    await agent.close()
    with pytest.raises(SessionClosedError):
        await run
    assert await store.load_entries("s") == ()


async def test_leaving_the_block_ends_a_run_in_progress() -> None:
    agent, store = await opened(forever())
    async with agent:
        run, events = await started(agent, "hi")
    with pytest.raises(RunEndedError):
        await run
    with pytest.raises(RunEndedError):
        await anext(events)
    view = (await perdure.open("s", store=store)).messages()
    assert (view[-1].text, view[-1].end) == ("half", "stopped")


async def test_a_tool_may_close_the_agent_that_runs_it() -> None:
    async def tool() -> None:
        await agent.close()
        await asyncio.Event().wait()

    agent, store = await opened(factory(answer("x", "a"), tool))
    with pytest.raises(RunEndedError):
        await agent.run("hi")
    again = await perdure.open("s", store=store)
    assert [call_id for call_id, _ in answers(again.messages())] == ["a"]
    check_at_rest(again)


async def test_a_tool_that_is_cut_off_may_still_append() -> None:
    async def tool() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await agent.append("last words")

    agent, store = await opened(factory(MessageDelta("half"), tool))
    _, events = await started(agent, "hi")
    await asyncio.sleep(0)
    await events.aclose()
    assert said(agent.messages()) == ["hi", "last words", "half"]
    await check_agrees(agent, store)


# --- two agents, deletion


async def test_two_live_agents_grow_siblings_and_lose_nothing() -> None:
    first, store = await opened(Probe())
    await first.append("root")
    second = await perdure.open("s", Probe(), store=store)
    await asyncio.gather(first.append("a"), second.append("b"))
    await asyncio.gather(first.append("aa"), second.append("bb"))
    assert said(first.messages()) == ["root", "a", "aa"]
    assert said(second.messages()) == ["root", "b", "bb"]

    async def run(agent: DurableAgent) -> None:
        await agent.run("hi")

    await asyncio.gather(run(first), run(second))
    stored = await store.load_entries("s")
    assert {each.id for each in first.entries()} | {each.id for each in second.entries()} == {
        each.id for each in stored
    }
    third = await perdure.open("s", store=store)
    for leaf_id, agent in ((first.leaf_id, first), (second.leaf_id, second)):
        third.branch(leaf_id)
        assert third.messages() == agent.messages()


async def test_an_agent_of_a_deleted_session_cannot_write_to_its_successor() -> None:
    agent, store = await opened()
    await agent.append("old")
    await store.delete_session("s")
    with pytest.raises(SessionDeletedError):
        await agent.append("lost")
    successor = await perdure.open("s", store=store)
    with pytest.raises(SessionDeletedError):
        await agent.append("lost")
    assert successor.entries() == ()


async def test_a_closed_store_is_unavailable() -> None:
    agent, store = await opened(Probe())
    await agent.append("a")
    await store.close()
    for verb in (agent.append("b"), agent.fork("child"), perdure.open("s", store=store)):
        with pytest.raises(StoreUnavailableError):
            await verb
    with pytest.raises(StoreUnavailableError):
        await agent.run("b")
    assert said(agent.messages()) == ["a"]


# --- cost


class CountedList(list[Any]):
    """A list that counts how many of its elements are looked at one after the other."""

    touched = 0

    def __iter__(self) -> Any:
        type(self).touched += len(self)
        return super().__iter__()

    def __getitem__(self, at: Any) -> Any:
        found = super().__getitem__(at)
        type(self).touched += len(found) if isinstance(at, slice) else 1
        return found


async def test_appending_running_and_branching_do_not_scan_the_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    costs: list[int] = []
    for length in (10, 1_000):
        agent, store = await opened(factory(answer("x")))
        drafts = [perdure.text(str(n)) for n in range(length)]
        first = (await agent.append(*drafts)).entries[0].id
        transcript = agent._transcript
        transcript.entries = CountedList(transcript.entries)
        transcript.path = CountedList(transcript.path)
        decoded = 0
        view = vars(Entry)["view"].fget

        def counting(entry: Entry, view: Any = view) -> Any:
            nonlocal decoded
            decoded += 1
            return view(entry)

        loads: list[str] = []
        monkeypatch.setattr(Entry, "view", property(counting))
        monkeypatch.setattr(store, "load_entries", lambda *_, loads=loads, **__: loads.append("x"))
        CountedList.touched = 0
        await agent.append("one")
        await agent.run("two")
        await agent.repair()
        agent.branch(first)
        await agent.append("three")
        monkeypatch.undo()
        assert loads == []
        costs.append(decoded + CountedList.touched)
    assert costs[0] == costs[1]
