"""Appending: one batch at the leaf, repaired first where calls are open."""

from __future__ import annotations

import pytest

import perdure
from perdure import Message, Text, ToolCall, ToolResult
from perdure.codec import import_entry, seal
from perdure.entry import Custom
from perdure.errors import (
    AppendRejectedError,
)
from perdure.fact import LeafMoved, SessionStarted
from perdure.view import INTERRUPTED
from tests.unit.checks import answers, check_agrees, check_at_rest, said
from tests.unit.looping import answer, factory, result
from tests.unit.opened import Note, opened


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
