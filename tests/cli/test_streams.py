"""Output that nobody takes and text that is not made for lines: no stack trace, nothing lost."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

import perdure
from perdure import Custom, Message, Text, ToolCall
from perdure.cli.render import call_text
from perdure.entry import TreeEntry
from perdure.testing import Say, write_script
from tests.cli.terminal import environment, run

STORE = ("--store", "jsonl:///s")


def put(folder: Path, session_id: str, *entries: TreeEntry) -> None:
    async def append() -> None:
        async with perdure.open_store(f"jsonl:///{folder}/s") as store:
            await (await perdure.open(session_id, store=store)).append(*entries)

    asyncio.run(append())


def messages(folder: Path, session_id: str) -> list[Message]:
    async def load() -> list[Message]:
        async with perdure.open_store(f"jsonl:///{folder}/s") as store:
            return (await perdure.open(session_id, store=store)).messages()

    return asyncio.run(load())


@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("verb", ["show", "ls", "verify", "chat"])
def test_a_stream_that_is_closed_from_the_start_is_an_empty_one(
    verb: str, closed: str, tmp_path: Path
) -> None:
    put(tmp_path, "s", perdure.text("hello"))
    session = [] if verb == "ls" else ["s"]
    arguments = [sys.executable, "-m", "perdure", verb, *session, *STORE]
    command = ["sh", "-c", f'exec "$@" {closed}', "sh", *arguments]
    ran = subprocess.run(
        command,
        cwd=tmp_path,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert [message.text for message in messages(tmp_path, "s")] == ["hello"]


def test_a_chat_that_nobody_reads_any_more_ends_its_run_and_keeps_what_it_had(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-m", "perdure", "chat", "s", *STORE]
    with subprocess.Popen(
        [*command, "--loop", "perdure.testing:scripted_by_message"],
        cwd=tmp_path,
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(write_script(Say("word " * 2000, delay_s=0.01)).encode() + b"\n")
        process.stdin.close()
        process.stdout.read(16)
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141
    _, answer = messages(tmp_path, "s")
    assert answer.end == "stopped"
    assert answer.text.startswith("word word word")


@pytest.mark.parametrize("zone", ["UTC0", "WEST12", "EAST-12"])
def test_times_at_the_edges_of_the_calendar_are_shown(zone: str, tmp_path: Path) -> None:
    for session_id, stamp in (
        ("first", datetime(1, 1, 1, tzinfo=UTC)),
        ("last", datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)),
    ):
        put(tmp_path, session_id, Message("user", (Text("hello"),), created_at=stamp))
    for arguments in (["show", "first"], ["show", "last"], ["ls"]):
        ran = run(*arguments, *STORE, cwd=tmp_path, env={"TZ": zone})
        assert (ran.returncode, ran.stderr) == (0, "")


def test_a_number_that_python_does_not_read_is_shown(tmp_path: Path) -> None:
    put(tmp_path, "s")
    entry = (
        b'{"type":"custom","kind":"k","data":%s,"id":"e",'
        b'"created_at":"2026-01-01T00:00:00Z","parent_id":null}\n' % (b"7" * 5000)
    )
    with (tmp_path / "s" / "s.jsonl").open("ab") as file:
        file.write(entry)
    for form in ([], ["--tree"], ["--json"]):
        ran = run("show", "s", *form, *STORE, cwd=tmp_path)
        assert (ran.returncode, ran.stderr) == (0, "")
        assert "7" * 20 in ran.stdout


def test_a_heading_and_a_line_of_the_tree_stay_one_line(tmp_path: Path) -> None:
    put(tmp_path, "s", Custom(kind="note\n── user · now", data=1, id="a\nb"))
    assert len(run("show", "s", "--tree", *STORE, cwd=tmp_path).stdout.splitlines()) == 1
    assert len(run("show", "s", *STORE, cwd=tmp_path).stdout.splitlines()) == 2
    call = ToolCall("c", "find\nme")
    assert call_text(call.name, call.arguments) == "→ find me null"
