"""Claude Code's stream of JSON: what ends up in the journal, and what goes back."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import perdure
from perdure.errors import ConfigurationError, LoopError
from perdure.fact import ApprovalAnswered
from perdure.loops import ClaudeStream, claude_session
from perdure.loops.configured import parse_loops
from perdure.stores.memory import MemoryStore
from tests.loops.test_acp_server import the_result, until_asked
from tests.server.house import ID, House, Loops

PROGRAM = Path(__file__).with_name("claude_program.py")


def claude(folder: Path) -> ClaudeStream:
    (folder / "sessions").mkdir(exist_ok=True)
    env = {"AGENT_SESSIONS": str(folder / "sessions")}
    return ClaudeStream(folder, command=[sys.executable, str(PROGRAM)], env=env, grace_s=0.3)


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    house = House(MemoryStore(), Loops(claude(tmp_path)))
    await house.create()
    yield house
    await house.close()


async def test_a_second_turn_is_in_its_own_session_and_a_branch_is_not(tmp_path: Path) -> None:
    async with await perdure.open("s", claude(tmp_path)) as agent:
        (first,) = await agent.run("one")
        (answer,) = await agent.run("told")
        assert answer.text == "one\ntold\n"
        agent.branch(first.id)
        (answer,) = await agent.run("told")
    assert "END OF TRANSCRIPT" in answer.text


async def test_a_session_that_it_lost_is_started_anew(tmp_path: Path) -> None:
    async with await perdure.open("s", claude(tmp_path)) as agent:
        await agent.run("one")
        for file in (tmp_path / "sessions").iterdir():
            file.unlink()
        (answer,) = await agent.run("told")
    assert "END OF TRANSCRIPT" in answer.text


async def test_a_person_may_change_what_a_tool_gets(house: House) -> None:
    await house.send("ask rm")
    await house.registry.answer(
        ID, await until_asked(house), approve=True, arguments={"command": "ls"}
    )
    await house.rest()
    result = await the_result(house)
    assert (result.text, result.is_error) == ("ls", False)
    assert result.provider == {"output": {"stdout": "ls"}}


async def test_a_refusal_reaches_it_with_its_reason(house: House) -> None:
    await house.send("ask rm")
    await house.registry.answer(ID, await until_asked(house), approve=False, reason="no, not that")
    await house.rest()
    assert (await the_result(house)).text == "refused: no, not that"
    assert (await house.texts())[-1] == "Done."


async def test_a_stop_interrupts_it(house: House) -> None:
    sent = await house.send("wait")
    await house.until_partial("Waiting.")
    await house.registry.stop(ID)
    await house.rest()
    assert await house.ends() == [(sent.turn_id, "stopped")]


async def test_a_bad_end_and_a_crash_fail_the_run(tmp_path: Path) -> None:
    async with await perdure.open("s", claude(tmp_path)) as agent:
        with pytest.raises(LoopError, match="did not end its turn: too much"):
            await agent.run("fail")
        with pytest.raises(LoopError, match=r"exit status 1.*no more"):
            await agent.run("crash")


async def test_lines_that_are_odd_cost_neither_the_turn_nor_their_text(tmp_path: Path) -> None:
    async with asyncio.timeout(30), await perdure.open("s", claude(tmp_path)) as agent:
        said = [message.text for message in await agent.run("odd")]
    assert said == ["half a character: \ufffd", "Done."]


def test_an_empty_command_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="is a list: its name, its arguments"):
        ClaudeStream(tmp_path, command=[])
    with pytest.raises(ConfigurationError, match=r"loops.c.*command"):
        parse_loops({"c": {"kind": "claude-stream", "command": []}}, "perdure.toml")


async def test_what_an_agent_that_it_started_asks_is_asked_while_it_is_waited_for(
    house: House,
) -> None:
    await house.send("delegate and wait")
    look = await house.until(lambda look: bool(look.approvals))
    (asked,) = look.approvals
    assert (asked.call_id, asked.name, asked.arguments) == ("sub1", "Bash", {"command": "ls"})
    assert asked.reason == "an agent that it started asks: A test"
    await house.registry.answer(ID, "sub1", approve=True)
    await house.rest()
    assert (await the_result(house)).text == "allow"
    assert (await house.texts())[-1] == "Done."


async def test_a_turn_goes_on_for_as_long_as_agents_work_in_the_background(house: House) -> None:
    sent = await house.send("delegate and go on")
    await house.registry.answer(ID, await until_asked(house), approve=False)
    await house.rest()
    assert (await house.texts())[-2:] == ["Delegated.", "It was deny."]
    assert await house.ends() == [(sent.turn_id, "completed")]


async def test_it_does_not_wait_for_ever_for_an_agent_that_says_no_more(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claude_session, "REST_S", 0.1)
    sent = await house.send("delegate and forget")
    await house.registry.answer(ID, await until_asked(house), approve=True)
    await house.rest()
    assert (await house.texts())[-1] == "Delegated."
    assert await house.ends() == [(sent.turn_id, "completed")]


async def test_an_answer_gives_back_what_no_utf_8_can_spell(house: House) -> None:
    await house.send("ask oddly")
    await house.registry.answer(ID, await until_asked(house), approve=True)
    await house.rest()
    assert (await house.texts())[-1] == "Done."
    assert "half" in (await the_result(house)).text


async def test_a_question_that_it_takes_back_is_not_asked_any_more(
    house: House, tmp_path: Path
) -> None:
    sent = await house.send("delegate and change its mind")
    await until_asked(house)
    (tmp_path / "sessions" / "go on").touch()
    await house.rest()
    assert await house.ends() == [(sent.turn_id, "completed")]
    assert (await the_result(house)).text == "another way"
    assert (await house.texts())[-1] == "Done."
    (answered,) = [e.view for e in await house.log() if isinstance(e.view, ApprovalAnswered)]
    assert (answered.approve, answered.reason) == (
        False,
        "withdrawn: nobody waits for the answer any more",
    )
    assert (await house.look()).approvals == ()
