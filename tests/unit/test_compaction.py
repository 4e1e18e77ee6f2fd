"""When a context is nearly full, and what of it is kept then."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

import pytest

import perdure
from perdure.codec import Entry, seal
from perdure.compaction import Fill, fill_of, plan_relief
from perdure.entry import Compaction, Json, Message, Text, ToolCall, ToolResult, text
from perdure.errors import LoopError
from perdure.events import LifecycleEvent, MessageEnd
from perdure.loop import Loop, LoopContext, LoopEvent, MessageEnded
from perdure.stores.memory import MemoryStore


def counted(tokens: int, window: int = 1000) -> Json:
    usage = {"input_tokens": tokens - 1, "output_tokens": 1}
    return {"usage": usage, "context_window": window}


def said(content: str, provider: Json = None) -> Message:
    return Message("assistant", (Text(content),), provider=provider)


def path_of(*messages: Message | Compaction) -> list[Entry]:
    return [seal(message) for message in messages]


def test_the_newest_answer_that_was_counted_says_how_full_it_is() -> None:
    path = path_of(text("a"), said("b", counted(100)), text("c"), said("d", counted(800)))
    assert fill_of([*path, *path_of(said("cut off"), text("e"))]) == Fill(800, 1000)
    assert Fill(800, 1000).share == 0.8


@pytest.mark.parametrize(
    "provider",
    [
        None,
        "text",
        {"usage": {"input_tokens": 900}},
        {"context_window": 1000},
        {"usage": "many", "context_window": 1000},
        {"usage": {"input_tokens": 900}, "context_window": 0},
        {"usage": {"input_tokens": 900}, "context_window": "big"},
    ],
)
def test_where_nobody_counted_nothing_is_known(provider: Json) -> None:
    assert fill_of(path_of(text("a"), said("b", provider))) is None


def test_what_was_counted_before_a_compaction_says_nothing() -> None:
    path = path_of(text("a"), said("b", counted(900)), Compaction(summary="s", first_kept_id=None))
    assert fill_of([*path, *path_of(text("c"))]) is None


def turns(*sizes: int) -> list[Entry]:
    path: list[Entry] = []
    for number, size in enumerate(sizes):
        path += path_of(text(f"question {number}"), said("x" * size))
    return path


@pytest.mark.parametrize(
    ("sizes", "kept"),
    [
        ((9000, 1, 1, 1, 1), 4),
        ((9000, 9000, 1, 1, 1), 3),
        ((9000, 9000, 9000), 0),
        ((9000, 1, 1), 2),
    ],
)
def test_as_many_turns_are_kept_as_are_small(sizes: Sequence[int], kept: int) -> None:
    path = turns(*sizes)
    plan = plan_relief(path, Fill(900, 1000))
    assert plan is not None
    at = len(path) - 2 * kept
    assert plan.first_kept_id == (path[at].id if kept else None)


def test_a_new_message_is_kept_however_big_it_is() -> None:
    path = [*turns(10, 10), *path_of(text("y" * 9000))]
    plan = plan_relief(path, Fill(900, 1000), new_turns=1)
    assert plan is not None
    assert plan.first_kept_id == path[-1].id
    assert plan_relief(path[-1:], Fill(900, 1000), new_turns=1) is None


class Filling:
    """A loop whose every answer takes up more of its window."""

    def __init__(self, *tokens: int, summary: str | None = "a summary") -> None:
        self.tokens = list(tokens)
        self.summary = summary
        self.views: list[list[str]] = []

    def __call__(self) -> Loop:
        return self.answer

    async def answer(self, context: LoopContext) -> AsyncGenerator[LoopEvent, None]:
        view = [message.text for message in await context.messages()]
        if context.purpose == "summary":
            if self.summary is None:
                raise LoopError("no summary today")
            yield MessageEnded((Text(self.summary),))
            return
        self.views.append(view)
        yield MessageEnded((Text("answer"),), counted(self.tokens.pop(0)))


async def opened(
    loop: Filling, published: list[LifecycleEvent] | None = None
) -> perdure.DurableAgent:
    told: list[LifecycleEvent] = [] if published is None else published
    return await perdure.open("s", loop, publisher=told.append, compact_at=0.8)


async def test_an_agent_compacts_before_the_run_that_finds_it_nearly_full() -> None:
    loop, published = Filling(700, 850, 300, 400), list[LifecycleEvent]()
    agent = await opened(loop, published)
    for each in ("one", "two", "three", "four"):
        await agent.run(each)
    summary = "Summary of the conversation so far:\n\na summary"
    assert loop.views[1] == ["one", "answer", "two"]
    assert loop.views[2] == [summary, "three"]
    assert loop.views[3] == [summary, "three", "answer", "four"]
    assert [e.type for e in published] == ["session_init", "session_compacted"]
    types = [stored.type for stored in agent.entries() if stored.entry.in_tree]
    assert types == ["message"] * 4 + ["compaction"] + ["message"] * 4
    await agent.close()


async def test_without_the_option_nothing_is_compacted() -> None:
    loop = Filling(999, 999)
    agent = await perdure.open("s", loop)
    await agent.run("one")
    await agent.run("two")
    assert loop.views[1] == ["one", "answer", "two"]


async def test_a_summary_that_fails_is_no_obstacle(caplog: pytest.LogCaptureFixture) -> None:
    loop = Filling(999, 999, summary=None)
    agent = await opened(loop)
    await agent.run("one")
    await agent.run("two")
    assert loop.views[1] == ["one", "answer", "two"]
    assert "no summary today" in caplog.text


async def test_a_run_that_goes_on_inside_a_turn_is_not_compacted() -> None:
    loop, store = Filling(300, 300), MemoryStore()
    agent = await perdure.open("s", loop, store=store, compact_at=0.8)
    call = Message("assistant", (ToolCall("c", "t"),), provider=counted(999))
    await agent.append("one", said("early"), "go", call)
    await agent.append(Message("tool", (ToolResult("c", (Text("r"),)),)))
    await agent.run()
    assert loop.views[0][:2] == ["one", "early"]
    child = await agent.fork("child", entry_id=call.id)
    await child.run("and now")  # the call is open: its result is made up, and nothing is cut
    assert loop.views[1][:2] == ["one", "early"]


async def test_a_fork_compacts_as_its_parent_does() -> None:
    loop = Filling(999, 100)
    agent = await opened(loop)
    await agent.run("one")
    child = await agent.fork("child")
    events = [event async for event in child.run("two")]
    assert loop.views[1][-1] == "two"
    assert "a summary" in loop.views[1][0]
    assert any(isinstance(event, MessageEnd) for event in events)
