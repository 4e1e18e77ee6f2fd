"""Random commands from all sides, then kill -9 or SIGTERM, again and again: nothing breaks.

People send scripts that talk, call tools that wait for an approval, hang, fail and listen; they
answer, stop, steer, interrupt, edit the queue, branch, fork, compact, send again and delete, two
of them in each session at a time. After each end of the server, for every session:

- its journal folds, its `seq`s have no gap, and the look is what it folds to;
- a viewer who comes and goes with a cursor sees each entry once, in order, and what it saw and
  what was acknowledged is there;
- an accepted message ran, waits, or is discarded by an entry that says so;
- nothing is `running`; a stop and a message work; each turn has one end; the model view is valid.

`PERDURE_CRASH_ROUNDS`, `PERDURE_CRASH_SESSIONS` and `PERDURE_CRASH_S` make it longer.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
from collections import Counter
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from perdure.codec import StoredEntry
from perdure.entry import Message, Text
from perdure.fact import (
    ApprovalAnswered,
    MessageDiscarded,
    MessageQueued,
    SessionStarted,
    TurnEnded,
    TurnStarted,
)
from perdure.server.session.state import State, fold
from perdure.testing import Call, Fail, Hang, Listen, Say, Wait, write_script
from perdure.testing.scripted_loop import Step
from perdure.tree import Tree
from perdure.view import model_view
from tests.crash.test_agent_killed import SEED, check_view
from tests.crash.test_server_killed import (
    all_entries,
    events,
    fields_after_seq,
    open_turns,
    stored,
)
from tests.serving import ServerProcess

ROUNDS = max(2, int(os.environ.get("PERDURE_CRASH_ROUNDS", "20")) // 5)
SESSIONS = int(os.environ.get("PERDURE_CRASH_SESSIONS", "6"))
ROUND_S = float(os.environ.get("PERDURE_CRASH_S", "1"))

LOOP = "perdure.testing.scripted_loop:scripted_by_message"
OPTIONS = (
    *("--approve", "careful*", "--max-live-actors", str(max(3, SESSIONS // 3))),
    *("--idle-after-s", "0.3", "--snapshot-every", "20", "--requests-per-s", "100000"),
    *("--quarantine-after", "1000", "--grace-s", "0.1"),
)
ASKS = {
    "hookSpecificOutput": {
        "hookEventName": "PreToolUse",
        "permissionDecision": "ask",
        "additionalContext": "mind the budget",
    }
}
HOOKS = {
    "PreToolUse": [
        {
            "matcher": "asked",
            "hooks": [{"type": "command", "command": f"echo '{json.dumps(ASKS)}'"}],
        }
    ]
}


def random_script(dice: random.Random) -> str:
    """What a message makes the loop do."""

    def call() -> Call:
        call_id = dice.choice(("c1", "c2", "ä/b c", None, None))
        name = dice.choice(("careful", "careful_pay", "free", "free", "asked"))
        arguments = {"n": dice.random(), "text": dice.choice(("", "\u2028", "x" * 3000))}
        return Call(
            name,
            arguments,
            output=("line\n",),
            delay_s=dice.random() * 0.01,
            result="done",
            call_id=call_id,
            asks=dice.random() < 0.15,
            hangs=dice.random() < 0.05,
            fails=dice.random() < 0.1,
        )

    steps: list[Step] = []
    for _ in range(dice.randint(1, 3)):
        kind = dice.random()
        if kind < 0.7:
            calls = {each.call_id or n: each for n, each in enumerate([call(), call(), call()])}
            used = list(calls.values())[: dice.choice((0, 0, 1, 1, 2, 3))]
            text = dice.choice(("hello", "ünï\u2028cödé", "a" * 200))
            steps.append(Say(text, calls=used, delay_s=dice.random() * 0.01))
        else:
            steps.append(
                dice.choice((Wait(0.02), Wait(0.1), Listen(), Fail(), Hang(), Say("x", cut="hang")))
            )
    return write_script(*steps)


class Told:
    """What one round's people were told of each session."""

    def __init__(self) -> None:
        self.seen: dict[str, list[bytes]] = {}
        self.incarnations: dict[str, str] = {}
        self.messages: dict[str, dict[str, int]] = {}
        self.answers: dict[str, set[str]] = {}
        self.discarded: dict[str, set[str]] = {}
        self.edited: dict[str, set[str]] = {}
        self.there: set[str] = set()
        self.deleting: set[str] = set()
        self.codes: Counter[tuple[str, int]] = Counter()

    def cursor(self, name: str) -> str:
        """The wire cursor of the last entry that was seen."""
        seq = len(self.seen.get(name, ()))
        return f"{seq}.{self.incarnations[name]}" if seq else "0"

    def see(self, data: bytes) -> None:
        """An entry of the stream: the one that follows what was seen."""
        name = json.loads(data)["session_id"]
        seq, raw = fields_after_seq(data)
        seen = self.seen.setdefault(name, [])
        assert seq == len(seen) + 1, f"{name}: {seq} came after {len(seen)}"
        seen.append(raw)


async def follow(
    client: httpx.AsyncClient, names: Sequence[str], dice: random.Random, told: Told
) -> None:
    """A viewer of some sessions on one stream, who leaves and comes back with their cursors."""
    while True:
        pairs = [(("session", name), ("after", told.cursor(name))) for name in names]
        params = httpx.QueryParams([each for pair in pairs for each in pair])
        with contextlib.suppress(TimeoutError):
            async with (
                asyncio.timeout(0.1 + dice.random() * 2),
                client.stream("GET", "/v1/stream", params=params, timeout=None) as response,
                aclosing(events(response)) as stream,
            ):
                assert response.status_code == 200, await response.aread()
                async for event, data in stream:
                    if event == "entry":
                        told.see(data)


class Person:
    """One of those who use a session."""

    def __init__(
        self, client: httpx.AsyncClient, name: str, dice: random.Random, told: Told, who: int
    ) -> None:
        self.client, self.name, self.dice, self.told, self.who = client, name, dice, told, who
        self.sent: list[tuple[str, dict[str, Any]]] = []
        self.count = 0

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
        """A request; the server never fails at it."""
        url = f"/v1/sessions/{self.name}{path}"
        answer = await self.client.request(method, url, json=body, headers=headers)
        verb = path.strip("/").split("/")[0] or "session"
        self.told.codes[f"{method} {verb}", answer.status_code] += 1
        is_closing = answer.status_code == 503 and answer.json()["code"] == "server_closing"
        assert answer.status_code < 500 or is_closing, f"{method} {url}: {answer.text}"
        return answer

    async def use(self) -> None:
        """Does one thing after the other, at random, until the server is gone."""
        verbs = {
            self.send: 10,
            self.send_again: 2,
            self.answer: 8,
            self.stop: 3,
            self.resend: 2,
            self.go_on: 2,
            self.edit: 2,
            self.discard: 1,
            self.branch: 1,
            self.fork: 1,
            self.compact: 1,
            self.delete: 0.1 if self.who < 0 else 0,
            self.at_once: 2,
        }
        while True:
            await self.dice.choices(list(verbs), list(verbs.values()))[0]()
            await asyncio.sleep(self.dice.random() ** 3 * 0.2)

    async def at_once(self) -> None:
        """Several things at the same instant."""
        verbs = (self.answer, self.answer, self.stop, self.send, self.discard, self.resend)
        await asyncio.gather(*(verb() for verb in self.dice.sample(verbs, 3)))

    async def send(self) -> None:
        self.count += 1
        text = random_script(self.dice) if self.dice.random() < 0.8 else "just text"
        policies = ("queue", "queue", "steer", "interrupt", "reject")
        body = {"text": text, "if_running": self.dice.choice(policies)}
        key = f"{self.name}-{self.who}-{self.count}"
        self.sent.append((key, body))
        await self.deliver(key, body)

    async def send_again(self) -> None:
        if self.sent:
            await self.deliver(*self.dice.choice(self.sent))

    async def deliver(self, key: str, body: dict[str, Any]) -> None:
        answer = await self.ask("POST", "/messages", body, **{"Idempotency-Key": key})
        if answer.status_code == 202:
            found = answer.json()
            before = self.told.messages.setdefault(self.name, {})
            seq = before.setdefault(found["message_id"], found["seq"])
            assert seq == found["seq"], f"{key} was acknowledged at {seq} and at {found['seq']}"
        else:
            assert answer.status_code in (404, 409, 503), answer.text

    async def look(self) -> dict[str, Any]:
        answer = await self.ask("GET", "")
        look: dict[str, Any] = answer.json()
        return look if answer.is_success else {"approvals": [], "queued": [], "turn": None}

    async def answer(self) -> None:
        approvals = (await self.look())["approvals"]
        if not approvals:
            return
        call_id = self.dice.choice(approvals)["call_id"]
        body: dict[str, Any] = {"approve": self.dice.random() < 0.7}
        if self.dice.random() < 0.3:
            body["arguments"] = {"n": self.dice.choice((1, 2))}
        answer = await self.ask("POST", f"/approvals/{quote(call_id, safe='')}", body)
        assert answer.status_code in (202, 404, 409, 503), answer.text
        if answer.status_code == 202:
            self.told.answers.setdefault(self.name, set()).add(call_id)

    async def stop(self) -> None:
        turn = (await self.look())["turn"] if self.dice.random() < 0.5 else None
        body = {"turn_id": turn["turn_id"]} if turn else {}
        await self.ask("POST", "/stop", body | {"discard_queued": self.dice.random() < 0.3})

    async def resend(self) -> None:
        await self.ask("POST", "/resend")

    async def go_on(self) -> None:
        await self.ask("POST", "/go-on")

    async def edit(self) -> None:
        if queued := (await self.look())["queued"]:
            message_id = self.dice.choice(queued)["message_id"]
            answer = await self.ask("PUT", f"/queue/{message_id}", {"text": "edited"})
            if answer.is_success:
                self.told.edited.setdefault(self.name, set()).add(message_id)

    async def discard(self) -> None:
        if queued := (await self.look())["queued"]:
            message_id = self.dice.choice(queued)["message_id"]
            answer = await self.ask("DELETE", f"/queue/{message_id}")
            if answer.is_success:
                self.told.discarded.setdefault(self.name, set()).add(message_id)

    async def branch(self) -> None:
        page = (await self.ask("GET", "/transcript")).json().get("entries")
        entry_id = self.dice.choice(page)["id"] if page else None
        await self.ask("POST", "/branch", {"entry_id": entry_id})

    async def fork(self) -> None:
        self.count += 1
        child = f"{self.name}.{self.who}-{self.count}"
        answer = await self.ask("POST", "/fork", {"session_id": child})
        if answer.is_success:
            self.told.there.add(child)

    async def compact(self) -> None:
        await self.ask("POST", "/compact", {"keep_turns": self.dice.choice((1, 2))})

    async def delete(self) -> None:
        self.told.deleting.add(self.name)
        await self.ask("DELETE", "")


async def work(server: ServerProcess, names: Sequence[str], dice: random.Random) -> Told:
    """Uses the server from all sides, and ends it in the middle."""
    told = Told()
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(
        base_url=server.base, headers=server.headers, timeout=60, limits=limits
    ) as client:
        for name in names:
            answer = await client.post("/v1/sessions", json={"session_id": name})
            assert answer.status_code == 201, answer.text
            told.there.add(name)
            told.incarnations[name] = answer.json()["cursor"].partition(".")[2]
        people = [
            Person(client, name, random.Random(dice.random()), told, who)
            for n, name in enumerate(names)
            for who in ((0, 1) if n % 5 else (-1, -2))  # these may delete it, and nobody watches
        ]
        watched_names = [name for n, name in enumerate(names) if n % 5]
        tasks = [asyncio.create_task(person.use()) for person in people]
        tasks += [
            asyncio.create_task(follow(client, watched_names[n : n + 50], dice, told))
            for n in range(0, len(watched_names), 50)
        ]
        await asyncio.wait(
            tasks, timeout=ROUND_S * (0.3 + dice.random()), return_when=asyncio.FIRST_EXCEPTION
        )
        if dice.random() < 0.7:
            server.kill()
        else:
            assert await asyncio.to_thread(server.stop) == 0
        results = await asyncio.gather(*tasks, return_exceptions=True)
        for result in results:
            if not isinstance(result, httpx.TransportError | None):
                raise result
    return told


async def check(server: ServerProcess, told: Told) -> None:
    """Holds every session of the round against what people were shown and told."""
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(
        base_url=server.base, headers=server.headers, timeout=60, limits=limits
    ) as client:
        for name in sorted(told.there):
            try:
                await check_session(client, name, told)
            except AssertionError as error:
                raise AssertionError(f"{name}: {error}") from error
    await asyncio.sleep(0.05)


async def check_session(client: httpx.AsyncClient, name: str, told: Told) -> None:
    """One session, as it is found and as it goes on."""
    url = f"/v1/sessions/{name}"
    answer = await client.get(url)
    if answer.status_code == 404:
        assert name in told.deleting
        return
    look = answer.json()
    journal = await all_entries(client, name) if look["last_seq"] else []
    assert [seq for seq, _ in journal] == list(range(1, len(journal) + 1))
    seen = told.seen.setdefault(name, [])
    assert [raw for _, raw in journal][: len(seen)] == seen, "it is not what was shown"
    entries = stored(journal)
    state = fold(State(), entries)
    assert (look["last_seq"], look["leaf_id"]) == (state.last_seq, state.leaf_id)
    assert [each["message_id"] for each in look["queued"]] == [q.message_id for q in state.queue]
    assert look["status"] in ("idle", "waiting", "interrupted", "failed"), look["status"]
    is_open = state.turn is not None and state.turn.is_at_rest
    assert (look["status"] == "waiting") == is_open
    check_accepted(entries, state, name, told)
    await check_goes_on(client, name)
    if seen:
        last_seq = (await client.get(url)).json()["last_seq"]
        params = {"session": name, "after": told.cursor(name)}
        async with (
            client.stream("GET", "/v1/stream", params=params) as response,
            aclosing(events(response)) as stream,
        ):
            async for event, data in stream:
                if event == "entry":
                    told.see(data)
                if len(seen) == last_seq:
                    break
        assert seen == [raw for _, raw in await all_entries(client, name)]


def check_accepted(entries: Sequence[StoredEntry], state: State, name: str, told: Told) -> None:
    """What was acknowledged is stored, and nothing that was accepted is lost."""
    views = [entry.view for entry in entries]
    ran = {view.id for view in views if isinstance(view, Message)}
    queued = [view for view in views if isinstance(view, MessageQueued)]
    discarded = {view.message_id for view in views if isinstance(view, MessageDiscarded)}
    waits = {each.message_id for each in state.queue}
    for accepted in queued:
        message_id = accepted.message_id
        assert message_id in ran | waits | discarded, f"{message_id} is lost"
    newest = {each.message_id: each for each in queued}
    assert not (waits & ran), "a message waits that ran"
    for message_id, seq in told.messages.get(name, {}).items():
        assert message_id in entries[seq - 1].entry.raw.decode(), f"{message_id} at {seq}"
    answered = {view.call_id for view in views if isinstance(view, ApprovalAnswered)}
    assert told.answers.get(name, set()) <= answered
    assert told.discarded.get(name, set()) <= discarded - waits - ran
    for message_id in told.edited.get(name, set()):
        assert newest[message_id].parts == (Text("edited"),)
    starts = [view.source for view in views if isinstance(view, SessionStarted)]
    assert starts.count("startup") <= 1


async def check_goes_on(client: httpx.AsyncClient, name: str) -> None:
    """A stop, and then a message, work; after them each turn has its one end."""
    url = f"/v1/sessions/{name}"
    answer = await client.post(f"{url}/stop", json={"discard_queued": True})
    assert answer.status_code == 200, answer.text
    for queued in (await client.get(url)).json()["queued"]:
        answer = await client.delete(f"{url}/queue/{queued['message_id']}")
        assert answer.status_code == 204, answer.text
    answer = await client.post(f"{url}/messages", json={"text": "and now?"})
    assert answer.status_code == 202, answer.text
    assert answer.json()["turn_id"], answer.text
    for _ in range(3000):
        look = (await client.get(url)).json()
        if look["turn"] is None:
            break
        await asyncio.sleep(0.01)
    assert (look["status"], look["last_turn"]["reason"]) == ("idle", "completed"), look
    entries = stored(await all_entries(client, name))
    assert open_turns(entries) == set()
    views = [entry.view for entry in entries]
    ends = Counter(view.turn_id for view in views if isinstance(view, TurnEnded))
    assert set(ends) == {view.turn_id for view in views if isinstance(view, TurnStarted)}
    assert set(ends.values()) == {1}, ends
    tree = Tree(entries, session_id=name)
    for leaf_id in (tree.leaf_id, look["leaf_id"]):
        check_view(model_view(tree.path(leaf_id)))


def test_random_use_breaks_nothing(tmp_path: Path) -> None:
    dice = random.Random(SEED)
    (tmp_path / "hooks.json").write_text(json.dumps({"hooks": HOOKS}))
    server = ServerProcess(tmp_path, loop=LOOP, options=OPTIONS)
    codes: Counter[tuple[str, int]] = Counter()
    try:
        server.start()
        for round_ in range(ROUNDS):
            names = [f"r{round_}-{n}" for n in range(SESSIONS)]
            try:
                told = asyncio.run(work(server, names, random.Random(dice.random())))
                codes += told.codes
                server.start()
                asyncio.run(check(server, told))
            except AssertionError as error:
                where = f"PERDURE_CRASH_SEED={SEED}, round {round_}"
                raise AssertionError(f"{where}: {error}") from error
    finally:
        with contextlib.suppress(ProcessLookupError):
            server.kill()
    assert codes["POST approvals", 202] > 0, codes
    log = (tmp_path / "server.log").read_text()
    assert "Traceback" not in log, log[log.index("Traceback") - 300 :][:3000]
