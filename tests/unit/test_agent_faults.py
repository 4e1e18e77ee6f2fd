"""A store that fails: nothing is doubled, nothing is lost, and the next verb finds out."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

import perdure
from perdure import Message, Text, ToolCall
from perdure.codec import Entry
from perdure.errors import (
    AppendConflictError,
    AppendRejectedError,
    AppendUncertainError,
    StoreError,
    StoreUnavailableError,
)
from perdure.store import Store
from tests.unit.checks import answers, check_agrees, check_at_rest, said
from tests.unit.looping import FaultyStore, Probe


async def texts_of(store: Store) -> list[str]:
    """The texts of every message that the store has."""
    views = [each.view for each in await store.load_entries("s")]
    return said([view for view in views if isinstance(view, Message)])


def uncertain(fail_at: int, *, stores_it: bool) -> FaultyStore:
    return FaultyStore(fail_at, AppendUncertainError("who knows"), stores_it=stores_it)


@pytest.mark.parametrize("stores_it", [True, False])
async def test_a_retry_of_the_same_message_stores_it_once(stores_it: bool) -> None:
    store = uncertain(2, stores_it=stores_it)
    agent = await perdure.open("s", store=store)
    await agent.append("first")
    message = perdure.text("second")
    with pytest.raises(AppendUncertainError):
        await agent.append(message)
    receipt = await agent.append(message)
    assert (receipt.first_seq, receipt.last_seq) == (2, 2)
    assert receipt.entries[0].id == message.id
    with pytest.raises(AppendRejectedError, match="already"):
        await agent.append(message)
    assert await texts_of(store) == ["first", "second"]
    await check_agrees(agent, store)


@pytest.mark.parametrize("stores_it", [True, False])
async def test_a_retried_batch_is_stored_once_with_its_repairs(stores_it: bool) -> None:
    store = uncertain(2, stores_it=stores_it)
    agent = await perdure.open("s", store=store)
    await agent.append(Message("assistant", (ToolCall("a", "t"),)))
    batch = [perdure.text("x"), perdure.text("y")]
    with pytest.raises(AppendUncertainError):
        await agent.append(*batch)
    receipt = await agent.append(*batch)
    assert len(receipt.entries) == 3
    assert len(await store.load_entries("s")) == 4
    check_at_rest(agent)
    await check_agrees(agent, store)


@pytest.mark.parametrize("stores_it", [True, False])
async def test_the_next_verb_finds_out_what_was_stored(stores_it: bool) -> None:
    for verb in ("append", "run", "fork", "compact", "repair"):
        probe, store = Probe(), uncertain(2, stores_it=stores_it)
        agent = await perdure.open("s", probe, store=store)
        await agent.append("first")
        with pytest.raises(AppendUncertainError):
            await agent.append("second")
        match verb:
            case "append":
                await agent.append("third")
            case "run":
                await agent.run("third")
                assert said(probe.views[0]) == ["first", *["second"] * stores_it, "third"]
            case "fork":
                child = await agent.fork("child")
                assert said(child.messages()) == ["first", *["second"] * stores_it]
            case "compact":
                await agent.compact(keep_turns=0, summary="S")
            case "repair":
                assert await agent.repair() is None
        assert (await texts_of(store)).count("second") == int(stores_it)
        await check_agrees(agent, store)


@pytest.mark.parametrize("stores_it", [True, False])
async def test_a_branch_meanwhile_keeps_its_leaf(stores_it: bool) -> None:
    store = uncertain(2, stores_it=stores_it)
    agent = await perdure.open("s", store=store)
    first = (await agent.append("first", "on the old branch")).entries[0].id
    with pytest.raises(AppendUncertainError):
        await agent.append("doubtful")
    agent.branch(first)
    await agent.append("on the new branch")
    assert said(agent.messages()) == ["first", "on the new branch"]
    assert (await texts_of(store)).count("doubtful") == int(stores_it)
    await check_agrees(agent, store)


@pytest.mark.parametrize("stores_it", [True, False])
async def test_appends_that_wait_behind_an_uncertain_one_follow_what_it_stored(
    stores_it: bool,
) -> None:
    store = uncertain(1, stores_it=stores_it)
    agent = await perdure.open("s", store=store)
    results = await asyncio.gather(
        *(agent.append(word) for word in ("a", "b", "c")), return_exceptions=True
    )
    assert isinstance(results[0], AppendUncertainError)
    assert said(agent.messages()) == [*["a"] * stores_it, "b", "c"]
    await check_agrees(agent, store)


async def test_the_doubt_lasts_while_the_store_cannot_be_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = uncertain(1, stores_it=True)
    agent = await perdure.open("s", store=store)
    message = perdure.text("a")
    with pytest.raises(AppendUncertainError):
        await agent.append(message)

    async def away(session_id: str, *, after: int = 0) -> Sequence[Entry]:
        raise StoreUnavailableError("away")

    with monkeypatch.context() as patched:
        patched.setattr(store, "load_entries", away)
        for _ in range(2):
            with pytest.raises(StoreUnavailableError):
                await agent.append(message)
    await agent.append(message)
    assert await texts_of(store) == ["a"]
    await check_agrees(agent, store)


ERRORS = [
    (AppendUncertainError("who knows"), True),
    (AppendUncertainError("who knows"), False),
    (AppendRejectedError("too big"), False),
    (AppendConflictError("s", 1, 2), False),
    (StoreUnavailableError("away"), False),
]


@pytest.mark.parametrize(("error", "stores_it"), ERRORS)
async def test_a_run_whose_nth_append_fails_fails_with_that_error_and_the_next_one_goes_on(
    error: StoreError, stores_it: bool
) -> None:
    """Fail the 1st, 2nd, 3rd … append until the run goes through."""
    for fail_at in range(1, 50):
        probe, store = Probe(), FaultyStore(fail_at, error, stores_it=stores_it)
        agent = await perdure.open("s", probe, store=store)
        seen: list[str] = []
        run = agent.run("hi")
        try:
            async for event in run:
                receipt = getattr(event, "receipt", None)
                seen += [each.id for each in receipt.entries] if receipt is not None else []
        except StoreError:
            with pytest.raises(type(error)) as caught:
                await run
            assert caught.value is error
        else:
            if store.appends < fail_at:
                break
            assert isinstance(error, AppendRejectedError), "only a result's refusal fails no run"
            assert any("cannot be stored" in text for _, text in answers(agent.messages()))
        assert probe.is_quiet
        message = perdure.text("next")
        await agent.run(message)
        stored = [each.id for each in await store.load_entries("s")]
        assert len(set(stored)) == len(stored)
        assert set(seen) < set(stored)
        check_at_rest(agent)
        assert said(agent.messages())[-1] == "done"
        await check_agrees(agent, store)
    else:
        pytest.fail("the run never went through")
    assert fail_at > 4


@pytest.mark.parametrize("stores_it", [True, False])
async def test_an_input_that_is_in_doubt_can_be_run_again(stores_it: bool) -> None:
    probe, store = Probe(), uncertain(1, stores_it=stores_it)
    agent = await perdure.open("s", probe, store=store)
    message = perdure.text("hi")
    with pytest.raises(AppendUncertainError):
        await agent.run(message)
    assert probe.views == []
    await agent.run(message)
    assert said(probe.views[0]) == ["hi"]
    assert (await texts_of(store)).count("hi") == 1
    await check_agrees(agent, store)


async def test_a_lost_write_of_a_run_that_was_left_is_the_cause_of_its_error() -> None:
    store = FaultyStore(2, StoreUnavailableError("away"), stores_it=False)
    agent = await perdure.open("s", Probe(), store=store)
    run = agent.run("hi")
    async for event in run:
        if event.type == "message_update":
            break
    with pytest.raises(perdure.RunEndedError) as caught:
        await run
    assert isinstance(caught.value.__cause__, StoreUnavailableError)
    await agent.append(Message("assistant", (Text("goes on"),)))
    await check_agrees(agent, store)
