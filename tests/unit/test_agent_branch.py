"""Branches move the leaf; forks copy the active path, and nothing else."""

from __future__ import annotations

import asyncio

import pytest

import perdure
from perdure.errors import (
    EntryNotFoundError,
    SessionExistsError,
)
from perdure.events import LifecycleEvent
from perdure.fact import SessionStarted
from perdure.view import INTERRUPTED
from tests.unit.checks import answers, check_agrees, check_model_view, said
from tests.unit.looping import answer, factory
from tests.unit.opened import opened


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
