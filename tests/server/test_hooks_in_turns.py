from __future__ import annotations

import json
from pathlib import Path

import pytest

from perdure.entry import Message
from perdure.errors import HookRefusedError
from perdure.fact import HookRan
from perdure.plugin import Plugins
from perdure.server.hook.hooks import MAX_GO_ONS
from perdure.server.hook.setup import load_hooks
from perdure.server.journal import JournalStore
from perdure.server.surroundings import ServerSurroundings
from perdure.testing import Call, Listen, Say, write_script
from perdure.tree import Tree
from perdure.view import model_view
from tests.server.house import ID, House
from tests.unit.checks import check_model_view


class Installation:
    """A workspace with a hooks.json, and what stands around the turns there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._hooks: dict[str, list[object]] = {}

    def on(self, event: str, command: str, matcher: str = "") -> None:
        entry = {"matcher": matcher, "hooks": [{"type": "command", "command": command}]}
        self._hooks.setdefault(event, []).append(entry)

    def around(self, *approve: str) -> ServerSurroundings:
        path = self.folder / "hooks.json"
        path.write_text(json.dumps({"hooks": self._hooks}))
        hooks = load_hooks([path], Plugins(), folder=self.folder)
        return ServerSurroundings(hooks, approve=approve)

    def said(self, name: str) -> list[str]:
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def installed(tmp_path: Path) -> Installation:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return Installation(folder)


async def opened(store: JournalStore, around: ServerSurroundings) -> House:
    house = House(store, surroundings=around)
    await house.create()
    return house


async def view(house: House) -> list[Message]:
    tree = Tree(await house.log())
    found = model_view(tree.path(tree.leaf_id))
    check_model_view(found)
    return found


async def ran(house: House) -> list[HookRan]:
    return [each.view for each in await house.log() if isinstance(each.view, HookRan)]


async def test_starts_resumes_and_ends_run_as_often_as_promised(
    store: JournalStore, installed: Installation
) -> None:
    program = "import json,sys; e = json.load(sys.stdin); print(e.get('source') or e['reason'])"
    note = f'python3 -c "{program}" >> log'
    installed.on("SessionStart", note)
    installed.on("SessionEnd", note)
    house = await opened(store, installed.around())
    await house.registry.look(ID)
    assert installed.said("log") == []
    for text in ("one", "two"):
        await house.send(text)
        await house.rest()
    assert installed.said("log") == ["startup"]
    await house.registry.close()
    house = house.restart()
    for text in ("three", "four"):
        await house.send(text)
        await house.rest()
    assert installed.said("log") == ["startup", "shutdown", "resume"]
    await house.close()
    facts = await ran(house)
    assert [(fact.event, fact.source, fact.exit) for fact in facts] == [
        ("SessionStart", "startup", 0),
        ("SessionEnd", "shutdown", 0),
        ("SessionStart", "resume", 0),
        ("SessionEnd", "shutdown", 0),
    ]


async def test_a_prompt_is_refused_with_the_hooks_word_and_leaves_the_conversation(
    store: JournalStore, installed: Installation
) -> None:
    installed.on("UserPromptSubmit", "grep -q secret && { echo 'no secrets' >&2; exit 2; } || true")
    house = await opened(store, installed.around())
    await house.send("a secret")
    look = await house.rest()
    assert (look.status, look.cause) == ("failed", "no secrets")
    await house.send("fine")
    await house.rest()
    assert [m.text for m in await view(house)] == ["fine", "fine"]
    await house.close()


async def test_what_hooks_add_is_read_by_the_model_before_its_next_request(
    store: JournalStore, installed: Installation
) -> None:
    installed.on("UserPromptSubmit", "echo it rains")
    added = {"hookSpecificOutput": {"hookEventName": "PostToolUse", "additionalContext": "noted"}}
    installed.on("PostToolUse", f"echo '{json.dumps(added)}'", "look")
    house = await opened(store, installed.around())
    await house.send(write_script(Say("x", calls=[Call("look")]), Listen(), Say("end")))
    await house.rest()
    found = [(m.role, m.meta) for m in await view(house)]
    assert found[:2] == [("user", False), ("user", True)]
    texts = [m.text for m in await view(house)]
    assert texts[1] == "it rains"
    assert texts[4:] == ["noted", "noted", "end"]
    await house.close()


async def test_a_tool_is_denied_asked_for_or_given_other_input(
    store: JournalStore, installed: Installation
) -> None:
    installed.on("PreToolUse", "echo 'not here' >&2; exit 2", "denied")
    asks = {
        "hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": "ask",
            "permissionDecisionReason": "it is dear",
            "updatedInput": {"sum": 1},
        }
    }
    installed.on("PreToolUse", f"echo '{json.dumps(asks)}'", "dear")
    house = await opened(store, installed.around())
    calls = [Call("denied", call_id="d"), Call("dear", {"sum": 9}, result="paid", call_id="p")]
    await house.send(write_script(Say("x", calls=calls), Say("end")))
    look = await house.until(lambda look: look.status == "waiting")
    (asked,) = look.approvals
    assert (asked.call_id, asked.arguments, asked.reason) == ("p", {"sum": 1}, "it is dear")
    await house.registry.answer(ID, "p", approve=True)
    await house.rest()
    results = {r.call_id: r for m in await view(house) for r in m.tool_results}
    assert "not here" in results["d"].text
    assert results["p"].text == "paid"
    await house.close()


async def test_a_pattern_asks_a_person_and_a_hooks_allow_does_not(
    store: JournalStore, installed: Installation
) -> None:
    allows = {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "allow"}}
    installed.on("PreToolUse", f"echo '{json.dumps(allows)}'", "run_tests")
    installed.on("Notification", "cat >> told")
    house = await opened(store, installed.around("run_*"))
    await house.send(write_script(Say("x", calls=[Call("run_tests", result="green")])))
    await house.rest()
    assert [reason for _, reason in await house.ends()] == ["completed"]
    await house.send(write_script(Say("x", calls=[Call("run_off", call_id="r")])))
    await house.until(lambda look: look.status == "waiting")
    await house.until(lambda _: bool(installed.said("told")))
    assert "run_off" in json.loads(installed.said("told")[0])["message"]
    await house.registry.stop(ID)
    await house.close()


async def test_a_stop_hook_that_always_asks_to_go_on_is_capped(
    store: JournalStore, installed: Installation
) -> None:
    installed.on("Stop", "echo 'more' >&2; exit 2")
    house = await opened(store, installed.around())
    sent = await house.send("hello")
    await house.rest()
    assert await house.ends() == [(sent.turn_id, "completed")]
    facts = await ran(house)
    assert len(facts) == MAX_GO_ONS + 1
    active = [fact.input["stop_hook_active"] for fact in facts if isinstance(fact.input, dict)]
    assert active == [False] + [True] * MAX_GO_ONS
    await house.close()


async def test_a_compaction_can_be_refused_and_starts_the_session_again(
    store: JournalStore, installed: Installation
) -> None:
    installed.on("PreCompact", "test -e allowed || { echo 'not now' >&2; exit 2; }")
    installed.on("SessionStart", "cat > /dev/null; echo started", "compact")
    house = await opened(store, installed.around())
    for text in ("one", "two"):
        await house.send(text)
        await house.rest()
    before = len(await house.log())
    with pytest.raises(HookRefusedError, match="not now"):
        await house.registry.compact(ID, keep_turns=1)
    assert "compaction" not in (await house.types())[before:]
    (installed.folder / "allowed").touch()
    await house.registry.compact(ID, keep_turns=1)
    await house.send("three")
    await house.rest()
    assert "started" in [m.text for m in await view(house)]
    await house.close()


async def test_a_hook_that_hangs_is_ended_by_a_stop_of_its_turn(
    store: JournalStore, installed: Installation
) -> None:
    installed.on("UserPromptSubmit", "sleep 600")
    house = await opened(store, installed.around())
    sent = await house.send("hello")
    await house.until(lambda look: look.status == "running")
    stopped = await house.registry.stop(ID, sent.turn_id)
    assert stopped.stopped
    assert (await house.look()).status == "idle"
    await house.close()


async def test_a_hook_that_sends_into_its_own_session_does_not_wedge_it(
    store: JournalStore, installed: Installation
) -> None:
    installed.on("UserPromptSubmit", "touch ready; while ! test -e go; do sleep 0.02; done")
    house = await opened(store, installed.around())
    await house.send("one")
    await house.until(lambda _: (installed.folder / "ready").exists())
    await house.send("two")
    (installed.folder / "go").touch()
    await house.until(lambda look: look.turn is None and not look.queued)
    assert (await house.texts())[-2:] == ["two", "two"]
    await house.close()
