"""`ls`, `show` and `verify`: what they print, and that they change nothing."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.cli import main
from perdure.codec import seal
from perdure.fact import TurnEnded, TurnReason, TurnStarted
from perdure.server.session.state import State, encode_state, fold, place
from perdure.stores.sqlite import SqliteStore
from tests.cli.conftest import HOSTILE, Kept
from tests.cli.terminal import Terminal, environment, run


def test_ls_lists_each_session_with_its_entries(
    kept: Kept, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ls", "--store", kept.url]) == 0
    heading, line = capsys.readouterr().out.splitlines()
    assert heading.split() == ["SESSION", "STATUS", "ENTRIES", "LAST", "ACTIVITY"]
    assert line.split()[:3] == ["user/42", "-", str(len(kept.raws))]


def test_ls_in_json_has_one_object_a_line(kept: Kept, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ls", "--json", "--store", kept.url]) == 0
    (row,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert row["session_id"] == "user/42"
    assert row["last_seq"] == len(kept.raws)
    assert row["status"] is None


def test_ls_tells_the_status_of_sessions_that_a_server_ran(tmp_path: Path) -> None:
    async def fill() -> None:
        reasons: tuple[TurnReason | None, ...] = ("completed", "interrupted", None)
        async with perdure.open_store(f"sqlite:///{tmp_path}/s.db") as store:
            for reason in reasons:
                question = perdure.text("hello")
                started = TurnStarted(turn_id="t1", message_id=question.id)
                ends = [TurnEnded(turn_id="t1", reason=reason)] if reason else []
                await store.create_session(str(reason), entries=[started, question, *ends])

    asyncio.run(fill())
    ran = run("ls", "--json", "--store", f"sqlite:///{tmp_path}/s.db", cwd=tmp_path)
    rows = {row["session_id"]: row["status"] for row in map(json.loads, ran.stdout.splitlines())}
    assert rows == {"completed": "idle", "interrupted": "interrupted", "None": "open turn"}


def test_ls_reads_no_journal_whose_state_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path}/s.db"
    question = perdure.text("hello")

    async def fill() -> None:
        async with perdure.open_store(url) as store:
            assert isinstance(store, SqliteStore)
            entries = [seal(TurnStarted(turn_id="t", message_id=question.id)), seal(question)]
            entries.append(seal(TurnEnded(turn_id="t", reason="completed")))
            summary = encode_state(fold(State(), place(State(), entries)))
            for n in range(700):  # more than a page of the listing
                await store.create_session(f"s{n}", entries=entries, summary=summary)
            await store.append_entries("s7", [TurnStarted(turn_id="u", message_id=question.id)])

    asyncio.run(fill())
    read: list[str] = []
    load = SqliteStore.load_entries

    def note(store: SqliteStore, session_id: str, *, after: int = 0) -> Any:
        read.append(session_id)
        return load(store, session_id, after=after)

    monkeypatch.setattr(SqliteStore, "load_entries", note)
    assert main(["ls", "--json", "--store", url]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    statuses = {row["session_id"]: row["status"] for row in rows}
    assert statuses == {**dict.fromkeys((f"s{n}" for n in range(700)), "idle"), "s7": "open turn"}
    assert read == ["s7"]  # which somebody wrote to who keeps no state


def test_show_prints_the_transcript_of_the_leaf(
    kept: Kept, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", "user/42", "--store", kept.url]) == 0
    shown = capsys.readouterr().out
    for text in ("Where is order 1234?", '→ find_order {"number": 1234}', "Never mind."):
        assert text in shown
    assert '{"stars": 5}' in shown
    assert "interrupted" in shown  # the call has no result on this branch
    assert "Hamburg" not in shown
    assert "injected context" not in shown


def test_show_in_json_prints_the_stored_bytes(
    kept: Kept, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", "user/42", "--json", "--store", kept.url]) == 0
    assert capsys.readouterr().out.split("\n")[:-1] == kept.raws


def test_show_tree_has_every_branch_and_marks_the_leaf(
    kept: Kept, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", "user/42", "--tree", "--store", kept.url]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(kept.raws)
    assert [line for line in lines if line.startswith("*")] == [
        f"*    custom note: {json.dumps({'stars': 5})}  [{kept.leaf_id}]"
    ]
    assert sum("├─" in line or "└─" in line for line in lines) == 2


def test_nothing_in_a_transcript_commands_a_terminal(kept: Kept) -> None:
    for form in ("--json", "--tree"):
        with Terminal("show", "user/42", form, "--store", kept.url, cwd=kept.folder) as terminal:
            terminal.wait_for("owned")
            terminal.wait_for(kept.leaf_id)
            assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(terminal.shown)


def test_a_pipe_gets_the_text_as_it_is(tmp_path: Path) -> None:
    asyncio.run(fill(tmp_path / "s", ["s"], HOSTILE))
    command = [sys.executable, "-m", "perdure", "show", "s", "--store", "jsonl:///s"]
    ran = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, check=True)
    assert HOSTILE.encode() in ran.stdout


def test_verify_finds_no_damage_where_there_is_none(
    kept: Kept, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", "--store", kept.url]) == 0
    assert main(["verify", "user/42", "--store", kept.url]) == 0
    assert capsys.readouterr().out == "1 session checked, no damage found\n" * 2


async def fill(root: Path, session_ids: Sequence[str], *messages: str) -> None:
    async with perdure.open_store(f"jsonl:///{root}") as store:
        for session_id in session_ids:
            agent = await perdure.open(session_id, store=store)
            for message in messages:
                await agent.append(message)


def test_verify_prints_each_damage_and_fails(tmp_path: Path) -> None:
    asyncio.run(fill(tmp_path / "s", ["good", "bent", "cut"], "message 0", "message 1", "last"))
    for name, old, new in (("bent", b"message 1", b"message 7"), ("cut", b'"id"', b'"di"')):
        file = tmp_path / "s" / f"{name}.jsonl"
        head, first, *rest = file.read_bytes().split(b"\n")
        file.write_bytes(b"\n".join([head, first, rest[0].replace(old, new), *rest[1:]]))
    ran = run("verify", "--store", "jsonl:///s", cwd=tmp_path)
    *damages, total = ran.stdout.splitlines()
    assert ran.returncode == 1
    assert total == "3 sessions checked, 2 damaged"
    assert ["bent.jsonl, line 3" in damages[0], "cut.jsonl, line 3" in damages[1]] == [True, True]
    assert run("verify", "good", "--store", "jsonl:///s", cwd=tmp_path).returncode == 0
    listed = run("ls", "--store", "jsonl:///s", cwd=tmp_path)
    assert listed.returncode == 0
    assert "unrecoverable" in listed.stdout


def test_verify_finds_bytes_that_were_changed(kept: Kept, tmp_path: Path) -> None:
    if kept.url.startswith("sqlite"):
        with closing(sqlite3.connect(tmp_path / "sessions.db")) as connection, connection:
            connection.execute(
                "UPDATE entries SET raw = CAST(replace(raw, '1234', '4321') AS BLOB)"
            )
    else:
        (file,) = (tmp_path / "sessions").glob("*.jsonl")
        file.write_bytes(file.read_bytes().replace(b"1234", b"4321"))
    ran = run("verify", "--store", kept.url, cwd=tmp_path)
    assert ran.returncode == 1, ran.stdout
    assert ran.stdout.startswith("damaged: the journal of session 'user/42' is damaged at ")
    assert ran.stdout.endswith("\n1 session checked, 1 damaged\n")


@pytest.mark.parametrize("url", ["sqlite:///none/s.db", "jsonl:///none"])
@pytest.mark.parametrize("verb", [["ls"], ["show", "s"], ["verify"]])
def test_reading_makes_no_store(url: str, verb: list[str], tmp_path: Path) -> None:
    ran = run(*verb, "--store", url, cwd=tmp_path)
    assert ran.returncode == 1
    assert ran.stderr.startswith(f"perdure: there is no store at {url}")
    assert list(tmp_path.iterdir()) == []


def test_reading_changes_nothing(kept: Kept) -> None:
    journals = [*kept.folder.rglob("*.db"), *kept.folder.rglob("*.jsonl")]
    before = [path.read_bytes() for path in journals]
    for verb in (["ls"], ["show", "user/42"], ["show", "user/42", "--tree"], ["verify"]):
        assert run(*verb, "--store", kept.url, cwd=kept.folder).returncode == 0
    assert len(journals) == 1
    assert [path.read_bytes() for path in journals] == before


def test_the_store_of_the_environment_is_used(kept: Kept) -> None:
    ran = run("show", "user/42", "--json", cwd=kept.folder, env={"PERDURE_STORE": kept.url})
    assert ran.stdout.split("\n")[:-1] == kept.raws


def test_a_reader_that_leaves_early_is_no_error(tmp_path: Path) -> None:
    asyncio.run(fill(tmp_path / "s", ["long"], "x" * 5_000_000, "y" * 5_000_000))
    command = [sys.executable, "-m", "perdure", "show", "long", "--store", "jsonl:///s"]
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(100)
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141
