"""An agent of the OpenAI Agents SDK as a loop, over a provider on this machine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunContextWrapper,
    function_tool,
    input_guardrail,
)
from agents.guardrail import GuardrailFunctionOutput
from openai import AsyncOpenAI
from pydantic import BaseModel

import perdure
from perdure.entry import Message, Reasoning, Text, ToolCall, ToolResult
from perdure.errors import ConfigurationError, LoopError, ModelError, RuntimeLostError
from perdure.loop import (
    Allowed,
    CallWaits,
    MessageDelta,
    MessageEnded,
    Refused,
    ToolDelta,
    ToolStarted,
    Waits,
)
from perdure.loops import OpenAIAgent, current_call
from perdure.loops.openai_items import to_items
from perdure.stores.memory import MemoryStore
from tests.loops.handmade import ask, collect
from tests.loops.modelling import calls, shown, stored
from tests.loops.test_pydantic_agent import Around, answer, kinds, results
from tests.provider.mock import Provider


@pytest.fixture
async def client(provider: Provider) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(
        base_url=provider.base_url("openai-chat"), api_key="k", max_retries=0
    ) as client:
        yield client


@pytest.fixture(params=["responses", "chat"])
def model(request: pytest.FixtureRequest, client: AsyncOpenAI) -> Any:
    if request.param == "chat":
        return OpenAIChatCompletionsModel("gpt-5", client)
    return OpenAIResponsesModel("gpt-5", client)


@pytest.fixture
def responses(client: AsyncOpenAI) -> Any:
    return OpenAIResponsesModel("gpt-5", client)


async def teach(provider: Provider, *called: tuple[str, str, str], then: str = "Done.") -> None:
    await provider.teach(
        answer("go", calls(*called, content="Calling."), hasToolResult=False),
        {"match": {}, "response": {"content": then}},
    )


@function_tool
def noop() -> str:
    """Does nothing."""
    return "nothing"


async def test_an_answer_is_streamed_and_its_instructions_are_sent(
    provider: Provider, model: Any
) -> None:
    content = "An answer that is long enough for several pieces."
    await provider.teach(answer("hi", {"content": content}))
    agent: Agent[Any] = Agent("clerk", instructions="Be brief.", model=model)
    before = [perdure.text("earlier"), Message("assistant", (Text("Yes?"),))]
    events = await collect(OpenAIAgent(agent)(), ask("hi", before))
    assert shown(events) == content
    assert sum(isinstance(event, MessageDelta) for event in events) > 1
    assert kinds(events) == ["MessageEnded"]
    whole = provider.requests[0].decode()
    assert "Be brief." in whole
    assert whole.index("earlier") < whole.index("Yes?") < whole.rindex('"hi"')


async def test_an_answer_is_stored_before_its_tools_start_and_each_result_when_its_tool_ends(
    provider: Provider, model: Any
) -> None:
    store = MemoryStore()
    seen: list[list[str]] = []
    slow_may_end = asyncio.Event()

    async def note() -> None:
        seen.append([stored.type for stored in await store.load_entries("s")])

    @function_tool
    async def slow() -> str:
        """Is slow."""
        await note()
        async with asyncio.timeout(20):
            await slow_may_end.wait()
        return "slow result"

    @function_tool
    async def quick() -> str:
        """Is quick."""
        await note()
        return "quick result"

    await teach(provider, ("c1", "slow", "{}"), ("c2", "quick", "{}"))
    agent: Agent[Any] = Agent("clerk", model=model, tools=[slow, quick])
    async with await perdure.open("s", OpenAIAgent(agent), store=store) as durable:
        async for event in durable.run("go"):
            if event.type == "tool_end" and not slow_may_end.is_set():
                entries = await store.load_entries("s")
                assert b"quick result" in entries[-1].entry.raw
                slow_may_end.set()
        assert len(seen) == 2
        for there in seen:
            assert there[:4] == ["message", "message", "tool_dispatched", "tool_dispatched"]
        assert durable.messages()[-1].text == "Done."
    second = provider.requests[1].decode()
    assert "slow result" in second
    assert "quick result" in second


async def test_an_interrupted_run_goes_on_from_the_transcript(
    provider: Provider, model: Any
) -> None:
    reached, ran = asyncio.Event(), list[str]()
    ended = asyncio.Event()

    @function_tool
    async def act() -> str:
        """Acts."""
        ran.append(current_call().idempotency_key)
        reached.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return "never"

    await teach(provider, ("c1", "act", "{}"))
    store = MemoryStore()
    agent: Agent[Any] = Agent("clerk", model=model, tools=[act])
    durable = await perdure.open("s", OpenAIAgent(agent), store=store)

    async def run() -> None:
        await durable.run("go")

    task = asyncio.create_task(run())
    async with asyncio.timeout(20):
        await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()
    again = await perdure.open("s", OpenAIAgent(agent), store=store)
    await again.run()
    assert again.messages()[-1].text == "Done."
    assert b"cut off before it gave a result" in provider.requests[-1]
    assert len(ran) == 1
    assert ran[0].endswith(":c1")


async def test_reasoning_and_ids_come_back_after_a_reload(
    provider: Provider, responses: Any
) -> None:
    first = calls(("c1", "noop", "{ }"), content="Looking.", reasoning="First I think.")
    await provider.teach(
        answer("go", first, hasToolResult=False), {"match": {}, "response": {"content": "Done."}}
    )
    agent: Agent[Any] = Agent("clerk", model=responses, tools=[noop])
    context = ask("go")
    await collect(OpenAIAgent(agent, context_window=1000)(), context)
    in_run = json.loads(provider.requests[1])["input"]
    assert any(isinstance(part, Reasoning) and part.text for part in context.added[0].parts)
    fields = context.added[0].provider
    assert isinstance(fields, dict)
    assert (fields["layer"], fields["context_window"]) == ("openai_agents", 1000)
    assert fields["response_id"]
    await collect(OpenAIAgent(agent)(), ask("next", stored(context.conversation)))
    reloaded = json.loads(provider.requests[-1])["input"]
    reasoning = [item for item in in_run if item.get("type") == "reasoning"]
    assert reasoning
    assert reasoning[0]["id"]
    kept = [item for item in reloaded if item.get("type") in ("reasoning", "function_call")]
    assert kept == [i for i in in_run if i.get("type") in ("reasoning", "function_call")]
    said = [item for item in in_run if item.get("role") == "assistant"]
    assert [item for item in reloaded if item.get("role") == "assistant"][: len(said)] == said


async def test_an_answer_of_another_layer_gives_its_text_and_calls() -> None:
    other = Message(
        "assistant",
        (Reasoning("hm", provider={"signature": "s"}), Text("Hi."), ToolCall("c", "t", {"a": 1})),
        provider={"layer": "pydantic_ai"},
    )
    gave = Message("tool", (ToolResult("c", (Text("r"),), name="t"),))
    assert to_items([other, gave]) == [
        {"role": "assistant", "content": "Hi."},
        {"type": "function_call", "call_id": "c", "name": "t", "arguments": '{"a": 1}'},
        {"type": "function_call_output", "call_id": "c", "output": "r"},
    ]


async def test_the_tools_around_the_run_are_offered_beside_its_own(
    provider: Provider, model: Any
) -> None:
    await teach(provider, ("c1", "there", '{"a":1}'), ("c2", "noop", "{}"))
    agent: Agent[Any] = Agent("clerk", model=model, tools=[noop])
    events = await collect(OpenAIAgent(agent)(), Around(perdure.text("go")))
    found = results(events)
    assert (found["c1"].text, found["c1"].limit_chars) == ("there {'a': 1}", 99)
    assert found["c2"].text == "nothing"
    assert "".join(e.text for e in events if isinstance(e, ToolDelta)) == "out put"
    assert b"Is elsewhere." in provider.requests[0]
    assert b"Is hidden." not in provider.requests[0]
    assert b"there {'a': 1}" in provider.requests[1]


async def test_a_lost_runtime_comes_out_as_that(provider: Provider, model: Any) -> None:
    await teach(provider, ("c1", "there", "{}"))
    context = Around(perdure.text("go"))
    context.lost = True
    agent: Agent[Any] = Agent("clerk", model=model)
    async with asyncio.timeout(20):
        with pytest.raises(RuntimeLostError):
            await collect(OpenAIAgent(agent)(), context)


async def test_refused_calls_do_not_run_and_changed_ones_run_changed(
    provider: Provider, model: Any
) -> None:
    ran: list[int] = []

    @function_tool
    def act(n: int) -> str:
        """Acts."""
        ran.append(n)
        return f"acted {n}"

    await teach(provider, ("c1", "act", '{"n":1}'), ("c2", "act", '{"n":2}'))
    context = Around(perdure.text("go"))
    context.verdicts = {"c1": Refused("not this"), "c2": Allowed({"n": 7})}
    agent: Agent[Any] = Agent("clerk", model=model, tools=[act])
    events = await collect(OpenAIAgent(agent)(), context)
    found = results(events)
    assert (found["c1"].text, found["c1"].is_error) == ("refused: not this", True)
    assert (ran, found["c2"].text) == ([7], "acted 7")
    assert [e.call_id for e in events if isinstance(e, ToolStarted)] == ["c2"]
    assert b"refused: not this" in provider.requests[1]


@pytest.mark.parametrize("asks", ["the surroundings", "the agent"])
async def test_a_call_that_waits_ends_the_run_and_its_answer_goes_on(
    provider: Provider, model: Any, asks: str
) -> None:
    ran: list[int] = []

    @function_tool(needs_approval=asks == "the agent")
    def act(n: int) -> str:
        """Acts."""
        ran.append(n)
        return f"acted {n}"

    await teach(provider, ("c1", "act", '{"n":1}'), ("c2", "noop", "{}"), ("c3", "act", '{"n":3}'))
    context = Around(perdure.text("go"))
    if asks == "the surroundings":
        context.verdicts = {"c1": Waits("dangerous"), "c3": Waits("dangerous")}
    agent: Agent[Any] = Agent("clerk", model=model, tools=[act, noop])
    async with asyncio.timeout(20):
        events = await collect(OpenAIAgent(agent)(), context)
    waiting = [e for e in events if isinstance(e, CallWaits)]
    assert sorted(e.call_id for e in waiting) == ["c1", "c3"]
    assert waiting[0].reason == ("dangerous" if asks == "the surroundings" else None)
    assert results(events).keys() == {"c2"}
    assert (ran, len(provider.requests)) == ([], 1)
    answers = {"c1": Allowed({"n": 5}), "c3": Refused("no")}
    resumed = Around(before=stored(context.conversation), answers=answers)
    async with asyncio.timeout(20):
        events = await collect(OpenAIAgent(agent)(), resumed)
    assert ran == [5]
    assert results(events)["c1"].text == "acted 5"
    assert (results(events)["c3"].text, results(events)["c3"].is_error) == ("refused: no", True)
    assert resumed.added[-1].text == "Done."
    assert b"nothing" in provider.requests[1]


async def test_a_handoff_is_a_call_with_its_result_and_the_other_agents_tools_are_asked_for(
    provider: Provider, model: Any
) -> None:
    other: Agent[Any] = Agent("Other", model=model, tools=[noop], instructions="You are other.")
    agent: Agent[Any] = Agent("clerk", model=model, handoffs=[other])
    await provider.teach(
        answer("go", calls(("c1", "transfer_to_other", "{}")), sequenceIndex=0),
        answer("go", calls(("c2", "noop", "{}")), sequenceIndex=1),
        {"match": {}, "response": {"content": "Done."}},
    )
    context = Around(perdure.text("go"))
    context.verdicts = {"c2": Refused("not there either")}
    events = await collect(OpenAIAgent(agent)(), context)
    found = results(events)
    assert "Other" in found["c1"].text
    assert found["c2"].text == "refused: not there either"
    assert context.added[-1].text == "Done."
    assert b"You are other." in provider.requests[1]


async def test_what_joins_the_run_stays_where_it_joined(provider: Provider, model: Any) -> None:
    await provider.teach(
        answer("go", calls(("c1", "noop", "{}")), hasToolResult=False),
        answer("and hurry", calls(("c2", "noop", "{}")), sequenceIndex=0),
        {"match": {}, "response": {"content": "Hurried."}},
    )
    context = Around(perdure.text("go"))
    context.joining = [(), [perdure.text("and hurry")], ()]
    agent: Agent[Any] = Agent("clerk", model=model, tools=[noop])
    events = await collect(OpenAIAgent(agent)(), context)
    assert shown(events).endswith("Hurried.")
    last = provider.requests[-1].decode()
    assert last.index("c1") < last.index("and hurry") < last.index("c2")


class Weather(BaseModel):
    city: str


async def test_a_summary_is_one_message_and_offers_no_tool(provider: Provider, model: Any) -> None:
    agent: Agent[Any] = Agent("clerk", model=model, tools=[noop], output_type=Weather)
    await provider.teach({"match": {}, "response": {"content": "A summary."}})
    call = Message("assistant", (ToolCall("c1", "noop", {}),))
    gave = Message("tool", (ToolResult("c1", (Text("r"),), name="noop"),))
    events = await collect(OpenAIAgent(agent)(), ask("sum up", [call, gave], purpose="summary"))
    (ended,) = [e for e in events if isinstance(e, MessageEnded)]
    assert [part.text for part in ended.parts if isinstance(part, Text)] == ["A summary."]
    assert b"noop" not in provider.requests[0].replace(b"the tool noop", b"")


async def test_the_context_is_made_for_each_run(provider: Provider, model: Any) -> None:
    @function_tool
    def who(wrapper: RunContextWrapper[str]) -> str:
        """Says who."""
        return wrapper.context

    await teach(provider, ("c1", "who", "{}"))
    agent: Agent[Any] = Agent("clerk", model=model, tools=[who])
    loop = OpenAIAgent(agent, make_context=lambda context: context.session_id)
    assert results(await collect(loop(), ask("go")))["c1"].text == "s-1"


async def test_the_providers_failure_is_a_model_error(provider: Provider, model: Any) -> None:
    await provider.teach(answer("go", {"error": {"message": "Sorry.", "type": "x"}, "status": 400}))
    with pytest.raises(ModelError, match="Sorry") as failed:
        await collect(OpenAIAgent(Agent("clerk", model=model))(), ask("go"))
    assert (failed.value.status, failed.value.is_transient) == (400, False)


async def test_what_the_sdk_ends_is_a_loop_error(provider: Provider, model: Any) -> None:
    @input_guardrail
    def never(context: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered=True)

    await provider.teach({"match": {}, "response": {"content": "x"}})
    agent: Agent[Any] = Agent("clerk", model=model, input_guardrails=[never])
    with pytest.raises(LoopError, match=r"[Gg]uardrail"):
        await collect(OpenAIAgent(agent)(), ask("go"))
    await provider.teach(answer("go", calls(("c1", "noop", "{}"))))
    looping: Agent[Any] = Agent("clerk", model=model, tools=[noop])
    with pytest.raises(LoopError, match=r"[Mm]ax turns"):
        await collect(OpenAIAgent(looping, options={"max_turns": 2})(), ask("go"))


def test_what_cannot_be_wrapped_is_refused_before_anything_is_stored() -> None:
    with pytest.raises(ConfigurationError, match="no agent of the OpenAI"):
        OpenAIAgent("nope")()  # type: ignore[arg-type] # that is the point
    with pytest.raises(ConfigurationError, match="the conversation is Perdure's"):
        OpenAIAgent(Agent("a"), options={"conversation_id": "x"})()


async def test_a_runtime_that_is_lost_as_a_run_resumes_comes_out_as_that(
    provider: Provider, model: Any
) -> None:
    call = Message("assistant", (ToolCall("c1", "there", {}), ToolCall("c2", "gone", {})))
    agent: Agent[Any] = Agent("clerk", model=model)
    answers = {"c1": Allowed({}), "c2": Allowed({})}
    context = Around(before=[perdure.text("go"), call], answers=answers)
    context.lost = True
    with pytest.raises(RuntimeLostError):
        await collect(OpenAIAgent(agent)(), context)
    assert provider.requests == []
    await provider.teach({"match": {}, "response": {"content": "Done."}})
    context = Around(before=[perdure.text("go"), call], answers=answers)
    events = await collect(OpenAIAgent(agent)(), context)
    assert results(events)["c1"].text == "there {}"
    assert "no tool 'gone' any more" in results(events)["c2"].text
