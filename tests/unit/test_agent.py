"""The durable agent: opened, beside others on one session, and what it costs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import perdure
from perdure import DurableAgent, Message
from perdure.codec import Entry
from perdure.errors import (
    InvalidSessionIdError,
    JournalCorruptError,
    SessionDeletedError,
    StoreUnavailableError,
)
from perdure.fact import LeafMoved
from perdure.stores.memory import MemoryStore
from tests.unit.checks import check_agrees, said
from tests.unit.looping import Probe, SlowStore, answer, factory
from tests.unit.opened import opened


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
