"""A turn that is sent again: what its model is told, and where its attempts stand in the tree."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from perdure.codec import seal
from perdure.entry import Message, Text, ToolResult
from perdure.fact import ToolDispatched, TurnEnded, TurnStarted
from perdure.server.journal import JournalStore
from perdure.server.session.transcript import load_following, load_transcript
from perdure.testing import Call, Fail, Say, ScriptedLoop
from tests.server.house import ID, House, Loops

WRITE = Call("write", {"path": "a"}, result="written", call_id="w")
HANGS = Call("build", {"all": True}, hangs=True, call_id="b")


async def dispatched(house: House) -> AsyncIterator[ToolDispatched]:
    for stored in await house.log():
        if isinstance(view := stored.view, ToolDispatched):
            yield view


async def test_a_model_is_told_what_the_attempt_before_did(house: House) -> None:
    loop = ScriptedLoop([Say("half", calls=[WRITE]), Fail("no more")], [Say("whole")])
    house = house.restart(Loops(loop))
    first = await house.send("question")
    await house.rest()
    again = await house.registry.resend(ID, first.turn_id)
    await house.rest()
    asked, told = loop.views[1]
    assert (asked.text, asked.meta) == ("question", False)
    assert told.meta
    assert "not a rollback" in told.text
    assert 'write {"path":"a"}' in told.text
    assert "written" in told.text
    assert "failed" in told.text
    assert "no more" in told.text
    assert await house.texts() == ["question", "whole"]
    assert await house.registry.resend(ID, first.turn_id) == again


async def test_a_call_that_was_cut_off_is_told_with_what_came_late(house: House) -> None:
    loop = ScriptedLoop([Say("half", calls=[HANGS])], [Say("whole")])
    house = house.restart(Loops(loop))
    await house.send("question")
    async with asyncio.timeout(10):
        while True:
            if keys := [each.idempotency_key async for each in dispatched(house)]:
                break
            await asyncio.sleep(0.01)
    await house.registry.stop(ID)
    await house.rest()
    await house.registry.note_late(ID, keys[0], ToolResult("b", (Text("built"),)))
    await house.registry.resend(ID)
    await house.rest()
    told = loop.views[1][-1].text
    assert "it was cut off before its result" in told
    assert "(came late) built" in told


async def test_every_attempt_is_told_of_and_each_stands_beside_the_others(house: House) -> None:
    one, two = Say("one", calls=[WRITE]), Say("two", calls=[Call("look", call_id="l")])
    loop = ScriptedLoop([one, Fail()], [two, Fail()], [Say("three")])
    house = house.restart(Loops(loop))
    await house.send("question")
    await house.rest()
    for _ in range(2):
        await house.registry.resend(ID)
        await house.rest()
    told = loop.views[2][-1].text
    assert told.index("- write") < told.index("- look")
    assert len(loop.views[2]) == 2

    said = {
        view.text: stored.id
        for stored in await house.log()
        if isinstance(view := stored.view, Message) and view.role == "assistant"
    }
    look = await house.look()
    attempts = (said["one"], said["two"], said["three"])
    for text in ("one", "two", "three"):
        page = await load_transcript(house.store, ID, said[text], before=None, limit=50)
        assert [each.stored.id for each in page.entries][1] == said[text]
        assert page.entries[1].siblings == attempts
        above = page.entries[0].stored.id
        next_page = await load_following(house.store, ID, said[text], after=above, limit=1)
        assert next_page.entries[0].siblings == attempts
        alone = await load_transcript(house.store, ID, said[text], before=None, limit=1)
        assert alone.entries[0].siblings == attempts
    assert look.leaf_id == said["three"]


async def test_where_no_tool_was_called_nothing_is_told(house: House) -> None:
    loop = ScriptedLoop([Say("half"), Fail()], [Say("whole")])
    house = house.restart(Loops(loop))
    await house.send("question")
    await house.rest()
    await house.registry.resend(ID)
    await house.rest()
    assert [each.text for each in loop.views[1]] == ["question"]


@pytest.mark.parametrize("is_new", [False, True])
async def test_what_is_told_outlives_a_restart(house: House, is_new: bool) -> None:
    loop = ScriptedLoop([Say("half", calls=[WRITE]), Fail()], [Say("whole")], [Say("more")])
    house = house.restart(Loops(loop))
    await house.send("question")
    await house.rest()
    if is_new:
        house = house.restart(Loops(loop))
    await house.registry.resend(ID)
    await house.rest()
    house = house.restart(Loops(loop))
    await house.send("on")
    await house.rest()
    assert [each.text for each in loop.views[2]] == [
        *(each.text for each in loop.views[1]),
        "whole",
        "on",
    ]


async def test_a_turn_of_a_journal_that_another_program_wrote_can_be_sent_again(
    store: JournalStore,
) -> None:
    entries = [
        TurnStarted(id="other-1", turn_id="t1", message_id="m1"),
        Message("user", (Text("question"),), id="m1"),
        TurnEnded(id="other-2", turn_id="t1", reason="interrupted"),
    ]
    await store.create_session(ID, entries=[seal(each) for each in entries])
    house = House(store, Loops(ScriptedLoop([Say("whole")])))
    await house.registry.resend(ID, "t1")
    await house.rest()
    assert await house.texts() == ["question", "whole"]
    await house.close()
