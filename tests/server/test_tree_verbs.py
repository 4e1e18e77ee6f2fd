"""Create, list, look, branch, fork, compact, delete, and pages of the transcript."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest

from perdure.codec import Entry
from perdure.entry import Custom, Message, Text, text
from perdure.errors import (
    AppendConflictError,
    ConfigurationError,
    CursorVoidError,
    EntryNotFoundError,
    InvalidSessionIdError,
    JournalCorruptError,
    LoopError,
    SessionDeletedError,
    SessionExistsError,
    SessionNotFoundError,
)
from perdure.fact import LeafMoved
from perdure.loop import LoopContext, LoopEvent, MessageEnded
from perdure.server.session.path import load_whole_path
from perdure.testing import Call, Say, ScriptedLoop, write_script
from perdure.view import model_view
from tests.server.house import ID, House, Loops

HANG_IN_A_CALL = write_script(Say("look", calls=[Call("read", output=["one"], hangs=True)]))


async def talk(house: House, *texts: str) -> list[str]:
    """Sends each text and waits for its answer; the ids of the messages sent."""
    ids = []
    for each in texts:
        ids.append((await house.send(each)).message_id)
        await house.rest()
    return ids


async def path_of(house: House, session_id: str) -> list[Entry]:
    look = await house.registry.look(session_id)
    return await load_whole_path(house.store, session_id, look.leaf_id)


async def test_create_makes_a_session_once(house: House) -> None:
    look, created = await house.registry.create("new")
    assert (created, look.session_id, look.status, look.last_seq) == (True, "new", "idle", 0)
    assert (await house.registry.create("new")) == (look, False)
    made, _ = await house.registry.create()
    assert made.session_id not in {"new", ID}
    with pytest.raises(InvalidSessionIdError):
        await house.registry.create("")
    assert house.feed.looks[-1] == made


async def test_the_chosen_loop_is_journaled_and_survives_a_restart(house: House) -> None:
    loops = Loops(ScriptedLoop([Say("default")]), other=ScriptedLoop([Say("other")]))
    chosen = house.restart(loops)
    with pytest.raises(ConfigurationError):
        await chosen.registry.create("unmade", loop="nowhere")
    with pytest.raises(SessionNotFoundError):
        await chosen.registry.look("unmade")
    look, _ = await chosen.registry.create("chosen", loop="other")
    assert (look.loop, look.leaf_id) == ("other", None)
    again = chosen.restart()
    await again.registry.send("chosen", text("hello").parts)
    await again.until(lambda look: look.last_turn is not None, "chosen")
    child = await again.registry.fork("chosen", "child")
    assert child.loop == "other"
    views = [entry.view for entry in await path_of(house, "child")]
    assert [view.text for view in views if isinstance(view, Message)] == ["hello", "other"]


async def test_list_pages_by_newest_append(house: House) -> None:
    for name in ("a", "b", "c"):
        await house.registry.create(name)
    await talk(house, "hello")
    first, after = await house.registry.list(limit=2)
    assert [look.session_id for look in first] == [ID, "c"]
    rest, end = await house.registry.list(limit=2, after=after)
    assert ([look.session_id for look in rest], end) == (["b", "a"], None)
    with pytest.raises(CursorVoidError):
        await house.registry.list(after="nonsense")


async def test_a_look_has_what_the_contract_names(house: House) -> None:
    (message_id,) = await talk(house, "hello")
    look = await house.look()
    session = await house.store.load_session(ID)
    assert look.cursor == f"5.{session.incarnation}"
    assert (look.parent_id, look.created_at) == (None, session.created_at)
    assert look.last_turn is not None
    assert (look.last_turn.message_id, look.last_turn.reason) == (message_id, "completed")
    assert look.last_activity >= look.created_at


async def test_branch_is_an_entry_and_the_next_message_grows_there(house: House) -> None:
    first, _ = await talk(house, "one", "two")
    look = await house.registry.branch(ID, first)
    assert look.leaf_id == first
    assert (await house.restart().look()).leaf_id == first
    assert isinstance((await house.log())[-1].view, LeafMoved)
    assert await house.texts() == ["one"]
    await talk(house, "three")
    assert await house.texts() == ["one", "three", "three"]
    await house.registry.branch(ID, None)
    assert await house.texts() == []
    await talk(house, "root")
    assert await house.texts() == ["root", "root"]


async def test_a_branch_to_where_the_leaf_is_stores_nothing(house: House) -> None:
    await talk(house, "one")
    before = await house.log()
    await house.registry.branch(ID, (await house.look()).leaf_id)
    assert await house.log() == before


async def test_a_branch_to_a_fact_or_to_nowhere_is_refused(house: House) -> None:
    await talk(house, "one")
    before = await house.log()
    for entry_id in ("nowhere", before[0].id):
        with pytest.raises(EntryNotFoundError):
            await house.registry.branch(ID, entry_id)
    assert await house.log() == before
    assert (await house.look()).status == "idle"


async def test_a_fork_has_the_path_with_its_bytes_and_nothing_else(house: House) -> None:
    first, second = await talk(house, "one", "two")
    parent = await path_of(house, ID)
    child = await house.registry.fork(ID, "child")
    assert (child.parent_id, child.status, child.leaf_id) == (ID, "idle", parent[-1].id)
    assert [e.entry for e in await house.store.load_entries("child")] == parent
    part = await house.registry.fork(ID, entry_id=second)
    assert [e.id for e in await path_of(house, part.session_id)][-1] == second
    with pytest.raises(SessionExistsError):
        await house.registry.fork(ID, "child")
    with pytest.raises(EntryNotFoundError):
        await house.registry.fork(ID, "unmade", entry_id="nowhere")
    with pytest.raises(SessionNotFoundError):
        await house.registry.look("unmade")
    await house.registry.send("child", text("three").parts)
    assert await house.texts() == ["one", "one", "two", "two"]
    assert first in [e.id for e in parent]


async def test_a_fork_in_mid_call_is_valid_at_once(house: House) -> None:
    await house.send(HANG_IN_A_CALL)
    await house.send("waits")
    await house.until_partial("one")
    child = await house.registry.fork(ID, "child")
    assert (child.status, child.queued) == ("idle", ())
    view = model_view(await path_of(house, "child"))
    assert [message.role for message in view] == ["user", "assistant", "tool"]
    assert view == model_view(await path_of(house, ID))
    assert (await house.look()).status == "running"


async def test_compact_appends_a_summary_and_the_model_sees_it(house: House) -> None:
    loop = ScriptedLoop([Say("ok")])
    told = house.restart(Loops(loop))
    assert (await told.registry.compact(ID)).entry is None
    _, second, _ = await talk(told, "one", "two", "three")
    done = await told.registry.compact(ID, keep_turns=1)
    assert done.entry is not None
    assert (await told.look()).leaf_id == done.entry.id == done.leaf_id
    assert (await told.registry.compact(ID, keep_turns=5)).entry is None
    await talk(told, "four")
    assert [m.text for m in loop.views[-1]][1:] == ["three", "ok", "four"]
    assert "summary" in loop.views[-1][0].text.lower()
    await told.registry.branch(ID, second)
    assert await told.texts() == ["one", "ok", "two"]


async def test_a_loop_that_cannot_summarise_leaves_the_session_as_it_was(house: House) -> None:
    async def broken(context: LoopContext) -> AsyncGenerator[LoopEvent, None]:
        if context.purpose == "summary":
            raise OSError("no network")
        yield MessageEnded((Text("ok"),))

    told = house.restart(Loops(lambda: broken))
    await talk(told, "one", "two")
    before = await told.log()
    with pytest.raises(LoopError, match="no network"):
        await told.registry.compact(ID, keep_turns=1)
    assert await told.log() == before
    assert (await told.look()).status == "idle"


async def test_a_session_that_grows_while_it_is_summarised_is_not_compacted(house: House) -> None:
    asked, answered = asyncio.Event(), asyncio.Event()

    async def slow(context: LoopContext) -> AsyncGenerator[LoopEvent, None]:
        if context.purpose == "summary":
            asked.set()
            await answered.wait()
        yield MessageEnded((Text("ok"),))

    told = house.restart(Loops(lambda: slow))
    await talk(told, "one", "two")
    compacting = asyncio.create_task(told.registry.compact(ID, keep_turns=1))
    await asked.wait()
    await talk(told, "three")
    answered.set()
    with pytest.raises(AppendConflictError):
        await compacting
    assert await told.texts() == ["one", "ok", "two", "ok", "three", "ok"]


async def test_delete_stops_tombstones_and_tells(house: House) -> None:
    sent = await house.send(HANG_IN_A_CALL)
    await house.until_partial("one")
    await house.registry.delete(ID)
    assert house.feed.looks[-1].status == "deleted"
    for reading in (house.look(), house.send("hello"), house.registry.delete(ID)):
        with pytest.raises((SessionNotFoundError, SessionDeletedError)):
            await reading
    look, created = await house.registry.create(ID)
    assert (created, look.last_seq) == (True, 0)
    await talk(house, "hello")
    assert sent.turn_id not in [turn_id for turn_id, _ in await house.ends()]
    assert house.registry.partials(ID) == []


async def test_the_transcript_pages_back_along_the_path_with_siblings(house: House) -> None:
    ids = await talk(house, "1", "2", "3")
    await house.registry.branch(ID, ids[1])
    ids += await talk(house, "4")
    path = [entry.id for entry in await path_of(house, ID)]
    page = await house.registry.transcript(ID, limit=2)
    assert [e.stored.id for e in page.entries] == path[-2:]
    assert page.has_more
    assert page.entries[0].siblings[-1] == ids[3]
    assert len(page.entries[0].siblings) == 2
    older = await house.registry.transcript(ID, limit=9, before=page.entries[0].stored.id)
    assert [e.stored.id for e in older.entries] == path[:-2]
    assert not older.has_more
    other = await house.registry.transcript(ID, leaf=ids[2])
    assert other.entries[-1].stored.id == ids[2]
    with pytest.raises(EntryNotFoundError):
        await house.registry.transcript(ID, leaf="nowhere")
    with pytest.raises(EntryNotFoundError):
        await house.registry.transcript(ID, before="nowhere")
    assert (await house.look()).status == "idle"


async def test_the_transcript_skips_injected_context_and_fills_its_page(house: House) -> None:
    entries: list[Message | Custom] = [text("a"), *(text("x", meta=True) for _ in range(7))]
    entries += [Custom(kind="note", data=1)]
    parent_id = None
    for entry in entries:
        placed = (
            Message(entry.role, entry.parts, meta=entry.meta, parent_id=parent_id)
            if (isinstance(entry, Message))
            else Custom(kind=entry.kind, data=entry.data, parent_id=parent_id)
        )
        await house.store.append_entries(ID, [placed])
        parent_id = placed.id
    page = await house.registry.transcript(ID, limit=2)
    assert [e.stored.type for e in page.entries] == ["message", "custom"]
    assert not page.has_more


async def test_a_circle_is_damage_however_little_of_it_is_shown(house: House) -> None:
    parts = (Text("injected"),)
    circle = [
        Message("user", parts, meta=True, id=one, parent_id=other)
        for one, other in (("x", "y"), ("y", "x"))
    ]
    await house.store.append_entries(ID, circle)
    async with asyncio.timeout(20):
        with pytest.raises(JournalCorruptError, match="circle"):
            await house.registry.transcript(ID, limit=2)


async def test_the_transcript_before_a_fact_is_nowhere(house: House) -> None:
    await talk(house, "one")
    fact = next(stored for stored in await house.log() if not stored.entry.in_tree)
    with pytest.raises(EntryNotFoundError, match="fact"):
        await house.registry.transcript(ID, before=fact.id)


async def test_what_others_appended_is_seen_without_waking(house: House) -> None:
    await talk(house, "one")
    stored = await house.store.append_entries(ID, [text("from elsewhere")])
    fresh = house.restart()
    look = await fresh.look()
    assert (look.last_seq, look.leaf_id) == (stored.last_seq, stored.entries[0].id)
    assert len(await house.log()) == stored.last_seq
