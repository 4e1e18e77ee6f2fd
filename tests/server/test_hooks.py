"""All hooks of one event together: who is asked, at once, once, and what their answers come to."""

from __future__ import annotations

import asyncio
import json
import time
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import AppendUncertainError, ConfigurationError
from perdure.fact import HookRan
from perdure.hook import (
    HookFunction,
    HookOutcome,
    Notification,
    PreCompact,
    PreToolUse,
    SessionEnd,
    SessionStart,
    Stop,
    UserPromptSubmit,
)
from perdure.server.hook.function import Function
from perdure.server.hook.hooks import MAX_AT_ONCE, MAX_GO_ONS, Hooks, go_on
from perdure.server.hook.matcher import Matcher, subjects_of
from perdure.server.hook.merge import merge
from tests.server.hooking import Hooked, call, command, group, hooked

PROMPT = UserPromptSubmit(session_id="s", prompt="hello")


@pytest.mark.parametrize(
    ("matcher", "meets", "misses"),
    [
        ("", ["Bash", "anything"], []),
        ("*", ["Bash", ""], []),
        ("  ", ["Bash"], []),
        ("Bash", ["Bash"], ["bash", "BashOutput", "XBash"]),
        ("Edit|Write", ["Edit", "Write"], ["MultiEdit", "Edit|Write"]),
        ("Edit, Write", ["Edit", "Write"], ["EditX"]),
        ("code-reviewer", ["code-reviewer"], ["senior-code-reviewer"]),
        ("mcp__memory", ["mcp__memory"], ["mcp__memory__create"]),
        ("mcp__memory__.*", ["mcp__memory__create"], ["mcp__other__create"]),
        ("Edit.*", ["Edit", "NotebookEdit", "Edits"], ["edit"]),
        ("^Edit$", ["Edit"], ["NotebookEdit"]),
        (".*", ["x", ""], []),
    ],
)
def test_a_matcher_is_a_name_a_list_or_a_pattern(
    matcher: str, meets: list[str], misses: list[str]
) -> None:
    read = Matcher(matcher)
    assert [name for name in meets if not read.matches([name])] == []
    assert [name for name in misses if read.matches([name])] == []
    assert read.matches(None)


def test_a_pattern_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"'\(' is no regular expression"):
        Matcher("(")


def test_what_a_matcher_is_held_against() -> None:
    assert subjects_of(call("run_command")) == ("run_command", "Bash")
    assert subjects_of(call("mine")) == ("mine",)
    assert subjects_of(SessionStart(session_id="s", source="fork")) == ("fork",)
    assert subjects_of(SessionEnd(session_id="s", reason="delete")) == ("delete",)
    assert subjects_of(PreCompact(session_id="s", trigger="auto")) == ("auto",)
    assert subjects_of(Notification(session_id="s", message="")) == ("permission_prompt",)
    assert subjects_of(Stop(session_id="s")) is subjects_of(PROMPT) is None


async def test_only_the_hooks_that_match_are_asked(tmp_path: Path) -> None:
    hooks = hooked(
        tmp_path,
        PreToolUse=[
            group(command("echo a"), matcher="Bash"),
            group(command("echo b"), matcher="Read|Write"),
            group(command("echo c"), matcher="run_.*"),
            group(command("echo d")),
        ],
        UserPromptSubmit=[group(command("echo e"), matcher="Bash")],
    )
    await hooks.fire(call("run_command"))
    assert sorted(fact.handler.split()[1] for fact in hooks.facts) == ["a", "c", "d"]
    hooks.facts.clear()
    await hooks.fire(PROMPT)
    assert len(hooks.facts) == 1


async def test_an_event_without_hooks_asks_nobody(tmp_path: Path) -> None:
    hooks = hooked(tmp_path, Stop=[group(command("exit 2"))])
    assert await hooks.fire(call()) == HookOutcome()
    assert hooks.facts == []
    assert hooks.hooks.has(Stop)
    assert not hooks.hooks.has(UserPromptSubmit)


async def test_a_tool_of_an_if_narrows_a_handler(tmp_path: Path) -> None:
    narrowed = command("echo hi", **{"if": "Bash(rm *)"})
    hooks = hooked(tmp_path, PreToolUse=[group(narrowed)], UserPromptSubmit=[group(narrowed)])
    for event in (call("read_file"), PROMPT):
        await hooks.fire(event)
    assert hooks.facts == []
    await hooks.fire(call("run_command"))
    assert len(hooks.facts) == 1


async def test_the_same_command_is_asked_once(tmp_path: Path) -> None:
    line = "echo x >> lines"
    hooks = hooked(
        tmp_path,
        PreToolUse=[
            group(command(line), command(line, timeout=9), matcher="Bash"),
            group(command(line), command(line + " # another")),
        ],
    )
    await hooks.fire(call())
    assert (tmp_path / "lines").read_text() == "x\nx\n"


async def test_all_are_asked_at_once_and_answer_in_the_order_of_the_file(tmp_path: Path) -> None:
    """Each waits until it sees all the others: one after the other they would never end."""
    count = 5
    wait = f'while [ "$(ls here | wc -l)" -lt {count} ]; do sleep 0.02; done'
    handlers = [
        command(f"touch here/{n}; {wait}; sleep 0.{count - n}; echo {n}", timeout=20)
        for n in range(count)
    ]
    (tmp_path / "here").mkdir()
    hooks = hooked(tmp_path, UserPromptSubmit=[group(*handlers)])
    outcome = await hooks.fire(PROMPT)
    assert outcome.context == tuple(str(n) for n in range(count))
    assert len(hooks.facts) == count


async def test_many_handlers_are_asked_some_at_a_time(tmp_path: Path) -> None:
    counting = "touch on/$$; ls on | wc -l >> seen; sleep 0.05; rm on/$$"
    handlers = [command(f"{counting} # {n}") for n in range(2 * MAX_AT_ONCE + 3)]
    (tmp_path / "on").mkdir()
    hooks = hooked(tmp_path, PreToolUse=[group(*handlers)])
    await hooks.fire(call())
    seen = [int(line) for line in (tmp_path / "seen").read_text().split()]
    assert len(seen) == len(handlers)
    assert max(seen) <= MAX_AT_ONCE


async def test_the_hooks_of_many_sessions_run_some_at_a_time(tmp_path: Path) -> None:
    running, most = 0, 0

    async def count(event: Stop) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1

    hooks = Hooked(
        Hooks([Function("mine", HookFunction(Stop, count))], folder=tmp_path, max_running=3)
    )
    await asyncio.gather(*(hooks.fire(Stop(session_id=f"s{n}")) for n in range(20)))
    assert (most, len(hooks.facts)) == (3, 20)


async def test_a_hook_that_hangs_holds_up_no_other_session(tmp_path: Path) -> None:
    hang = command("sleep 60", timeout=1.5)
    hooks = hooked(tmp_path, PreToolUse=[group(hang, matcher="slow"), group(command("exit 0"))])
    slow = asyncio.create_task(hooks.fire(call("slow")))
    began = time.monotonic()
    await asyncio.gather(*(hooks.fire(call("quick")) for _ in range(5)))
    assert not slow.done(), "they waited for it"
    assert time.monotonic() - began < 1.5
    await slow


async def test_facts_are_stored_one_at_a_time_and_as_they_come(tmp_path: Path) -> None:
    hooks = hooked(tmp_path, PreToolUse=[group(command("sleep 0.4; echo slow"), command("exit 1"))])
    noted: list[str] = []
    is_noting = False

    async def note(fact: HookRan) -> None:
        nonlocal is_noting
        assert not is_noting
        is_noting = True
        await asyncio.sleep(0.01)
        is_noting = False
        noted.append(fact.handler.split(" (")[0])

    await hooks.hooks.fire(call(), note=note)
    assert noted == ["exit 1", "sleep 0.4; echo slow"]


async def test_a_journal_that_fails_ends_the_fire_and_what_runs(tmp_path: Path) -> None:
    hooks = hooked(tmp_path, PreToolUse=[group(command("exit 0"), command("sleep 60"))])

    async def note(fact: HookRan) -> None:
        raise AppendUncertainError("s", "the disk is gone")

    began = time.monotonic()
    with pytest.raises(AppendUncertainError):
        await hooks.hooks.fire(call(), note=note)
    assert time.monotonic() - began < 10


ALLOW = HookOutcome(permission="allow", reason="fine", changed_input={"a": 1})
ASK = HookOutcome(permission="ask", reason="sure?", context=("c",))
DENY = HookOutcome(permission="deny", reason="no", notices=("n",))


def test_a_refusal_counts_more_than_a_question_and_that_more_than_a_permission() -> None:
    for order in permutations([ALLOW, ASK, DENY, HookOutcome()]):
        merged = merge(order)
        assert (merged.permission, merged.reason) == ("deny", "no")
        assert merged.changed_input is None
        assert (merged.context, merged.notices) == (("c",), ("n",))
    for order in permutations([ALLOW, ASK]):
        merged = merge(order)
        assert (merged.permission, merged.reason, merged.changed_input) == (
            "ask",
            "sure?",
            {"a": 1},
        )
    assert merge([HookOutcome(), ALLOW]).permission == "allow"


def test_the_reasons_of_all_that_decided_are_kept() -> None:
    merged = merge([DENY, HookOutcome(permission="deny", reason="never"), DENY])
    assert merged.reason == "no\nnever"
    refused = merge([HookOutcome(refused="a"), HookOutcome(), HookOutcome(refused="b")])
    assert refused.refused == "a\nb"


def test_the_later_of_two_changed_inputs_counts() -> None:
    changes = [HookOutcome(changed_input={"n": n}) for n in (1, 2)]
    assert merge(changes).changed_input == {"n": 2}


def test_to_end_a_turn_counts_more_than_to_go_on() -> None:
    merged = merge([HookOutcome(goes_on="more"), HookOutcome(ends="enough")])
    assert (merged.goes_on, merged.ends) == (None, "enough")


texts = st.none() | st.text(max_size=3)
outcomes = st.builds(
    HookOutcome,
    refused=texts,
    permission=st.sampled_from([None, "allow", "ask", "deny"]),
    reason=texts,
    changed_input=st.none() | st.dictionaries(st.text(max_size=1), st.integers(), max_size=1),
    context=st.lists(st.text(max_size=2), max_size=2).map(tuple),
    goes_on=texts,
    ends=texts,
)


@given(st.lists(outcomes, max_size=5))
def test_no_refusal_is_lost_in_merging_and_none_is_made(given: list[HookOutcome]) -> None:
    merged = merge(given)
    assert (merged.permission == "deny") == any(each.permission == "deny" for each in given)
    assert (merged.refused is None) == all(each.refused is None for each in given)
    assert (merged.ends is None) == all(each.ends is None for each in given)
    assert len(merged.context) == sum(len(each.context) for each in given)


def test_a_stop_hook_that_always_asks_to_go_on_is_capped_and_the_log_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    always = HookOutcome(goes_on="the tests fail")
    went_on = 0
    while go_on(always, so_far=went_on, session_id="s") is not None:
        assert not caplog.records
        went_on += 1
    assert went_on == MAX_GO_ONS == 8
    assert "session 's'" in caplog.text
    assert "the tests fail" in caplog.text
    assert go_on(HookOutcome(), so_far=8, session_id="s") is None
    assert len(caplog.records) == 1


async def test_input_that_is_nested_as_deep_as_a_journal_takes_is_told_and_kept(
    tmp_path: Path,
) -> None:
    deep: Any = {}
    for _ in range(190):
        deep = {"a": deep}
    hooks = hooked(tmp_path, PreToolUse=[group(command("cat > told"))])
    await hooks.fire(call(deep=deep))
    assert json.loads((tmp_path / "told").read_text())["tool_input"]["deep"] == deep
    for _ in range(20):
        deep = {"a": deep}
    hooks.facts.clear()
    await hooks.fire(call(deep=deep))
    assert "could not be told" in hooks.failure
    assert "not kept" in str(hooks.fact.input)


async def test_a_hook_that_ran_is_a_fact_also_where_its_turn_ends_as_that_is_stored() -> None:
    async def says_nothing(event: PreToolUse) -> None:
        return None

    hook = HookFunction(PreToolUse, says_nothing)
    hooks = Hooks([Function("p", hook) for _ in range(3)], folder=Path())
    facts: list[HookRan] = []

    async def note(fact: HookRan) -> None:
        await asyncio.sleep(0.1)
        facts.append(fact)

    event = PreToolUse(session_id="s", tool_name="t", tool_input={}, call_id="c")
    firing = asyncio.create_task(hooks.fire(event, note=note))
    await asyncio.sleep(0.05)
    firing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await firing
    assert [fact.output for fact in facts] == [None] * 3
