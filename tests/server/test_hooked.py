"""Hooks around the turns of real sessions: as often as promised, and never in the way for ever."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from perdure.entry import Message, Text, ToolCall, ToolResult
from perdure.errors import HookRefusedError, PerdureError
from perdure.fact import HookRan, TurnEnded
from perdure.hook import SessionStart, Stop, UserPromptSubmit
from perdure.loop import CallWaits, LoopContext, LoopEvent, MessageEnded, ToolEnded, Waits
from perdure.loops.shell import Shell
from perdure.plugin import Plugin, Plugins
from perdure.server.hook.hooks import MAX_GO_ONS
from perdure.server.hook.setup import load_hooks
from perdure.server.journal import JournalStore
from perdure.server.plugin_tool import PluginTools
from perdure.server.session.look import SessionLook
from perdure.server.surroundings import ServerSurroundings
from perdure.stores.memory import MemoryStore
from perdure.testing import Call, Listen, Say, write_script
from perdure.tree import Tree
from perdure.view import model_view
from tests.server.hooking import NO_PLUGINS, command, group, is_alive, write_hooks
from tests.server.house import ID, House, Loops
from tests.unit.checks import check_model_view

Groups = Sequence[dict[str, Any]]


def around(
    folder: Path, tools: PluginTools | None, events: Mapping[str, Groups]
) -> ServerSurroundings:
    """What a server has around its turns, with these hooks."""
    hooks = load_hooks([write_hooks(folder, events)], NO_PLUGINS, folder=folder)
    return ServerSurroundings(hooks, plugin_tools=tools)


@asynccontextmanager
async def housed(
    store: JournalStore,
    folder: Path,
    tools: Any = None,
    loops: Any = None,
    **events: Any,
) -> AsyncIterator[House]:
    house = House(store, loops, surroundings=around(folder, tools, events))
    await house.create()
    try:
        yield house
    finally:
        await house.close()


async def ran(house: House) -> list[HookRan]:
    """The facts of the hooks that ran, in order."""
    return [each.view for each in await house.log() if isinstance(each.view, HookRan)]


async def events(house: House) -> list[tuple[str, str | None]]:
    return [(fact.event, fact.source) for fact in await ran(house)]


async def view(house: House) -> list[Message]:
    """What the model sees."""
    tree = Tree(await house.log())
    found = model_view(tree.path(tree.leaf_id))
    check_model_view(found)
    return found


async def seen(house: House) -> list[str]:
    """The texts that the model sees, those of results included."""
    return [
        each.text or "".join(result.text for result in each.tool_results)
        for each in await view(house)
        if each.text or each.tool_results
    ]


def logs(event: str) -> Groups:
    """A hook that writes a line for each run."""
    return [group(command(f"echo {event} >> lines"))]


def lines(folder: Path) -> list[str]:
    file = folder / "lines"
    return file.read_text().split() if file.exists() else []


async def test_every_event_comes_where_it_belongs(store: JournalStore, tmp_path: Path) -> None:
    every = ("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop", "SessionEnd")
    async with housed(store, tmp_path, **{name: logs(name) for name in every}) as house:
        await house.send(write_script(Say("a", calls=[Call("x"), Call("y")]), Say("b")))
        await house.rest()
        tools = ["PreToolUse", "PostToolUse"]
        assert lines(tmp_path)[:2] == ["SessionStart", "UserPromptSubmit"]
        assert sorted(lines(tmp_path)[2:-1]) == sorted([*tools, *tools])
        assert lines(tmp_path)[-1] == "Stop"
        facts = await events(house)
        assert (facts[0], facts[1][0], facts[-1][0]) == (
            ("SessionStart", "startup"),
            "UserPromptSubmit",
            "Stop",
        )
        assert sorted(name for name, _ in facts[2:-1]) == sorted(lines(tmp_path)[2:-1])
        await house.registry.close()
        assert (await events(house))[-1] == ("SessionEnd", "shutdown")


async def test_startup_once_resume_once_in_a_waking_and_none_for_looking(
    store: JournalStore, tmp_path: Path
) -> None:
    starts = {"SessionStart": [group(command("cat >> lines; echo >> lines"))]}
    async with housed(store, tmp_path, **starts) as house:
        for _ in range(2):
            await house.send("[]")
            await house.rest()
        for _ in range(2):
            house = house.restart()
            await house.registry.look(ID)
            await house.registry.transcript(ID, limit=9)
            await asyncio.gather(*(house.send("[]") for _ in range(3)))
            await house.until(lambda look: look.turn is None and not look.queued)
        sources = [source for _, source in await events(house)]
        assert sources == ["startup", "resume", "resume"]
        told = [
            json.loads(line)["source"]
            for line in (tmp_path / "lines").read_text().splitlines()
            if line
        ]
        assert told == sources


async def test_context_is_for_the_model_and_not_in_the_transcript(
    store: JournalStore, tmp_path: Path
) -> None:
    answer = '{"hookSpecificOutput": {"additionalContext": "%s"}}'
    async with housed(
        store,
        tmp_path,
        SessionStart=[group(command("echo at the start"))],
        UserPromptSubmit=[group(command("echo with the prompt"))],
        PreToolUse=[group(command("echo '" + answer % "before" + "'"))],
        PostToolUse=[group(command("echo '" + answer % "after" + "'"))],
    ) as house:
        call = Call("x", output=["out"])
        await house.send(write_script(Say("a", calls=[call]), Listen(), Say("b")))
        await house.rest()
        _, *said, echo, last = await seen(house)
        assert said == ["at the start", "with the prompt", "a", "out", "before", "after"]
        assert ("before" in echo, last) == (True, "b")
        metas = [message.text for message in await view(house) if message.meta]
        assert metas == ["at the start", "with the prompt", "before", "after"]
        assert [text for text in await house.texts() if text in metas] == []


async def test_a_prompt_that_is_refused_ends_its_turn(store: JournalStore, tmp_path: Path) -> None:
    guard = command("if grep -q secret; then echo no secrets >&2; exit 2; fi")
    async with housed(store, tmp_path, UserPromptSubmit=[group(guard)]) as house:
        await house.send("a secret")
        await house.rest()
        ((_, reason),) = await house.ends()
        assert reason == "refused"
        (end,) = [e.view for e in await house.log() if isinstance(e.view, TurnEnded)]
        assert end.cause == "no secrets"
        assert await view(house) == []
        await house.send(write_script(Say("fine")))
        await house.rest()
        assert (await seen(house))[1:] == ["fine"]


async def test_a_start_hook_can_end_the_turn(store: JournalStore, tmp_path: Path) -> None:
    stop = command('echo \'{"continue": false, "stopReason": "closed today"}\'')
    async with housed(store, tmp_path, SessionStart=[group(stop)]) as house:
        await house.send(write_script(Say("fine")))
        await house.rest()
        (end,) = [e.view for e in await house.log() if isinstance(e.view, TurnEnded)]
        assert (end.reason, end.cause) == ("stopped", "closed today")


@pytest.mark.parametrize("event", ["PreToolUse", "PostToolUse"])
async def test_a_hook_at_a_tool_can_end_the_turn(
    store: JournalStore, tmp_path: Path, event: str
) -> None:
    stop = command('echo \'{"continue": false, "stopReason": "enough"}\'')
    async with housed(store, tmp_path, **{event: [group(stop)]}) as house:
        await house.send(write_script(Say("a", calls=[Call("x", output=["out"])]), Say("b")))
        await house.rest()
        (end,) = [e.view for e in await house.log() if isinstance(e.view, TurnEnded)]
        assert (end.reason, end.cause) == ("stopped", "enough")
        assert "b" not in await seen(house)
        await view(house)


async def test_a_call_that_is_refused_does_not_run_and_the_model_reads_why(
    store: JournalStore, tmp_path: Path
) -> None:
    async with housed(
        store,
        tmp_path,
        PreToolUse=[group(command("echo not here >&2; exit 2"), matcher="bad")],
        PostToolUse=logs("after"),
    ) as house:
        calls = [Call("bad", output=["never"]), Call("good", output=["ran"])]
        await house.send(write_script(Say("a", calls=calls), Say("b")))
        await house.rest()
        results = [r for m in await view(house) for r in m.tool_results]
        assert [(r.name, r.is_error) for r in results] == [("bad", True), ("good", False)]
        assert "not here" in results[0].text
        assert lines(tmp_path) == ["after"]


async def test_a_call_that_a_hook_asks_about_waits_and_people_are_told(
    store: JournalStore, tmp_path: Path
) -> None:
    ask = {"permissionDecision": "ask", "permissionDecisionReason": "is it safe?"}
    answer = json.dumps({"hookSpecificOutput": {"hookEventName": "PreToolUse", **ask}})
    async with housed(
        store,
        tmp_path,
        PreToolUse=[group(command(f"echo '{answer}'"))],
        Notification=[group(command("sleep 0.5; cat > told"), matcher="permission_prompt")],
        PostToolUse=logs("after"),
    ) as house:
        await house.send(write_script(Say("a", calls=[Call("x", output=["ran"])]), Say("b")))
        look = await house.until(lambda look: look.status == "waiting")
        (approval,) = look.approvals
        assert approval.reason == "is it safe?"
        await house.registry.answer(ID, approval.call_id, approve=True)
        await house.rest()
        assert (await seen(house))[1:] == ["a", "ran", "b"]
        while len(await events(house)) < 3:  # noqa: ASYNC110  # it may be told after the turn
            await asyncio.sleep(0.01)
        names = [name for name, _ in await events(house)]
        assert (names[0], sorted(names[1:])) == ("PreToolUse", ["Notification", "PostToolUse"])


async def test_a_changed_input_is_what_runs(store: JournalStore, tmp_path: Path) -> None:
    plugin = Plugin()

    @plugin.tool
    def shout(word: str) -> str:
        """Shouts."""
        return word.upper()

    plugins = Plugins()
    plugins.__dict__["_found"] = ({"mine": plugin}, {})
    tools = await asyncio.to_thread(PluginTools, plugins)
    change = '{"hookSpecificOutput": {"updatedInput": {"word": "changed"}}}'
    async with housed(
        store,
        tmp_path,
        tools,
        PreToolUse=[group(command(f"echo '{change}'"))],
        PostToolUse=[group(command("cat > told"))],
    ) as house:
        call = Call("shout", {"word": "as written"}, runs=True)
        await house.send(write_script(Say("a", calls=[call]), Say("b")))
        await house.rest()
        assert (await seen(house))[1:] == ["a", "CHANGED", "b"]
        told = json.loads((tmp_path / "told").read_text())
        assert told["tool_input"] == {"word": "changed"}


@pytest.mark.parametrize("approve", [True, False])
async def test_after_an_approval_hooks_hear_of_what_ran(
    store: JournalStore, tmp_path: Path, approve: bool
) -> None:
    ask = '{"hookSpecificOutput": {"permissionDecision": "ask"}}'
    async with housed(
        store,
        tmp_path,
        PreToolUse=[group(command(f"echo '{ask}'"))],
        PostToolUse=[group(command("cat > told"))],
    ) as house:
        await house.send(write_script(Say("a", calls=[Call("x", {"n": 1})]), Say("b")))
        look = await house.until(lambda look: look.status == "waiting")
        (waiting,) = look.approvals
        await house.registry.answer(
            ID, waiting.call_id, approve=approve, arguments={"n": 2} if approve else None
        )
        await house.rest()
        assert (tmp_path / "told").exists() == approve
        if approve:
            assert json.loads((tmp_path / "told").read_text())["tool_input"] == {"n": 2}


async def test_a_turn_goes_on_for_a_stop_hook_and_says_so(
    store: JournalStore, tmp_path: Path
) -> None:
    once = "grep -q '\"stop_hook_active\":true' || { echo more is to do >&2; exit 2; }"
    async with housed(store, tmp_path, Stop=[group(command(once))]) as house:
        await house.send(write_script(Say("a")))
        await house.rest()
        assert (await seen(house))[1:] == ["a", "more is to do", "a"]
        assert [reason for _, reason in await house.ends()] == ["completed"]


async def test_a_stop_hook_that_always_asks_to_go_on_is_capped(
    store: JournalStore, tmp_path: Path
) -> None:
    async with housed(store, tmp_path, Stop=[group(command("echo more >&2; exit 2"))]) as house:
        await house.send(write_script(Say("a")))
        await house.rest()
        assert (await seen(house)).count("more") == MAX_GO_ONS
        assert (await seen(house)).count("a") == MAX_GO_ONS + 1
        assert [reason for _, reason in await house.ends()] == ["completed"]


async def test_a_compaction_that_is_refused_is_not_done(
    store: JournalStore, tmp_path: Path
) -> None:
    async with housed(
        store, tmp_path, PreCompact=[group(command("echo later >&2; exit 2"), matcher="manual")]
    ) as house:
        for _ in range(3):
            await house.send(write_script(Say("a")))
            await house.rest()
        with pytest.raises(HookRefusedError, match="later"):
            await house.registry.compact(ID, keep_turns=1)
        assert "compaction" not in await house.types()
        assert await events(house) == [("PreCompact", "manual")]


FAILING = [
    "exit 7",
    "kill -9 $$",
    "no-such-program",
    "head -c 9000000 /dev/zero",
    "sleep 60",
    "(sleep 60 &); (setsid true); exit 1",
]


@pytest.mark.parametrize("text", FAILING)
async def test_a_hook_that_fails_at_every_event_wedges_nothing(tmp_path: Path, text: str) -> None:
    every = ("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop", "SessionEnd")
    bad = [group(command(text, timeout=0.3))]
    async with (
        MemoryStore() as store,
        housed(store, tmp_path, **dict.fromkeys(every, bad)) as house,
    ):
        await house.send(write_script(Say("a", calls=[Call("x", output=["out"])]), Say("b")))
        await house.rest()
        assert (await seen(house))[1:] == ["a", "out", "b"]
        assert [reason for _, reason in await house.ends()] == ["completed"]
        await house.registry.close()
        assert [name for name, _ in await events(house)] == list(every)
        assert all("failure" in str(fact.output) for fact in await ran(house))


async def test_a_turn_that_is_stopped_in_a_hook_ends_and_the_hook_is_a_fact(
    store: JournalStore, tmp_path: Path
) -> None:
    async with housed(
        store, tmp_path, PreToolUse=[group(command("touch begun; sleep 60"))]
    ) as house:
        await house.send(write_script(Say("a", calls=[Call("x", output=["out"])]), Say("b")))
        while not (tmp_path / "begun").exists():  # noqa: ASYNC110  # another process makes it
            await asyncio.sleep(0.01)
        await house.registry.stop(ID)
        await house.rest()
        assert [reason for _, reason in await house.ends()] == ["stopped"]
        (fact,) = await ran(house)
        assert "cut off" in str(fact.output)
        await view(house)


async def test_a_hook_that_calls_back_into_its_session_is_answered(
    store: JournalStore, tmp_path: Path
) -> None:
    """A plugin's hook that sends and looks in the middle of the turn it stands in."""
    plugin = Plugin()
    sent: list[Any] = []
    house: House

    async def call_back(event: Any) -> None:
        if len(sent) < 3:
            sent.append(await house.registry.look(ID))
            sent.append(await house.send(write_script(Say("from a hook"))))
            with pytest.raises(PerdureError):
                await house.registry.compact(ID, keep_turns=1)
            sent.append("done")

    for event in (SessionStart, UserPromptSubmit, Stop):
        plugin.hook(event, timeout_s=5)(call_back)
    plugins = Plugins()
    plugins.__dict__["_found"] = ({"mine": plugin}, {})
    house = House(store, surroundings=ServerSurroundings(load_hooks([], plugins, folder=tmp_path)))
    await house.create()
    try:
        await house.send(write_script(Say("a")))
        await house.until(lambda look: look.turn is None and not look.queued)
        assert sent[2] == "done"
        assert "from a hook" in await house.texts()
        assert {reason for _, reason in await house.ends()} == {"completed"}
    finally:
        await house.close()


async def test_a_loop_that_runs_commands_does_not_run_one_again_for_a_hook(
    store: JournalStore, tmp_path: Path
) -> None:
    surroundings = around(tmp_path, None, {"Stop": [group(command("echo more >&2; exit 2"))]})
    house = House(store, Loops(Shell(tmp_path)), surroundings=surroundings)
    await house.create()
    await house.send("echo once >> ran")
    await house.rest()
    assert (tmp_path / "ran").read_text() == "once\n"
    assert len(await ran(house)) == MAX_GO_ONS + 1
    await house.close()


async def pays_each_time(context: LoopContext) -> AsyncGenerator[LoopEvent, None]:
    """A loop each of whose runs makes a call that may have to wait."""
    for call_id in context.answers:
        yield ToolEnded(ToolResult(call_id, (Text("paid"),), name="pay"))
        return
    call = ToolCall(f"pay-{len(await context.messages())}", "pay", {})
    yield MessageEnded((call,))
    assert isinstance(await context.permit(call), Waits)
    yield CallWaits(call.call_id)


async def test_a_stop_hook_is_told_that_the_turn_goes_on_also_after_an_approval(
    store: JournalStore, tmp_path: Path
) -> None:
    ask = {"hookEventName": "PreToolUse", "permissionDecision": "ask"}
    asks = command(f"echo '{json.dumps({'hookSpecificOutput': ask})}'")
    stops = command("cat >> stops; echo more >&2; exit 2")
    loops = Loops(lambda: pays_each_time)
    async with housed(
        store, tmp_path, loops=loops, PreToolUse=[group(asks)], Stop=[group(stops)]
    ) as house:
        sent = await house.send("pay")
        asked = {0}

        def is_next(look: SessionLook) -> bool:
            return look.turn is None or any(each.seq > max(asked) for each in look.approvals)

        while (look := await house.until(is_next)).turn is not None:
            asked.add(look.approvals[0].seq)
            assert len(asked) <= MAX_GO_ONS + 2
            await house.registry.answer(ID, look.approvals[0].call_id, approve=True)
        assert await house.ends() == [(sent.turn_id, "completed")]
        written = (tmp_path / "stops").read_text().splitlines()
        told = [json.loads(line)["stop_hook_active"] for line in written]
        assert told == [False] + [True] * MAX_GO_ONS


async def test_nobody_waits_for_a_hook_that_is_async_and_it_is_a_fact_all_the_same(
    store: JournalStore, tmp_path: Path
) -> None:
    waits = "echo $$ > pid; until test -e go; do sleep 0.02; done; echo no >&2; exit 2"
    hook = [group(command(waits, **{"async": True}))]
    async with housed(store, tmp_path, PreToolUse=hook, UserPromptSubmit=hook) as house:
        await house.send(write_script(Say("a", calls=[Call("x", output=["out"])]), Say("b")))
        await house.rest()
        assert (await seen(house))[-2:] == ["out", "b"]
        assert await ran(house) == []
        await house.send(write_script(Say("c")))
        assert (await house.rest()).status == "idle"
        (tmp_path / "go").touch()
        async with asyncio.timeout(20):
            while len(facts := await ran(house)) < 3:  # noqa: ASYNC110 - processes make it true
                await asyncio.sleep(0.02)
        told = sorted(fact.event for fact in facts)
        assert told == ["PreToolUse", "UserPromptSubmit", "UserPromptSubmit"]
        assert [fact.exit for fact in facts] == [2, 2, 2]


async def test_what_runs_beside_its_turn_ends_with_the_hooks(
    store: JournalStore, tmp_path: Path
) -> None:
    hook = command("echo $$ > pid; exec sleep 600", **{"async": True})
    hooks = load_hooks(
        [write_hooks(tmp_path, {"Stop": [group(hook)]})], NO_PLUGINS, folder=tmp_path
    )
    house = House(store, surroundings=ServerSurroundings(hooks))
    await house.create()
    await house.send(write_script(Say("a")))
    await house.rest()
    async with asyncio.timeout(20):
        pid = tmp_path / "pid"
        while not (pid.exists() and pid.read_text()):  # noqa: ASYNC110 - a process makes it
            await asyncio.sleep(0.02)
    await hooks.close()
    (fact,) = await ran(house)
    assert "cut off" in str(fact.output)
    assert not is_alive(int((tmp_path / "pid").read_text()))
    await house.close()
