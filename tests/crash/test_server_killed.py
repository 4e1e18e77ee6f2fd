"""kill -9 of the server at random moments: whatever a client was shown or told is there after it.

After each restart: every entry of an `entry` event and every 2xx answer is there with the same
`seq` and bytes; a look says `interrupted` and writes nothing; after the next message each turn has
exactly one end, the model view is valid, and the conversation goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import httpx

from perdure.codec import StoredEntry, read_entry
from perdure.fact import TurnEnded, TurnStarted
from perdure.tree import Tree
from perdure.view import model_view
from tests.crash.test_agent_killed import ROUNDS, SEED, check_view
from tests.serving import ServerProcess

SESSIONS = 3


class Seen:
    """What the clients of one round were shown and told."""

    def __init__(self) -> None:
        self.entries: dict[tuple[str, int], bytes] = {}
        self.messages: dict[tuple[str, str], int] = {}
        self.sessions: set[str] = set()


def fields_after_seq(data: bytes) -> tuple[int, bytes]:
    """The `seq` of an entry as it is sent, and the bytes of its own fields."""
    seq = json.loads(data)["seq"]
    return seq, data.split(b'"seq":%d,' % seq, 1)[1]


async def events(response: httpx.Response) -> AsyncGenerator[tuple[str, bytes], None]:
    """The events of a stream, by the HTML standard's event-stream section."""
    event, data = "message", b""
    buffer = b""
    async for chunk in response.aiter_bytes():
        buffer += chunk
        *lines, buffer = buffer.split(b"\n")
        for line in lines:
            if not line:
                if data:
                    yield event, data
                event, data = "message", b""
            elif line.startswith(b"event: "):
                event = line[7:].decode()
            elif line.startswith(b"data: "):
                data += line[6:]


async def watch(client: httpx.AsyncClient, sessions: list[str], seen: Seen) -> None:
    """A viewer of all the sessions on one stream."""
    params = httpx.QueryParams(
        [pair for name in sessions for pair in (("session", name), ("after", "0"))]
    )
    expected: Counter[str] = Counter()
    async with client.stream("GET", "/v1/stream", params=params, timeout=None) as response:
        assert response.status_code == 200, await response.aread()
        async for event, data in events(response):
            if event == "entry":
                session_id = json.loads(data)["session_id"]
                seq, raw = fields_after_seq(data)
                expected[session_id] += 1
                assert seq == expected[session_id], f"{session_id}: {seq} came out of order"
                seen.entries[session_id, seq] = raw


async def use(client: httpx.AsyncClient, name: str, dice: random.Random, seen: Seen) -> None:
    """A person's clicks on one session."""
    for n in range(10_000):
        verb = dice.choices(
            ("messages", "stop", "fork", "compact", "branch", "go-on"), (10, 2, 1, 1, 1, 1)
        )[0]
        body: dict[str, Any] = {}
        headers = {}
        if verb == "messages":
            body, headers = {"text": f"question {n}"}, {"Idempotency-Key": f"{name}-{n}"}
        elif verb == "fork":
            body = {"session_id": f"{name}.{n}"}
        elif verb == "branch":
            page = (await client.get(f"/v1/sessions/{name}/transcript")).json()["entries"]
            body = {"entry_id": dice.choice(page)["id"] if page else None}
        answer = await client.post(f"/v1/sessions/{name}/{verb}", json=body, headers=headers)
        assert answer.status_code < 500, answer.text
        if answer.is_success and verb == "messages":
            seen.messages[name, answer.json()["message_id"]] = answer.json()["seq"]
        elif answer.is_success and verb == "fork":
            seen.sessions.add(body["session_id"])
        await asyncio.sleep(dice.random() * 0.05)


async def work_until_killed(server: ServerProcess, sessions: list[str], seed: int) -> Seen:
    """Uses the server from all sides, and kills it in the middle."""
    dice, seen = random.Random(seed), Seen()
    async with httpx.AsyncClient(base_url=server.base, headers=server.headers) as client:
        for name in sessions:
            answer = await client.post("/v1/sessions", json={"session_id": name})
            assert answer.status_code == 201, answer.text
            seen.sessions.add(name)
        tasks = [asyncio.create_task(watch(client, sessions, seen))]
        tasks += [
            asyncio.create_task(use(client, name, random.Random(dice.random()), seen))
            for name in sessions
        ]
        await asyncio.sleep(0.05 + dice.random() * 0.6)
        server.kill()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        for result in results:
            if not isinstance(result, httpx.TransportError | None):
                raise result
    return seen


async def all_entries(client: httpx.AsyncClient, name: str) -> list[tuple[int, bytes]]:
    """The whole journal, as the stream shows it to a new viewer."""
    last_seq = (await client.get(f"/v1/sessions/{name}")).json()["last_seq"]
    found: list[tuple[int, bytes]] = []
    params = {"session": name, "after": "0"}
    async with (
        client.stream("GET", "/v1/stream", params=params) as response,
        aclosing(events(response)) as stream,
    ):
        async for event, data in stream:
            if event == "entry":
                found.append(fields_after_seq(data))
            if len(found) >= last_seq:
                return found
    raise AssertionError(f"{name}: the stream ended at seq {len(found)} of {last_seq}")


async def at_rest(client: httpx.AsyncClient, name: str) -> dict[str, Any]:
    """The session, once nothing runs and nothing is queued."""
    while True:
        look: dict[str, Any] = (await client.get(f"/v1/sessions/{name}")).json()
        if look["status"] != "running" and not look["queued"]:
            return look
        if look["status"] != "running":
            await client.post(f"/v1/sessions/{name}/go-on")
        await asyncio.sleep(0.02)


async def check(server: ServerProcess, seen: Seen) -> None:
    """What was shown and told is there; looking wrote nothing; and it goes on."""
    async with httpx.AsyncClient(
        base_url=server.base, headers=server.headers, timeout=30
    ) as client:
        for name in sorted(seen.sessions):
            look = (await client.get(f"/v1/sessions/{name}")).json()
            journal = await all_entries(client, name)
            assert [seq for seq, _ in journal] == list(range(1, len(journal) + 1))
            for (owner, seq), raw in seen.entries.items():
                if owner == name:
                    assert journal[seq - 1] == (seq, raw), f"{name}: seq {seq} differs"
            if journal:
                seq, raw = journal[len(journal) // 2]
                whole = await client.get(f"/v1/sessions/{name}/entries/{seq}")
                assert fields_after_seq(whole.content) == (seq, raw)
            for (owner, message_id), seq in seen.messages.items():
                if owner == name:
                    assert message_id in journal[seq - 1][1].decode()
            entries = stored(journal)
            opened = open_turns(entries)
            assert look["status"] == "interrupted" if opened else look["status"] != "running"
            again = (await client.get(f"/v1/sessions/{name}")).json()
            assert again == look, "looking changed something"
            assert look["last_seq"] == len(journal), "looking wrote something"
            answer = await client.post(f"/v1/sessions/{name}/messages", json={"text": "and now?"})
            assert answer.status_code == 202, answer.text
            await at_rest(client, name)
            entries = stored(await all_entries(client, name))
            assert open_turns(entries) == set()
            ends = Counter(
                view.turn_id for entry in entries if isinstance(view := entry.view, TurnEnded)
            )
            assert set(ends.values()) <= {1}, ends
            tree = Tree(entries, session_id=name)
            check_view(model_view(tree.path(tree.leaf_id)))
    await asyncio.sleep(0.05)  # httpx leaves the end of a stream that was left to the event loop


def stored(journal: list[tuple[int, bytes]]) -> list[StoredEntry]:
    """The journal's entries."""
    return [StoredEntry(seq, read_entry(b"{" + raw)) for seq, raw in journal]


def open_turns(entries: list[StoredEntry]) -> set[str]:
    """The ids of the turns that have no end."""
    views = [entry.view for entry in entries]
    started = {view.turn_id for view in views if isinstance(view, TurnStarted)}
    return started - {view.turn_id for view in views if isinstance(view, TurnEnded)}


def test_whatever_was_shown_survives_kill_9_of_the_server(tmp_path: Path) -> None:
    dice = random.Random(SEED)
    server = ServerProcess(tmp_path)
    try:
        server.start()
        for round_ in range(ROUNDS):
            names = [f"r{round_}-{n}" for n in range(SESSIONS)]
            try:
                seen = asyncio.run(work_until_killed(server, names, dice.randrange(10**9)))
                server.start()
                asyncio.run(check(server, seen))
            except AssertionError as error:
                where = f"PERDURE_CRASH_SEED={SEED}, round {round_}"
                raise AssertionError(f"{where}: {error}") from error
    finally:
        with contextlib.suppress(ProcessLookupError):
            server.kill()
    assert os.path.getsize(tmp_path / "sessions.db") > 0
