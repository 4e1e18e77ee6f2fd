"""Shell and model loops under the durable agent: what ends up in the store."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

import perdure
from perdure import Message, Text, ToolCall
from perdure.errors import ConfigurationError, ModelError
from perdure.loops import Model, Shell, ToolContext
from perdure.stores.memory import MemoryStore
from tests.provider.mock import Provider


def texts(messages: Sequence[Message]) -> list[str]:
    return ["".join(result.text for result in m.tool_results) or m.text for m in messages]


async def test_a_command_is_a_turn_and_a_summary_keeps_what_was_run(tmp_path: Path) -> None:
    store = MemoryStore()
    async with await perdure.open("s", Shell(tmp_path), store=store) as agent:
        await agent.run("echo one > file; echo done")
        await agent.run("cat file missing")
        receipt = await agent.compact(keep_turns=1)
        assert receipt is not None
        await agent.run("echo last")
    async with await perdure.open("s", store=store) as again:
        view = list(again.messages())
        assert "echo one > file; echo done → exit 0" in view[0].text
        assert texts(view)[-1] == "last\n"


async def test_stopping_a_command_keeps_what_it_showed_and_kills_it(tmp_path: Path) -> None:
    store = MemoryStore()
    async with await perdure.open("s", Shell(tmp_path), store=store) as agent:
        async for event in agent.run("echo $$ > pid; echo shown; sleep 1000"):
            if event.type == "message_update":
                break
    pid = int((tmp_path / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    again = await perdure.open("s", store=store)
    (result,) = again.messages()[-1].tool_results
    assert result.interrupted
    assert result.text.startswith("shown\n")


async def test_a_loop_that_cannot_start_leaves_the_transcript_as_it_was(tmp_path: Path) -> None:
    async with await perdure.open("s", Shell(tmp_path / "absent")) as agent:
        before = len(agent.entries())
        with pytest.raises(ConfigurationError, match="does not exist"):
            await agent.run("ls")
        assert len(agent.entries()) == before


@pytest.mark.parametrize(
    "name", ["openai-chat:gpt-5", "openai-responses:gpt-5", "anthropic:claude-sonnet-5"]
)
async def test_a_conversation_survives_a_cut_and_goes_on_in_another_agent(
    provider: Provider, name: str
) -> None:
    keys: list[str] = []

    async def look(call: ToolContext, city: str) -> str:
        """Looks at the weather."""
        keys.append(call.idempotency_key)
        call.show("looking")
        return f"sunny in {city}"

    made = [
        {"id": f"call_{city}", "name": "look", "arguments": {"city": city}}
        for city in ("Rome", "Oslo")
    ]
    await provider.teach(
        {
            "match": {"userMessage": "weather", "hasToolResult": False},
            "response": {"content": "I look.", "toolCalls": made},
        },
        {
            "match": {"userMessage": "weather", "hasToolResult": True, "sequenceIndex": 0},
            "response": {"content": "It is sunny in both cities today. " * 9},
            "truncateAfterChunks": 8,
            "latency": 2,
        },
        {"match": {"userMessage": "weather"}, "response": {"content": "Sunny."}},
        {"match": {"userMessage": "summarise"}, "response": {"content": "Both were sunny."}},
        {"match": {"userMessage": "thanks"}, "response": {"content": "You are welcome."}},
    )
    base_url = provider.base_url(name.partition(":")[0])
    model = Model(name, tools=[look], base_url=base_url, api_key="k", max_retries=0)
    store = MemoryStore()
    async with await perdure.open("s", model, store=store) as agent:
        with pytest.raises(ModelError):
            await agent.run("weather?")
        failed = [v for each in agent.entries() if isinstance(v := each.entry.view, Message)]
        assert failed[-1].end == "failed"
        assert failed[-1].text.startswith("It is sunny")
    async with await perdure.open("s", model, store=store) as agent:
        messages = await agent.run()
        assert texts(messages) == ["Sunny."]
        assert len(set(keys)) == 2
        assert len(provider.requests) == 3
        assert json.loads(provider.requests[2])
        await agent.compact(keep_turns=0, prompt="summarise this")
        assert texts(await agent.run("thanks")) == ["You are welcome."]
        last = provider.requests[-1].decode()
        assert "Both were sunny." in last
        assert "call_Rome" not in last
    calls = [part for m in failed for part in m.parts if isinstance(part, ToolCall)]
    assert [call.arguments for call in calls] == [{"city": "Rome"}, {"city": "Oslo"}]
    results = [result for m in failed for result in m.tool_results]
    assert {part for result in results for part in result.parts} == {
        Text("sunny in Rome"),
        Text("sunny in Oslo"),
    }
