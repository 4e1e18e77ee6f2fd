"""The file of a conversation that commands of hooks read, as coding agents keep it."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from perdure.entry import text
from perdure.hook import HookFunction, Stop
from perdure.server.hook import transcript
from perdure.server.hook.function import Function
from perdure.server.hook.hooks import Hooks
from perdure.server.hook.setup import load_hooks
from perdure.server.hook.transcript import Transcripts
from perdure.server.journal import JournalStore
from perdure.server.surroundings import ServerSurroundings
from perdure.testing import Call, Say, write_script
from tests.server.hooking import NO_PLUGINS, command, group, write_hooks
from tests.server.house import ID, House
from tests.server.test_hook_serve import ask, entries, rest, send
from tests.serving import ServerProcess

READER = """
import json, sys
event = json.load(sys.stdin)
said = ""
with open(event["transcript_path"]) as file:
    for text in file:
        if '"role":"assistant"' in text:
            blocks = json.loads(text)["message"]["content"]
            said = "".join(each["text"] for each in blocks if each["type"] == "text")
with open("said", "a") as out:
    out.write(f"{event['hook_event_name']}: {said}\\n")
"""


@asynccontextmanager
async def housed(store: JournalStore, folder: Path, **events: Any) -> AsyncIterator[House]:
    hooks = load_hooks([write_hooks(folder, events)], NO_PLUGINS, folder=folder)
    transcripts = Transcripts(store, folder / "transcripts", folder)
    house = House(store, surroundings=ServerSurroundings(hooks, transcripts=transcripts))
    await house.create()
    try:
        yield house
    finally:
        await house.close()


def file_in(folder: Path) -> Path:
    (path,) = (folder / "transcripts").iterdir()
    return path


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file_in(folder).read_text("utf-8").split("\n")[:-1]]


async def test_a_hook_finds_the_conversation_as_it_stands_at_each_event(
    store: JournalStore, tmp_path: Path
) -> None:
    (tmp_path / "reader.py").write_text(READER)
    reads = [group(command(f"{sys.executable} -I reader.py"))]
    names = ("UserPromptSubmit", "PreToolUse", "Stop")
    async with housed(store, tmp_path, **dict.fromkeys(names, reads)) as house:
        await house.send(write_script(Say("first", calls=[Call("x")]), Say("last \u2028 word")))
        await house.rest()
        assert (tmp_path / "said").read_text("utf-8").split("\n") == [
            "UserPromptSubmit: ",
            "PreToolUse: first",
            "Stop: last \u2028 word",
            "",
        ]


async def test_it_has_a_line_for_each_tree_entry_in_the_agents_own_form(
    store: JournalStore, tmp_path: Path
) -> None:
    events = {"SessionStart": [group(command("echo context"))], "Stop": [group(command("true"))]}
    async with housed(store, tmp_path, **events) as house:
        calls = [Call("run_command", arguments={"command": "ls"}, output=["out"])]
        await house.send(write_script(Say("go", reasoning="hm", calls=calls), Say("done")))
        await house.rest()
        told = lines(tmp_path)
        tree = [each for each in await house.log() if each.entry.in_tree]
        assert [line["uuid"] for line in told] == [each.id for each in tree]
        assert [line["parentUuid"] for line in told] == [each.parent_id for each in tree]
        assert {line["sessionId"] for line in told} == {ID}
        asked, context, answer, result, last = told
        assert (asked["type"], asked["message"]["role"]) == ("user", "user")
        assert (context["isMeta"], context["message"]["content"]) == (True, "context")
        thinking, text, use = answer["message"]["content"]
        assert thinking == {"type": "thinking", "thinking": "hm"}
        assert text == {"type": "text", "text": "go"}
        assert (use["type"], use["name"], use["input"]) == ("tool_use", "Bash", {"command": "ls"})
        (gave,) = result["message"]["content"]
        assert (result["type"], gave["tool_use_id"], gave["content"]) == ("user", use["id"], "out")
        assert last["message"]["content"] == [{"type": "text", "text": "done"}]


async def test_it_is_added_to_and_made_anew_when_it_is_not_what_was_written(
    store: JournalStore, tmp_path: Path
) -> None:
    async with housed(store, tmp_path, Stop=[group(command("true"))]) as house:
        seen: list[tuple[int, int]] = []
        for _ in range(3):
            await house.send(write_script(Say("word")))
            await house.rest()
            seen.append((file_in(tmp_path).stat().st_ino, len(lines(tmp_path))))
        assert seen == [(seen[0][0], 2), (seen[0][0], 4), (seen[0][0], 6)]
        for spoil in (lambda: file_in(tmp_path).write_text("{}\n"), file_in(tmp_path).unlink):
            before = len(await house.log())
            spoil()
            await house.send(write_script(Say("word")))
            await house.rest()
            tree = [each.id for each in await house.log() if each.entry.in_tree]
            assert [line["uuid"] for line in lines(tmp_path)] == tree
            assert len(await house.log()) > before


async def test_nobody_else_can_read_it_and_it_goes_with_its_session(
    store: JournalStore, tmp_path: Path
) -> None:
    before = os.umask(0)
    try:
        async with housed(store, tmp_path, Stop=[group(command("true"))]) as house:
            await house.send(write_script(Say("secret")))
            await house.rest()
            assert stat.S_IMODE(file_in(tmp_path).stat().st_mode) == 0o600
            assert stat.S_IMODE((tmp_path / "transcripts").stat().st_mode) == 0o700
            await house.registry.delete(ID)
            assert not list((tmp_path / "transcripts").iterdir())
    finally:
        os.umask(before)


async def test_a_start_begins_without_the_files_of_the_one_before(
    store: JournalStore, tmp_path: Path
) -> None:
    old = tmp_path / "transcripts" / "old-0000.jsonl"
    old.parent.mkdir()
    old.write_text("{}\n")
    async with housed(store, tmp_path, Stop=[group(command("true"))]) as house:
        await house.send(write_script(Say("word")))
        await house.rest()
        assert not old.exists()
        assert len(lines(tmp_path)) == 2


async def test_so_many_files_are_kept(
    store: JournalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transcript, "MAX_FILES", 2)
    files = Transcripts(store, tmp_path / "files", tmp_path)
    for session_id in ("a", "A", "b/c"):
        await store.create_session(session_id, entries=[text("word")])
    for session_id in ("a", "A", "b/c", "a"):
        assert Path(await files.path_of(session_id)).parent == tmp_path / "files"
    assert len(list((tmp_path / "files").iterdir())) == 2


async def test_a_hook_runs_without_one_where_it_cannot_be_kept(
    store: JournalStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "transcripts").symlink_to("elsewhere")
    async with housed(store, tmp_path, Stop=[group(command("cat > told"))]) as house:
        await house.send(write_script(Say("word")))
        await house.rest()
        assert json.loads((tmp_path / "told").read_text())["transcript_path"] == ""
        assert not list((tmp_path / "elsewhere").iterdir())
        assert "have no transcript" in caplog.text


async def test_functions_of_plugins_need_none(store: JournalStore, tmp_path: Path) -> None:
    function = Function("p", HookFunction(Stop, lambda event: None))
    hooks = Hooks([function], folder=tmp_path)
    assert not hooks.read_files
    transcripts = Transcripts(store, tmp_path / "transcripts", tmp_path)
    house = House(store, surroundings=ServerSurroundings(hooks, transcripts=transcripts))
    await house.create()
    await house.send(write_script(Say("word")))
    await house.rest()
    assert not (tmp_path / "transcripts").exists()
    await house.close()


def test_a_server_keeps_it_in_its_data_folder(tmp_path: Path) -> None:
    write_hooks(tmp_path, {"PostToolUse": [group(command("true"))]})
    with ServerProcess(tmp_path, loop="shell") as server:
        ask(server, "/v1/sessions", {"session_id": "s"})
        send(server, "echo one")
        rest(server)
        (fact,) = entries(server, "hook_ran")
        path = Path(fact["input"]["transcript_path"])
        assert path.parent.name == "transcripts"
        assert '"stdout"' not in path.read_text()
        assert "one" in path.read_text()
