"""Makes the golden files of this release: `python -m tests.golden.make tests/golden/VERSION`.

It is run once for each release that changes a format or adds a type, and its output is kept for
ever: no test runs it. The same code makes the same bytes (those of SQLite's own header apart).
"""

from __future__ import annotations

import asyncio
import base64
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw
import msgspec

import perdure
from perdure import clock, fact
from perdure.codec import Entry, import_entry, next_sum, seal
from perdure.entry import Compaction, Custom, File, Message, Reasoning, Text, ToolCall, ToolResult
from perdure.interchange import export_session, write_export
from perdure.store import Session, read_session
from perdure.stores.jsonl import JsonlStore
from perdure.stores.jsonl_scan import frame
from perdure.stores.sqlite import SqliteStore, ledger
from perdure.testing import ManualClock
from perdure.testing.nasty import TEXTS
from perdure.tree import Tree
from perdure.view import model_view, transcript_view

ID = "golden"
HASHED_ID = "Golden/é 1"
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="
)
AT = "2026-01-01T00:00:00Z"
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)

UNKNOWN = (
    '{"type":"poll","id":"unknown-tree","created_at":"%(at)s","parent_id":"%(parent)s","n":1e400}',
    '{ "id":"unknown-fact" , "type":"weather","created_at":"%(at)s", "degrees":[21.50,-0.0,NaN] }',
    '{"type":"message","role":"user","parts":[{"type":"text","text":"hi","mood":"merry"},'
    '{"type":"hologram","size":[1,2]}],"id":"unknown-part","created_at":"%(at)s",'
    '"parent_id":"unknown-tree","priority":7}',
    '{"type":"message","role":"oracle","parts":[],"id":"unknown-role","created_at":"%(at)s",'
    '"parent_id":"unknown-part"}',
    '{"type":"custom","kind":"of.somebody","data":{"a":[null,true,"\\ud800"]},"id":"unknown-kind",'
    '"created_at":"%(at)s","parent_id":"unknown-role","extra":{"deep":[[[]]]}}',
    '{"type":"turn_ended","turn_id":"t1","reason":"abducted","id":"unknown-reason",'
    '"created_at":"%(at)s","by":"aliens"}',
)
"""What newer versions and other programs may write; `parent` is the entry before."""


class Script:
    """Entries that grow from one another, with ids of the manual clock."""

    def __init__(self) -> None:
        self.leaf_id: str | None = None

    def add(self, draft: Any) -> Entry:
        entry = draft if isinstance(draft, Entry) else seal(draft, self.leaf_id)
        if entry.in_tree:
            self.leaf_id = entry.id
        return entry


def batches() -> list[list[Entry]]:
    """Every entry type and fact, unknown ones, torture text, a branch and a compaction."""
    script = Script()
    add = script.add
    first = [
        add(Message("system", (Text("Be brief."),))),
        add(perdure.text("injected", meta=True)),
        add(perdure.text("Where is order 1234?")),
    ]
    question = first[-1]
    call = ToolCall("c1", "find", {"number": 1234, "deep": {"a": [1, 2.5, None]}}, {"sig": "é"})
    other = ToolCall("c2", "look", "not JSON")
    answer = add(
        Message(
            "assistant",
            (Reasoning("hm", {"signature": "abc=="}), Text("Let me look."), call, other),
            provider={"id": "resp_1", "usage": {"in": 3}},
        )
    )
    facts = [
        fact.Claimed(1, "node-1"),
        fact.TurnStarted("t1", question.id),
        fact.ToolDispatched("t1", "c1", "find", {"number": 1234}, "t1:c1"),
        fact.MessageQueued("q1", (Text("and?"),), "steer"),
        fact.MessageDiscarded("q1", "stopped"),
        fact.ApprovalRequested("t1", "c2", "look", "not JSON", "costs", True, NOON),
        fact.ApprovalAnswered("t1", "c2", True, "go on", {"safe": True}),
        fact.HookRan("PreToolUse", "./hook", {"a": 1}, "out", 0, 0.25, "startup"),
        fact.RuntimeAttached("r1"),
        fact.RuntimeLost("r1", "gone"),
        fact.LateResult("c1", (Text("late"),)),
        fact.SessionStarted("startup"),
        fact.RoutineDefined(
            NOON,
            (Text("good morning"),),
            cron="0 9 * * *",
            zone="Europe/Berlin",
            session_id="s",
            incarnation="i",
            overlap="queue",
            jitter_s=2.5,
            origin="configuration",
            owner="anna",
        ),
        fact.RoutineSwitched("paused", NOON, "by hand"),
        fact.RoutineFired("daily", AT, "r1", "catch_up"),
        fact.RoutineRunStarted("r1", "s", "i", "m1", "t1"),
        fact.RoutineRunResent("r1", "t2", 2),
        fact.RoutineRunEnded("r1", "completed", "t2"),
        fact.RoutineSkipped(NOON, "overlap"),
        fact.RoutineMissed(NOON, NOON, None),
        fact.WorkflowDefined({"name": "w", "steps": []}, {"s": []}, {"a": 1}, "name: w"),
        fact.WorkflowSwitched("paused", "lunch", "anna"),
        fact.StepAnswered("s", True, "go on", "anna"),
        fact.StepStarted("s", 1, "w-s", "i", "m1", "t1", "Look."),
        fact.StepChecked("s", 1, False, "test -e a", "no", 0.25),
        fact.StepEnded("s", 1, "check_failed", "no", "done", {"calls": [], "earlier": 0}, NOON),
        fact.StepSkipped("s", "not needed", "anna"),
        fact.StepsReopened("s", ("s", "u"), "anna"),
        fact.WorkflowEnded("failed", "step 's'"),
        fact.LoopChosen("shell"),
        fact.SessionOwned("anna"),
        fact.MessageJoined("t1", "q1"),
        fact.LoopRemembered("agent", {"session": "s-1"}),
        fact.Gap("line 3, byte 9", "no JSON", 12),
        fact.TurnEnded("t1", "stopped", "by hand"),
    ]
    results = [
        add(Message("tool", (ToolResult("c2", (Text("no"),), name="look", is_error=True),))),
        add(
            Message(
                "tool",
                (
                    ToolResult(
                        "c1", (Text("x" * 50), File("image/png", PNG)), "find", limit_chars=20
                    ),
                ),
            )
        ),
    ]
    stopped = add(Message("assistant", (Text("It is on its w"),), end="stopped"))
    unknown = [
        import_entry((line % {"at": AT, "parent": script.leaf_id}).encode()) for line in UNKNOWN
    ]
    script.leaf_id = "unknown-kind"
    torture = [add(perdure.text(text)) for text, _ in TEXTS if text]
    script.leaf_id = stopped.id
    branch = [
        add(perdure.text("Never mind.")),
        add(Custom(kind="note", data={"stars": 5})),
        add(perdure.file(b"%PDF-", media_type="application/pdf", name="a.pdf")),
    ]
    moved = add(fact.LeafMoved(script.leaf_id, torture[-1].id))
    script.leaf_id = torture[-1].id
    compaction = add(Compaction("They asked for an order.", torture[0].id))
    last = [add(perdure.text("Go on.")), add(Message("assistant", (ToolCall("c3", "find"),)))]
    return [
        first,
        [answer, *map(add, facts[:3])],
        [results[0]],
        list(map(add, facts[3:])),
        [results[1], stopped],
        unknown,
        *([entry] for entry in torture),
        branch,
        [moved],
        [compaction],
        last,
    ]


async def lines(folder: Path, created: list[list[Entry]]) -> None:
    async with JsonlStore(folder) as store:
        await store.create_session("empty")
        await store.create_session(HASHED_ID, entries=[perdure.text("hello")])
        await store.create_session(ID, entries=created[0])
        for batch in created[1:]:
            await store.append_entries(ID, batch)
        async with await perdure.open(ID, store=store) as agent:
            await (await agent.fork("fork")).close()
        export = await export_session(store, ID)
        await write_export(export, folder.parent / "export.jsonl")
        (folder.parent / "export.head").write_text(f"{export.head}\n")
        entries = await store.load_entries(ID)
    (folder.parent / "entries.raw").write_bytes(b"".join(each.raw + b"\n" for each in entries))
    tree = Tree(entries)
    path = tree.path(tree.leaf_id)
    views = {
        "leaf_id": tree.leaf_id,
        "path": [entry.id for entry in path],
        "transcript": [entry.id for entry in transcript_view(path)],
        "model": model_view(path),
    }
    pretty = msgspec.json.format(
        msgspec.json.encode(views, enc_hook=lambda part: part.type), indent=1
    )
    (folder.parent / "views.json").write_bytes(pretty + b"\n")
    whole = (folder / "fork.jsonl").read_bytes()
    torn = whole.replace(b'"id":"fork"', b'"id":"torn"', 1).splitlines(keepends=True)
    session = read_session(torn[0].strip())
    kept, _ = frame(list(entries[:3]), session.first_sum)
    (folder / "torn.jsonl").write_bytes(b"".join([torn[0], *kept, b'{"type":"mess']))
    header = torn[0].replace(b'"id":"torn"', b'"id":"foreign"')
    foreign = [entry.raw.replace(b'","', b'" ,\t"', 1) + b"\r\n" for entry in created[0]]
    (folder / "foreign.jsonl").write_bytes(header + b"".join(foreign))
    newer = too_new(session)
    kept, _ = frame(list(entries), newer.first_sum)
    (folder / "too-new.jsonl").write_bytes(b"".join([newer.header, b"\n", *kept]))


def too_new(session: Session) -> Session:
    """The header that a version after the next one might write."""
    header = session.header.replace(f'"id":"{session.id}"'.encode(), b'"id":"too-new"')
    return read_session(header.replace(b'"format":1}', b'"format":3,"shards":[1,2]}'))


async def database(path: Path, created: list[list[Entry]]) -> None:
    vars(ledger)["TAIL_LENGTH"] = 16  # so that the index covers some of it
    async with SqliteStore(path) as store:
        await store.create_session("gone", entries=[perdure.text("deleted")])
        await store.delete_session("gone")
        await store.create_session("gone", entries=[perdure.text("of a new incarnation")])
        await store.create_session(HASHED_ID, summary=b"opaque")
        await store.create_session(ID, entries=created[0])
        for batch in created[1:]:
            await store.append_entries(ID, batch, summary=b"opaque")
        async with await perdure.open(ID, store=store) as agent:
            await (await agent.fork("fork")).close()
        newer = too_new(await store.create_session("too-new", entries=created[0]))
    connection = apsw.Connection(str(path))
    running = newer.first_sum
    rows: list[Any] = connection.execute(
        "SELECT pos, raw FROM entries WHERE session = (SELECT number FROM sessions "
        "WHERE session_id = 'too-new') ORDER BY pos"
    ).fetchall()
    for pos, raw in rows:
        running = next_sum(running, raw)
        connection.execute("UPDATE entries SET sum = ? WHERE pos = ?", (running, pos))
    connection.execute(
        "UPDATE sessions SET header = ?, last_sum = ? WHERE session_id = 'too-new'",
        (newer.header, running),
    )
    connection.execute("UPDATE meta SET value = '00000001' WHERE name = 'store_id'")
    connection.execute("PRAGMA wal_checkpoint(truncate)").fetchall()
    connection.close()


async def make(folder: Path) -> None:
    with clock.use(ManualClock(seed=1)):
        created = batches()
        await lines(folder / "lines", created)
        await database(folder / "sessions.db", created)


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir()  # what is there is never made again
    asyncio.run(make(target))
