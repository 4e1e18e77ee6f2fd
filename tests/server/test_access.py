"""Whose a session is: everybody has their own, and what is not yours is not there."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import apsw
import httpx
import pytest

from perdure.fact import SessionOwned
from perdure.server.http.operation import OPERATIONS
from perdure.server.http.shape import Operation
from perdure.server.journal import JournalStore
from perdure.stores.sqlite import SqliteStore
from perdure.testing.scripted_loop import Hang, Say, ScriptedLoop
from tests.server.people import VARIES, People, ids_in, make, people, until
from tests.server.test_app_refusals import check

OF_SESSIONS = [each for each in OPERATIONS if "{session_id}" in each.path]
VALUES = {"seq": "1", "n": "0", "m": "0", "name": "parts", "message_id": "m", "call_id": "c"}
BODIES: list[Any] = [None, {}, {"text": "hi"}, {"entry_id": None}, {"what": 1}, "no JSON"]
QUERIES = ["", "limit=1", "limit=x", "after=0", "after=1.0000", "before=1&after=0", "leaf=x"]


@pytest.fixture
async def here(store: JournalStore, tmp_path: Path) -> AsyncIterator[People]:
    async with people(tmp_path, store=store) as found:
        yield found


def url_of(operation: Operation, session_id: str) -> str:
    path = operation.path.replace("{session_id}", session_id)
    return re.sub(r"\{(\w+)\}", lambda found: VALUES.get(found[1], "x"), path)


def seen(answer: httpx.Response, session_id: str) -> tuple[int, str, dict[str, str]]:
    """All of an answer that a client can see, but for the id it asked for and the time."""
    headers = {k: v for k, v in answer.headers.items() if k not in VARIES}
    return answer.status_code, answer.text.replace(session_id, "ID"), headers


@pytest.mark.parametrize("operation", OF_SESSIONS, ids=lambda operation: operation.name)
async def test_a_session_of_somebody_else_is_not_there_on_any_operation(
    here: People, operation: Operation
) -> None:
    anna, bob = await here.come("anna"), await here.come("bob")
    await make(anna, "hers", "a secret")
    await make(here.admin, "his-admins", "a secret")
    before = (await anna.get("/v1/sessions/hers/entries")).json()
    bodies = [None] if operation.method == "GET" else BODIES
    for query in QUERIES:
        for body in bodies:
            content = body if isinstance(body, str) or body is None else json.dumps(body)
            answers = [
                seen(
                    await bob.request(
                        operation.method,
                        f"{url_of(operation, session_id)}?{query}",
                        content=content,
                        headers={"Idempotency-Key": "k"},
                    ),
                    session_id,
                )
                for session_id in ("hers", "his-admins", "nowhere")
            ]
            assert answers[0] == answers[1] == answers[2]
            assert answers[0][0] == 404
            assert json.loads(answers[0][1])["code"] == "session_not_found"
    assert (await anna.get("/v1/sessions/hers/entries")).json() == before
    assert ids_in(await anna.get("/v1/sessions")) == ["hers"]


@pytest.mark.parametrize("operation", OF_SESSIONS, ids=lambda operation: operation.name)
async def test_one_s_own_session_is_there_on_every_operation(
    tmp_path: Path, operation: Operation
) -> None:
    async with people(tmp_path) as here:
        anna = await here.come("anna")
        await make(anna, "hers", "hello")
        url = url_of(operation, "hers")
        for body in [None] if operation.method == "GET" else BODIES:
            content = body if isinstance(body, str) or body is None else json.dumps(body)
            answer = await anna.request(operation.method, url, content=content)
            if answer.status_code == 404:
                assert answer.json()["code"] != "session_not_found" or operation.method == "DELETE"


async def test_the_store_is_asked_the_same_for_a_foreign_session_and_a_missing_one(
    here: People,
) -> None:
    anna, bob = await here.come("anna"), await here.come("bob")
    await make(anna, "hers", "a secret")
    store = here.server.service.store
    asked: list[str] = []

    def counting(verb: str, ask: Any) -> Any:
        async def counted(*arguments: Any, **options: Any) -> Any:
            asked.append(verb)
            return await ask(*arguments, **options)

        return counted

    for verb in ("look", "load_session", "load_entries", "load_owner", "page_entries",
                 "load_entry", "load_path", "load_snapshot", "append_entries"):  # fmt: skip
        vars(store)[verb] = counting(verb, getattr(store, verb))
    for operation in OF_SESSIONS:
        for session_id in ("hers", "nowhere"):
            body = {"text": "x"} if operation.method in {"POST", "PUT"} else None
            await bob.request(operation.method, url_of(operation, session_id), json=body)
            assert asked == ["load_owner"], (operation, session_id)
            asked.clear()


async def test_an_admin_has_every_session(here: People) -> None:
    anna, root = await here.come("anna"), await here.come("root", "admin")
    await make(anna, "hers", "hello")
    await make(root, "roots")
    for client in (here.admin, root):
        assert ids_in(await client.get("/v1/sessions")) == ["roots", "hers"]
        assert (await client.get("/v1/sessions/hers")).json()["owner"] == "anna"
        assert (await client.get("/v1/sessions/roots")).json()["owner"] == "root"
    assert (await anna.get("/v1/sessions/roots")).status_code == 404
    assert (await here.admin.delete("/v1/sessions/hers")).status_code == 204


async def test_a_session_of_the_server_s_own_token_is_the_admins(here: People) -> None:
    anna = await here.come("anna")
    await make(here.admin, "s")
    assert (await here.admin.get("/v1/sessions/s")).json()["owner"] is None
    assert (await here.admin.get("/v1/sessions/s/entries")).json()["entries"] == []
    assert (await anna.get("/v1/sessions/s")).status_code == 404


async def test_two_tokens_of_one_principal_have_the_same_sessions(here: People) -> None:
    first = await here.come("anna")
    second = await here.come("anna")
    await make(first, "hers")
    assert ids_in(await second.get("/v1/sessions")) == ["hers"]


async def test_a_listing_has_only_what_is_one_s_own_page_by_page(here: People) -> None:
    anna, bob = await here.come("anna"), await here.come("bob")
    for n in range(5):
        await make(anna, f"a{n}")
        await make(bob, f"b{n}")
        await make(here.admin, f"c{n}")
    await make(anna, "last", "what anna said")
    expected = ["last", "a4", "a3", "a2", "a1", "a0"]
    found: list[str] = []
    after = ""
    while True:
        page = await anna.get(f"/v1/sessions?limit=2{after}")
        found += ids_in(page)
        if page.json()["next"] is None:
            break
        after = f"&after={page.json()['next']}"
    assert found == expected
    assert ids_in(await bob.get("/v1/sessions?match=anna")) == []
    assert ids_in(await anna.get("/v1/sessions?match=anna")) == ["last"]
    # The cursor of somebody else's page leads to nothing but one's own.
    theirs = (await bob.get("/v1/sessions?limit=1")).json()["next"]
    assert set(ids_in(await anna.get(f"/v1/sessions?after={theirs}"))) <= set(expected)


async def test_a_page_costs_what_it_shows_whatever_others_have(
    store: JournalStore, tmp_path: Path
) -> None:
    for n in range(3000):
        await store.create_session(f"other {n}", entries=[SessionOwned("bob")])
    async with people(tmp_path, store=store) as here:
        anna = await here.come("anna")
        await make(anna, "hers")
        asked: list[int] = []
        load = store.list_sessions

        async def counted(**options: Any) -> Any:
            page = await load(**options)
            asked.append(len(page.sessions))
            return page

        vars(store)["list_sessions"] = counted
        assert ids_in(await anna.get("/v1/sessions")) == ["hers"]
        assert asked == [1]


async def test_a_fork_belongs_to_who_forks(here: People) -> None:
    anna = await here.come("anna")
    await make(anna, "hers", "hello")
    mine = await anna.post("/v1/sessions/hers/fork", json={"session_id": "child"})
    assert (mine.status_code, mine.json()["owner"]) == (201, "anna")
    of_admin = await here.admin.post("/v1/sessions/hers/fork", json={"session_id": "copy"})
    assert (of_admin.status_code, of_admin.json()["owner"]) == (201, None)
    assert ids_in(await anna.get("/v1/sessions")) == ["child", "hers"]
    path = [e["id"] for e in (await anna.get("/v1/sessions/hers/transcript")).json()["entries"]]
    copy = (await anna.get("/v1/sessions/child/transcript")).json()["entries"]
    assert [each["id"] for each in copy] == path


async def test_that_an_id_is_taken_is_told_and_nothing_else_of_it(here: People) -> None:
    anna, bob = await here.come("anna"), await here.come("bob")
    await make(anna, "hers", "a secret")
    await make(bob, "his", "hello")
    taken = await bob.post("/v1/sessions", json={"session_id": "hers"})
    problem = check(taken, 409, "session_exists")
    assert set(problem) == {"type", "title", "status", "detail", "code", "session_id"}
    fork = await bob.post("/v1/sessions/his/fork", json={"session_id": "hers"})
    assert check(fork, 409, "session_exists") == problem
    own = await bob.post("/v1/sessions/his/fork", json={"session_id": "his"})
    assert own.text.replace("his", "ID") == fork.text.replace("hers", "ID")
    again = await anna.post("/v1/sessions", json={"session_id": "hers"})
    assert (again.status_code, again.json()["owner"]) == (200, "anna")
    assert (await here.admin.post("/v1/sessions", json={"session_id": "hers"})).status_code == 200


async def test_nobody_decides_first_and_sends_the_rest_when_the_id_is_another_s(
    here: People,
) -> None:
    anna, bob = await here.come("anna"), await here.come("bob")
    await make(anna, "s")
    go_on = asyncio.Event()

    async def slowly() -> AsyncIterator[bytes]:
        yield b'{"text": "into whose'
        await go_on.wait()
        yield b' session?"}'

    sending = asyncio.create_task(anna.post("/v1/sessions/s/messages", content=slowly()))
    await asyncio.sleep(0.2)
    assert (await anna.delete("/v1/sessions/s")).status_code == 204
    await make(bob, "s")
    before = (await bob.get("/v1/sessions/s/entries")).json()
    go_on.set()
    check(await sending, 404, "session_not_found")
    assert (await bob.get("/v1/sessions/s/entries")).json() == before


async def test_an_owner_of_a_running_turn_goes_on_having_it(tmp_path: Path) -> None:
    async with people(tmp_path, loop=ScriptedLoop([Say("one"), Hang()])) as here:
        anna, bob = await here.come("anna"), await here.come("bob")
        await make(anna, "hers")
        await anna.post("/v1/sessions/hers/messages", json={"text": "go"})
        await until(lambda look: look["turn"] is not None, anna, "hers")
        check(await bob.post("/v1/sessions/hers/stop", json={}), 404, "session_not_found")
        assert (await anna.get("/v1/sessions/hers")).json()["status"] == "running"
        stopped = await anna.post("/v1/sessions/hers/stop", json={})
        assert stopped.json()["stopped"] is True


async def test_a_damaged_session_of_somebody_else_is_not_there_either(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "s.db") as store, people(tmp_path, store=store) as here:
        anna, bob = await here.come("anna"), await here.come("bob")
        await make(anna, "hers", "a secret")
        await make(bob, "his", "hello")
        connection = apsw.Connection(str(tmp_path / "s.db"))
        connection.execute("UPDATE sessions SET header = x'00' WHERE session_id = 'hers'")
        connection.close()
        for path in ("hers", "hers/entries", "hers/export"):
            answer = await bob.get(f"/v1/sessions/{path}")
            check(answer, 404, "session_not_found")
        check(await bob.get("/v1/stream?session=hers"), 404, "session_not_found")
        answer = await bob.post("/v1/sessions", json={"session_id": "hers"})
        check(answer, 409, "session_exists")
        answer = await bob.post("/v1/sessions/his/fork", json={"session_id": "hers"})
        check(answer, 409, "session_exists")
        assert ids_in(await bob.get("/v1/sessions")) == ["his"]
        listed = (await anna.get("/v1/sessions")).json()["sessions"]
        assert [(each["session_id"], each["status"]) for each in listed] == [
            ("hers", "unrecoverable")
        ]
        check(await anna.get("/v1/sessions/hers"), 500, "journal_corrupt")


async def test_only_who_operates_the_server_is_told_where_its_files_are(tmp_path: Path) -> None:
    folder = tmp_path / "the data"
    async with SqliteStore(folder / "s.db") as store, people(tmp_path, store=store) as here:
        anna = await here.come("anna")
        nobody = await here.with_token(None)
        await make(anna, "hers", "hello")
        await make(anna, "broken", "hello")
        connection = apsw.Connection(str(folder / "s.db"))
        connection.execute("UPDATE entries SET raw = x'00' WHERE seq = 1")
        connection.close()
        for path in ("broken/entries", "broken", "", "broken/stop"):
            verb = "POST" if path.endswith("stop") else "GET"
            url = f"/v1/sessions/{path}".rstrip("/")
            answer = await anna.request(verb, url, json={} if verb == "POST" else None)
            assert "s.db" in answer.text, (path, answer.text)
            assert str(folder) not in answer.text
        told = (await here.admin.get("/v1/sessions/broken/entries")).json()
        assert str(folder) in told["detail"]
        assert str(folder) in told["place"]
        os.rename(folder / "s.db", folder / "away")
        for client, is_told in ((anna, False), (here.admin, True)):
            answer = await client.get("/v1/sessions/hers")
            check(answer, 503, "store_unavailable")
            assert (str(folder) in answer.text) is is_told
        answer = await nobody.get("/v1/ready")
        check(answer, 503, "not_ready")
        assert "s.db" in answer.text
        assert str(folder) not in answer.text
        os.rename(folder / "away", folder / "s.db")
