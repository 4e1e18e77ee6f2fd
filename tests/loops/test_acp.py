"""A real agent over the Agent Client Protocol: what ends up in the journal, and what is left."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import perdure
from perdure import DurableAgent, Message
from perdure.entry import Text, ToolCall
from perdure.errors import ConfigurationError, LoopError
from perdure.events import MessageUpdate
from perdure.loops import Acp
from perdure.stores.memory import MemoryStore

AGENT = Path(__file__).with_name("acp_agent.py")


def acp(folder: Path, **options: object) -> Acp:
    """The agent, working in the folder; its sessions are in a folder beside it."""
    (folder / "sessions").mkdir(exist_ok=True)
    (folder / "work").mkdir(exist_ok=True)
    env = {"AGENT_SESSIONS": str(folder / "sessions"), **options.pop("env", {})}  # type: ignore[dict-item]
    command = [sys.executable, str(AGENT)]
    return Acp(command, folder / "work", env=env, grace_s=0.3, **options)  # type: ignore[arg-type]


async def opened(folder: Path, **options: object) -> DurableAgent:
    return await perdure.open("s", acp(folder, **options), store=MemoryStore())


def shape(messages: Sequence[Message]) -> list[object]:
    """Each message as what it says, calls and results by their names."""
    told: list[object] = []
    for message in messages:
        if message.tool_results:
            (result,) = message.tool_results
            told.append((result.call_id, result.text, result.is_error))
        elif message.tool_calls:
            told.append([message.text, *(call.call_id for call in message.tool_calls)])
        else:
            told.append(message.text)
    return told


async def test_text_comes_as_deltas_and_is_one_message(tmp_path: Path) -> None:
    async with await opened(tmp_path) as agent:
        deltas = [
            event.text
            async for event in agent.run("say one two")
            if isinstance(event, MessageUpdate)
        ]
        assert shape(agent.messages()) == ["say one two", "one two "]
    assert deltas == ["one ", "two "]


async def test_reasoning_and_a_new_message_of_the_agent_keep_their_bounds(tmp_path: Path) -> None:
    async with await opened(tmp_path) as agent:
        first, second = await agent.run("think hard")
    assert [part.text for part in first.parts if hasattr(part, "text")] == ["let me see", "hard"]
    assert second.text == "and more"


async def test_a_call_has_its_raw_input_and_output(tmp_path: Path) -> None:
    async with await opened(tmp_path) as agent:
        messages = await agent.run("write file")
    assert shape(messages) == [["I write it. ", "c1"], ("c1", "written", False), "Done."]
    assert (tmp_path / "work" / "file").read_text() == "hi"
    (call,) = messages[0].tool_calls
    assert call.name == "edit"
    assert call.arguments == {"path": "file", "content": "hi"}
    (result,) = messages[1].tool_results
    assert isinstance(result.provider, dict)
    assert result.provider["output"] == {"bytes": 2}


async def test_calls_that_overlap_are_stored_in_an_order_that_holds(tmp_path: Path) -> None:
    async with await opened(tmp_path) as agent:
        messages = await agent.run("parallel now")
    told = [part for part in shape(messages) if isinstance(part, tuple)]
    assert sorted(told) == [("a", "", False), ("b", "", False), ("late", "", True)]
    calls = [call.call_id for message in messages for call in message.tool_calls]
    assert calls == ["a", "b", "late"]
    assert "".join(message.text for message in messages) == "Meanwhile. Done."


async def test_arguments_that_are_still_written_are_waited_for(tmp_path: Path) -> None:
    async with await opened(tmp_path) as agent:
        messages = await agent.run("partial call")
    (call,) = messages[0].tool_calls
    assert call.arguments == {"path": "x", "content": "y"}


async def test_a_call_without_a_result_gets_one_that_says_so(tmp_path: Path) -> None:
    async with await opened(tmp_path) as agent:
        messages = await agent.run("open call")
    (result,) = messages[1].tool_results
    assert result.is_error
    assert "without a result" in result.text


async def test_a_commands_output_is_streamed(tmp_path: Path) -> None:
    async with await opened(tmp_path) as agent:
        deltas = [
            event.text
            async for event in agent.run("stream it")
            if isinstance(event, MessageUpdate) and event.call_id == "c"
        ]
        (result,) = agent.messages()[-1].tool_results
    assert deltas == ["one\n", "two\n"]
    assert result.text == "one\ntwo\n"


async def test_a_second_turn_is_in_the_agents_own_session(tmp_path: Path) -> None:
    async with await opened(tmp_path) as agent:
        await agent.run("say one")
        (answer,) = await agent.run("told all")
    assert json.loads(answer.text) == ["say one", "told all"]
    assert len(list((tmp_path / "sessions").iterdir())) == 1


async def test_after_a_branch_a_fresh_session_is_told_our_transcript(tmp_path: Path) -> None:
    async with await opened(tmp_path) as agent:
        (first,) = await agent.run("say first")
        await agent.run("say second")
        agent.branch(first.id)
        (answer,) = await agent.run("told all")
        briefing, prompt = json.loads(answer.text)
    assert "[user]\nsay first\n\n[assistant]\nfirst" in briefing
    assert "second" not in briefing
    assert prompt == "told all"
    assert len(list((tmp_path / "sessions").iterdir())) == 2


async def test_a_fork_and_an_edit_get_sessions_of_their_own(tmp_path: Path) -> None:
    async with await opened(tmp_path) as agent:
        (first,) = await agent.run("say first")
        async with await agent.fork("child") as child:
            (answer,) = await child.run("told all")
        assert "say first" in json.loads(answer.text)[0]
        agent.branch(None)
        (edited,) = await agent.run("told edited")
    assert json.loads(edited.text) == ["told edited"]
    assert first.text == "first "


async def test_a_compaction_shrinks_what_the_agent_is_told(tmp_path: Path) -> None:
    async with await opened(tmp_path) as agent:
        await agent.run("say first")
        await agent.run("say second")
        await agent.compact(keep_turns=1, summary="They greeted.")
        (answer,) = await agent.run("told all")
    briefing = json.loads(answer.text)[0]
    assert "They greeted." in briefing
    assert "say first" not in briefing


async def test_a_session_that_the_agent_lost_is_started_anew(tmp_path: Path) -> None:
    async with await opened(tmp_path) as agent:
        await agent.run("say one")
        for file in (tmp_path / "sessions").iterdir():
            file.unlink()
        (answer,) = await agent.run("told all")
    assert "say one" in json.loads(answer.text)[0]


async def test_what_others_said_meanwhile_is_told_too(tmp_path: Path) -> None:
    async with await opened(tmp_path) as agent:
        await agent.run("say one")
        await agent.append(perdure.text("a note", meta=True))
        (answer,) = await agent.run("told all")
    assert json.loads(answer.text) == ["say one", "a note", "told all"]


async def test_a_crash_fails_the_run_and_says_how(tmp_path: Path) -> None:
    async with await opened(tmp_path) as agent:
        with pytest.raises(LoopError, match=r"exit status 3.*boom: no more"):
            await agent.run("crash now")
        messages = agent.messages()
        assert shape(messages)[1] == ["I will fall. ", "c"]
        assert messages[2].tool_results[0].interrupted
        (answer,) = await agent.run("told all")
    first, cut_off, prompt = json.loads(answer.text)
    assert (first, prompt) == ("crash now", "told all")
    assert "Your turn before this was cut off" in cut_off
    assert "I will fall." in cut_off


async def test_a_stop_is_a_cancel_and_keeps_what_was_shown(tmp_path: Path) -> None:
    store = MemoryStore()
    async with await perdure.open("s", acp(tmp_path), store=store) as agent:
        async for event in agent.run("wait for it"):
            if event.type == "message_update":
                break
    assert (tmp_path / "work" / "cancelled").exists()
    async with await perdure.open("s", acp(tmp_path), store=store) as agent:
        assert agent.messages()[-1].text == "Waiting. "
        assert agent.messages()[-1].end == "stopped"
        (answer,) = await agent.run("told all")
    first, cut_off, prompt = json.loads(answer.text)
    assert (first, prompt) == ("wait for it", "told all")
    assert "Waiting." in cut_off


async def test_an_agent_that_does_not_stop_is_ended_with_all_it_started(tmp_path: Path) -> None:
    async with await opened(tmp_path) as agent:
        async for event in agent.run("hang up"):
            if event.type == "message_update":
                break
    for pid in (tmp_path / "work" / "pids").read_text().split():
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("max_tokens", "the most tokens"),
        ("max_turn_requests", "the most requests"),
        ("refusal", "refused to go on"),
        ("cancelled", "not by this server"),
    ],
)
async def test_a_turn_that_did_not_end_well_fails(tmp_path: Path, reason: str, told: str) -> None:
    async with await opened(tmp_path) as agent:
        with pytest.raises(LoopError, match=told):
            await agent.run(f"stop {reason}")
        assert agent.messages()[-1].text == "So far. "


async def test_noise_costs_nothing_and_no_file_of_ours_is_served(tmp_path: Path) -> None:
    async with await opened(tmp_path) as agent:
        (answer,) = await agent.run("noise now")
    assert answer.text == "refused: Method not found"


async def test_more_than_fits_in_a_line_fails_the_run_and_not_the_process(tmp_path: Path) -> None:
    async with await opened(tmp_path) as agent:
        (answer,) = await agent.run(f"flood {4 << 20}")
        assert len(answer.text) == 4 << 20
        with pytest.raises(LoopError, match="a line of more than"):
            await agent.run(f"flood {33 << 20}")


async def test_without_a_person_to_ask_a_call_is_refused(tmp_path: Path) -> None:
    async with await opened(tmp_path) as agent:
        messages = await agent.run("ask file")
    assert shape(messages)[1][1].startswith("refused: nobody can be asked")  # type: ignore[index]
    assert messages[-1].text == "You said no."
    assert not (tmp_path / "work" / "file").exists()


async def test_hooks_alone_decide_where_nobody_is_asked(tmp_path: Path) -> None:
    async with await opened(tmp_path, asks_people=False) as agent:
        messages = await agent.run("ask file")
    assert messages[-1].text == "You said yes."
    (call,) = [part for part in messages[0].parts if isinstance(part, ToolCall)]
    assert call.arguments == {"path": "file", "content": "hi"}
    assert (tmp_path / "work" / "file").exists()


async def test_an_agent_that_cannot_start_leaves_the_transcript_as_it_was(tmp_path: Path) -> None:
    loop = Acp(["no-such-agent"], tmp_path, install="npm install no-such-agent")
    async with await perdure.open("s", loop) as agent:
        with pytest.raises(LoopError, match=r"'no-such-agent' was not found; install it: npm"):
            await agent.run("hello")
        assert not agent.messages()


async def test_what_keeps_an_agent_from_starting_is_said(tmp_path: Path) -> None:
    async with await opened(tmp_path, env={"AGENT_NEEDS_KEY": "1"}) as agent:
        with pytest.raises(LoopError, match=r"wants to be logged in: .*a key.*Set its key"):
            await agent.run("say hello")
    async with await opened(tmp_path, env={"AGENT_VERSION": "7"}) as agent:
        with pytest.raises(LoopError, match=r"speaks version 7 of .* speaks 1"):
            await agent.run("say hello")
    async with await opened(tmp_path, env={"AGENT_SLEEPS": "1"}, start_within_s=0.5) as agent:
        with pytest.raises(LoopError, match=r"did not start within 0.5 seconds"):
            await agent.run("say hello")


async def test_a_summary_is_an_answer_of_a_session_that_is_thrown_away(tmp_path: Path) -> None:
    async with await opened(tmp_path) as agent:
        await agent.run("say one")
        await agent.run("say two")
        receipt = await agent.compact(keep_turns=1, prompt="say They counted.")
        assert receipt is not None
        assert "They counted." in agent.messages()[0].text
        with pytest.raises(LoopError, match="called a tool"):
            await agent.compact(keep_turns=0, prompt="write summary")
        (answer,) = await agent.run("told all")
    assert not (tmp_path / "work" / "summary").exists()
    assert isinstance(answer.parts[0], Text)


def test_a_command_is_a_list() -> None:
    with pytest.raises(ConfigurationError, match="is a list"):
        Acp("opencode acp", ".")


async def test_a_run_that_is_cancelled_while_it_starts_leaves_nothing(tmp_path: Path) -> None:
    async with await opened(tmp_path, env={"AGENT_SLEEPS": "1"}) as agent:
        running = asyncio.ensure_future(agent.run("say hello"))
        await asyncio.sleep(0.5)
        running.cancel()
        with pytest.raises((asyncio.CancelledError, perdure.PerdureError)):
            await running
    assert not [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
