"""What a page needs to show a session: forward pages, branches, the outline, the file, the list."""

from __future__ import annotations

import pytest

from perdure.entry import Message, Text, text
from perdure.errors import (
    AppendRejectedError,
    EntryNotFoundError,
    QueuedMessageNotFoundError,
)
from perdure.line import read_line
from perdure.server.session.outline import Outline
from perdure.server.session.wanted import Wanted
from perdure.testing import Hang, Say, write_script
from tests.server.house import ID, House
from tests.server.test_app_refusals import check, serving
from tests.server.test_tree_verbs import path_of, talk

BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


async def test_a_transcript_pages_forth_along_the_path(house: House) -> None:
    ids = await talk(house, "1", "2", "3", "4")
    path = [entry.id for entry in await path_of(house, ID)]
    page = await house.registry.transcript(ID, after=ids[1], limit=3)
    at = path.index(ids[1])
    assert [each.stored.id for each in page.entries] == path[at + 1 : at + 4]
    assert page.has_more
    rest = await house.registry.transcript(ID, after=page.entries[-1].stored.id, limit=100)
    assert [each.stored.id for each in rest.entries] == path[at + 4 :]
    assert not rest.has_more
    start = await house.registry.transcript(ID, after="", limit=2)
    assert [each.stored.id for each in start.entries] == path[:2]
    assert (await house.registry.transcript(ID, after=path[-1])).entries == ()


async def test_a_page_forth_from_another_branch_is_refused(house: House) -> None:
    ids = await talk(house, "1", "2")
    await house.registry.branch(ID, ids[0])
    await talk(house, "3")
    with pytest.raises(EntryNotFoundError):
        await house.registry.transcript(ID, after=ids[1])
    with pytest.raises(EntryNotFoundError):
        await house.registry.transcript(ID, after="nowhere")


async def test_a_branch_is_found_through_any_of_its_entries(house: House) -> None:
    ids = await talk(house, "1", "2", "3")
    first = [entry.id for entry in await path_of(house, ID)]
    await house.registry.branch(ID, ids[0])
    await talk(house, "4")
    page = await house.registry.transcript(ID, through=ids[1])
    assert [each.stored.id for each in page.entries] == first
    assert page.leaf_id == first[-1]
    newest = await house.registry.transcript(ID, through=ids[0])
    assert newest.leaf_id == (await house.look()).leaf_id
    with pytest.raises(EntryNotFoundError):
        await house.registry.transcript(ID, through="nowhere")


async def test_the_outline_has_every_tree_entry_and_no_fact(house: House) -> None:
    ids = await talk(house, "one " * 100, "2")
    await house.registry.branch(ID, ids[0])
    await talk(house, "3")
    found: list[Outline] = []
    after: int | None = 0
    while after is not None:
        page = await house.registry.outline(ID, after=after, limit=3)
        found += page.entries
        after = page.next
    stored = await house.registry.entries(ID, limit=500)
    assert [each.id for each in found] == [e.id for e in stored.entries if e.entry.in_tree]
    assert found[0].role == "user"
    assert (len(found[0].text), found[0].text[-1]) == (120, "…")
    assert [each.parent_id for each in found].count(ids[0]) == 2


async def test_a_message_that_waits_is_edited_in_its_place(house: House) -> None:
    await house.send(write_script(Hang()))
    sent = [await house.registry.send(ID, (Text(each),), idempotency_key=each) for each in "abc"]
    await house.registry.edit_queued(ID, sent[1].message_id, (Text("changed"),))
    look = await house.look()
    assert [each.message_id for each in look.queued] == [each.message_id for each in sent]
    shown = [each.parts for each in look.queued]
    assert shown == [({"type": "text", "text": each},) for each in ("a", "changed", "c")]
    again = await house.registry.send(ID, (Text("b"),), idempotency_key="b")
    assert (again.message_id, again.queued) == (sent[1].message_id, True)
    with pytest.raises(AppendRejectedError):
        await house.registry.edit_queued(ID, sent[0].message_id, ())
    with pytest.raises(QueuedMessageNotFoundError):
        await house.registry.edit_queued(ID, "nobody", (Text("x"),))
    await house.registry.stop(ID)
    await house.registry.go_on(ID)
    await house.until(lambda look: look.turn is None and not look.queued)
    said = [e.view.text for e in await path_of(house, ID) if isinstance(e.view, Message)]
    assert [each for each in said if each in {"a", "b", "c", "changed"}][::2] == [
        "a",
        "changed",
        "c",
    ]
    with pytest.raises(QueuedMessageNotFoundError):
        await house.registry.edit_queued(ID, sent[1].message_id, (Text("too late"),))


async def test_a_session_is_called_by_its_first_message(house: House) -> None:
    assert (await house.look()).title is None
    await talk(house, "  what\nis\tthis?  ", "something else")
    assert (await house.look()).title == "what is this?"
    child = await house.registry.fork(ID, "child")
    assert child.title == "what is this?"
    await house.store.create_session("long", entries=[text("x" * 500)])
    assert (await house.registry.look("long")).title == "x" * 99 + "…"


async def test_a_listing_is_searched(house: House) -> None:
    for n in range(12):
        await house.registry.create(f"Number-{n}")
    await talk(house, "find me")
    found, following = await house.registry.list(limit=5, wanted=Wanted("number-1"))
    assert ([each.session_id for each in found], following) == (
        ["Number-11", "Number-10", "Number-1"],
        None,
    )
    found, _ = await house.registry.list(wanted=Wanted("FIND"))
    assert [each.session_id for each in found] == [ID]
    seen: list[str] = []
    after = None
    while True:
        page, after = await house.registry.list(limit=5, after=after, wanted=Wanted("number"))
        seen += [each.session_id for each in page]
        if after is None:
            break
    assert seen == [f"Number-{n}" for n in range(11, -1, -1)]
    await house.send(write_script(Hang()))
    found, _ = await house.registry.list(wanted=Wanted(status="running"))
    assert [each.session_id for each in found] == [ID]


async def test_an_export_is_the_journal_and_names_its_head() -> None:
    async with serving() as (client, service):
        await client.post("/v1/sessions", json={"session_id": "a/ü"})
        await client.post("/v1/sessions/a%2F%C3%BC/messages", json={"text": "hi"})
        answer = await client.get("/v1/sessions/a%2F%C3%BC/export")
        assert answer.headers["content-type"].startswith("application/jsonl")
        assert "a_%C3%BC.jsonl" in answer.headers["content-disposition"]
        lines = answer.content.split(b"\n")
        assert lines.pop() == b""
        head = answer.headers["perdure-head"].split()
        assert int(head[0]) == len(lines) - 1
        stored = await service.registry.entries("a/ü", limit=500)
        raws = [each.raw for each in stored.entries][: len(lines) - 1]
        assert [read_line(line).entry.raw for line in lines[1:]] == raws
        check(await client.get("/v1/sessions/none/export"), 404, "session_not_found")


async def test_views_that_cannot_be_are_refused() -> None:
    async with serving() as (client, _):
        await client.post("/v1/sessions", json={"session_id": "s"})
        wrong = await client.get("/v1/sessions", params={"status": "asleep"})
        check(wrong, 422, "invalid_status")
        both = {"before": "a", "after": "b"}
        refused = await client.get("/v1/sessions/s/transcript", params=both)
        check(refused, 422, "two_bounds")


async def test_a_wrong_token_in_a_browser_is_a_page_that_says_what_to_do() -> None:
    async with serving() as (client, _):
        client.headers.pop("authorization")
        program = await client.get("/?token=wrong")
        check(program, 401, "unauthorised")
        shown = await client.get("/?token=%3Cscript%3E", headers=BROWSER)
        assert (shown.status_code, shown.headers["content-type"]) == (
            401,
            "text/html; charset=utf-8",
        )
        assert "perdure serve" in shown.text
        assert "script>" not in shown.text
        assert "set-cookie" not in shown.headers


async def test_a_long_answer_is_one_page_of_text(house: House) -> None:
    await talk(house, write_script(Say("x" * 1000)))
    page = await house.registry.outline(ID, after=0, limit=500)
    assert [len(each.text) for each in page.entries][-1] == 120
