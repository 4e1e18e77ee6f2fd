"""A whole pydantic-ai agent as a loop, over a provider on this machine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, BinaryContent, ModelRetry, RunContext
from pydantic_ai.exceptions import UsageLimitExceeded
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import UsageLimits

import perdure
from perdure.entry import File, Json, Message, Reasoning, Text, ToolCall, ToolResult
from perdure.errors import ConfigurationError, LoopError, ModelError, RuntimeLostError
from perdure.loop import (
    Allowed,
    CallWaits,
    LoopEvent,
    MessageDelta,
    MessageEnded,
    Refused,
    ToolDelta,
    ToolEnded,
    ToolSpec,
    ToolStarted,
    Verdict,
    Waits,
)
from perdure.loops import PydanticAgent, current_call
from perdure.stores.memory import MemoryStore
from tests.loops.handmade import Context, ask, collect
from tests.loops.modelling import calls, shown, stored
from tests.provider.mock import Provider


def model_of(provider: Provider, name: str = "chat") -> Any:
    there = OpenAIProvider(base_url=provider.base_url("openai-chat"), api_key="k")
    make = OpenAIChatModel if name == "chat" else OpenAIResponsesModel
    return make("gpt-5", provider=there)


def answer(user: str, response: dict[str, Any], **match: Any) -> dict[str, Any]:
    return {"match": {"userMessage": user, **match}, "response": response}


async def teach(provider: Provider, *called: tuple[str, str, str], then: str = "Done.") -> None:
    await provider.teach(
        answer("go", calls(*called, content="Calling."), hasToolResult=False),
        {"match": {}, "response": {"content": then}},
    )


def results(events: Sequence[LoopEvent]) -> dict[str, ToolResult]:
    return {e.result.call_id: e.result for e in events if isinstance(e, ToolEnded)}


def kinds(events: Sequence[LoopEvent]) -> list[str]:
    return [type(e).__name__ for e in events if not isinstance(e, MessageDelta)]


async def test_an_answer_is_streamed_and_its_prompts_are_sent(provider: Provider) -> None:
    content = "An answer that is long enough for several pieces."
    await provider.teach(answer("hi", {"content": content}))
    agent = Agent(model_of(provider), instructions="Be brief.", system_prompt="You are a clerk.")
    before = [perdure.text("earlier"), Message("assistant", (Text("Yes?"),))]
    events = await collect(PydanticAgent(agent)(), ask("hi", before))
    assert shown(events) == content
    assert sum(isinstance(event, MessageDelta) for event in events) > 1
    assert kinds(events) == ["MessageStarted", "MessageEnded"]
    (sent,) = (json.loads(each) for each in provider.requests)
    assert [m["role"] for m in sent["messages"]].count("system") >= 1
    whole = json.dumps(sent)
    assert "Be brief." in whole
    assert "You are a clerk." in whole
    assert whole.index("earlier") < whole.index("Yes?") < whole.rindex('"hi"')


async def test_an_answer_is_stored_before_its_tools_start_and_each_result_when_its_tool_ends(
    provider: Provider,
) -> None:
    store = MemoryStore()
    seen: list[tuple[str, list[str]]] = []
    slow_may_end = asyncio.Event()

    async def types() -> list[str]:
        return [stored.type for stored in await store.load_entries("s")]

    agent = Agent(model_of(provider))

    @agent.tool_plain
    async def slow() -> str:
        """Is slow."""
        seen.append(("slow", await types()))
        async with asyncio.timeout(20):
            await slow_may_end.wait()
        return "slow result"

    @agent.tool_plain
    async def quick() -> str:
        """Is quick."""
        seen.append(("quick", await types()))
        return "quick result"

    await teach(provider, ("c1", "slow", "{}"), ("c2", "quick", "{}"))
    async with await perdure.open("s", PydanticAgent(agent), store=store) as durable:
        async for event in durable.run("go"):
            if event.type == "tool_end" and not slow_may_end.is_set():
                entries = await store.load_entries("s")
                assert b"quick result" in entries[-1].entry.raw
                slow_may_end.set()
        for _, there in seen:
            assert there[:4] == ["message", "message", "tool_dispatched", "tool_dispatched"]
        said = [m.text for m in durable.messages()]
    assert said[0] == "go"
    assert said[-1] == "Done."
    second = provider.requests[1].decode()
    assert second.index("slow result") < second.index("quick result")


async def test_an_interrupted_run_goes_on_from_the_transcript(provider: Provider) -> None:
    agent = Agent(model_of(provider))
    reached, ran = asyncio.Event(), list[str]()

    @agent.tool_plain
    async def act() -> str:
        """Acts."""
        ran.append(current_call().idempotency_key)
        reached.set()
        await asyncio.Event().wait()
        return "never"

    await teach(provider, ("c1", "act", "{}"))
    store = MemoryStore()
    durable = await perdure.open("s", PydanticAgent(agent), store=store)

    async def run() -> None:
        await durable.run("go")

    task = asyncio.create_task(run())
    async with asyncio.timeout(20):
        await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    again = await perdure.open("s", PydanticAgent(agent), store=store)
    await again.run()
    assert [m.text for m in again.messages()][-1] == "Done."
    assert b"interrupted" in provider.requests[-1] or b"stopped" in provider.requests[-1]
    assert len(ran) == 1
    assert ran[0].endswith(":c1")


@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_what_the_provider_sent_comes_back_after_a_reload(
    provider: Provider, api: str
) -> None:
    await provider.teach(
        answer("go", {"content": "Yes.", "reasoning": "I think."}),
        answer("next", {"content": "Again."}),
    )
    agent = Agent(model_of(provider, api))
    context = ask("go")
    await collect(PydanticAgent(agent)(), context)
    (first,) = context.added
    assert isinstance(first.provider, dict)
    assert first.provider["layer"] == "pydantic_ai"
    assert first.provider["context_window"] > 100_000
    assert (api == "responses") or first.provider["usage"]["output_tokens"]
    if api == "responses":
        assert any(isinstance(part, Reasoning) and part.provider for part in first.parts)
    await collect(PydanticAgent(agent)(), ask("next", stored(context.conversation)))
    assert b"Yes." in provider.requests[-1]


class Weather(BaseModel):
    city: str
    degrees: int


async def test_structured_output_is_a_call_with_its_result(provider: Provider) -> None:
    agent = Agent(model_of(provider), output_type=Weather)
    raw = '{"city":"Rome","degrees":31}'
    await provider.teach(
        answer("go", calls(("c1", "final_result", raw))),
        answer("next", calls(("c2", "final_result", raw))),
    )
    context = ask("go")
    events = await collect(PydanticAgent(agent)(), context)
    (call,) = context.added[0].tool_calls
    assert call.arguments == {"city": "Rome", "degrees": 31}
    assert not results(events)["c1"].is_error
    await collect(PydanticAgent(agent)(), ask("next", stored(context.conversation)))
    assert len(provider.requests) == 2


async def test_output_that_does_not_fit_is_asked_for_again(provider: Provider) -> None:
    agent = Agent(model_of(provider), output_type=Weather)
    await provider.teach(
        answer("go", calls(("c1", "final_result", '{"city":"Rome"}')), sequenceIndex=0),
        answer("go", calls(("c2", "final_result", '{"city":"Rome","degrees":3}')), sequenceIndex=1),
    )
    events = await collect(PydanticAgent(agent)(), ask("go"))
    assert results(events)["c1"].is_error
    assert "degrees" in results(events)["c1"].text
    assert not results(events)["c2"].is_error


async def test_what_tools_give_is_stored_as_text_and_files(provider: Provider) -> None:
    agent = Agent(model_of(provider), deps_type=str)

    @agent.tool
    def named(ctx: RunContext[str], n: int) -> dict[str, Any]:
        """Gives a thing."""
        return {"who": ctx.deps, "n": n}

    @agent.tool_plain
    def picture() -> BinaryContent:
        """Gives a picture."""
        return BinaryContent(b"\x89PNG", media_type="image/png")

    @agent.tool_plain(retries=2)
    def picky() -> str:
        """Wants to be called again."""
        raise ModelRetry("with more feeling")

    await teach(
        provider,
        ("c1", "named", '{"n":"4"}'),
        ("c2", "picture", "{}"),
        ("c3", "picky", "{}"),
        ("c4", "named", '{"n":"x"}'),
        ("c5", "nothing", "{}"),
    )
    context = ask("go")
    loop = PydanticAgent(
        agent, make_deps=lambda context: context.session_id, options={"retries": 3}
    )
    found = results(await collect(loop(), context))
    assert found["c1"].text == '{"who":"s-1","n":4}'
    assert File("image/png", b"\x89PNG") in found["c2"].parts
    assert "with more feeling" in found["c3"].text
    assert [found[c].is_error for c in ("c1", "c2", "c3", "c4", "c5")] == [
        False,
        False,
        True,
        True,
        True,
    ]
    assert context.added[-1].text == "Done."


async def test_a_tool_that_raises_fails_the_run_as_the_agent_would(provider: Provider) -> None:
    agent = Agent(model_of(provider))

    @agent.tool_plain
    def broken() -> str:
        """Breaks."""
        raise ZeroDivisionError("a bug")

    await teach(provider, ("c1", "broken", "{}"))
    with pytest.raises(ZeroDivisionError):
        await collect(PydanticAgent(agent)(), ask("go"))


async def test_the_providers_failure_is_a_model_error(provider: Provider) -> None:
    await provider.teach(answer("go", {"error": {"message": "Sorry.", "type": "x"}, "status": 400}))
    with pytest.raises(ModelError, match="Sorry") as failed:
        await collect(PydanticAgent(Agent(model_of(provider)))(), ask("go"))
    assert failed.value.status == 400


async def test_options_of_the_agent_are_its_own(provider: Provider) -> None:
    agent = Agent(model_of(provider), tools=[noop])
    await provider.teach(answer("go", calls(("c1", "noop", "{}"))))
    limits = UsageLimits(request_limit=2)
    with pytest.raises(UsageLimitExceeded):
        await collect(PydanticAgent(agent, options={"usage_limits": limits})(), ask("go"))
    assert len(provider.requests) == 2


def noop() -> str:
    """Does nothing."""
    return "nothing"


class Around(Context):
    """A server's side of a run, as a test wants it."""

    verdicts: dict[str, Verdict]
    lost = False

    def __init__(
        self, *messages: Message, answers: Any = None, before: Sequence[Message] = ()
    ) -> None:
        super().__init__(input=messages, before=before)
        self.answers = answers or {}
        self.verdicts = {}
        self.joining: list[Sequence[Message]] = []

    async def tools(self) -> Sequence[ToolSpec]:
        return [
            ToolSpec("there", "Is elsewhere.", {"type": "object", "properties": {}}),
            ToolSpec("noop", "Is hidden.", {"type": "object", "properties": {}}),
        ]

    async def call_tool(  # type: ignore[override] # a loop's side of it has no key
        self, call: ToolCall, arguments: Json, show: Any
    ) -> ToolResult:
        if self.lost:
            raise RuntimeLostError("r", "gone")
        show("out ")
        show("put")
        return ToolResult(
            call.call_id, (Text(f"there {arguments}"),), name=call.name, limit_chars=99
        )

    async def permit(self, call: ToolCall) -> Verdict:
        return self.verdicts.get(call.call_id, Allowed(call.arguments))

    async def joined(self) -> Sequence[Message]:
        return self.joining.pop(0) if self.joining else ()


async def test_the_tools_around_the_run_are_offered_beside_its_own(provider: Provider) -> None:
    agent = Agent(model_of(provider), tools=[noop])
    await teach(provider, ("c1", "there", '{"a":1}'), ("c2", "noop", "{}"))
    events = await collect(PydanticAgent(agent)(), Around(perdure.text("go")))
    found = results(events)
    assert (found["c1"].text, found["c1"].limit_chars) == ("there {'a': 1}", 99)
    assert found["c2"].text == "nothing"
    assert "".join(e.text for e in events if isinstance(e, ToolDelta)) == "out put"
    assert b"Is elsewhere." in provider.requests[0]
    assert b"Is hidden." not in provider.requests[0]
    await collect(PydanticAgent(agent, offers_tools=False)(), Around(perdure.text("go")))
    assert b"Is elsewhere." not in provider.requests[2]


async def test_a_lost_runtime_comes_out_as_that(provider: Provider) -> None:
    await teach(provider, ("c1", "there", "{}"))
    context = Around(perdure.text("go"))
    context.lost = True
    with pytest.raises(RuntimeLostError):
        await collect(PydanticAgent(Agent(model_of(provider)))(), context)


async def test_refused_calls_do_not_run_and_changed_ones_run_changed(provider: Provider) -> None:
    ran: list[int] = []
    agent = Agent(model_of(provider))

    @agent.tool_plain
    def act(n: int) -> str:
        """Acts."""
        ran.append(n)
        return f"acted {n}"

    await teach(provider, ("c1", "act", '{"n":1}'), ("c2", "act", '{"n":2}'))
    context = Around(perdure.text("go"))
    context.verdicts = {"c1": Refused("not this"), "c2": Allowed({"n": 7})}
    events = await collect(PydanticAgent(agent)(), context)
    assert results(events)["c1"].text == "refused: not this"
    assert results(events)["c1"].is_error
    assert (ran, results(events)["c2"].text) == ([7], "acted 7")
    assert [e.call_id for e in events if isinstance(e, ToolStarted)] == ["c2"]


@pytest.mark.parametrize("asks", ["the surroundings", "the agent"])
async def test_a_call_that_waits_ends_the_run_and_its_answer_goes_on(
    provider: Provider, asks: str
) -> None:
    ran: list[int] = []
    agent = Agent(model_of(provider), tools=[noop])

    @agent.tool_plain(requires_approval=asks == "the agent")
    def act(n: int) -> str:
        """Acts."""
        ran.append(n)
        return f"acted {n}"

    await teach(provider, ("c1", "act", '{"n":1}'), ("c2", "noop", "{}"), ("c3", "act", '{"n":3}'))
    context = Around(perdure.text("go"))
    if asks == "the surroundings":
        context.verdicts = {"c1": Waits("dangerous"), "c3": Waits("dangerous")}
    events = await collect(PydanticAgent(agent)(), context)
    waiting = [e for e in events if isinstance(e, CallWaits)]
    assert [e.call_id for e in waiting] == ["c1", "c3"]
    assert waiting[0].reason == ("dangerous" if asks == "the surroundings" else None)
    assert results(events).keys() == {"c2"}
    assert ran == []
    assert len(provider.requests) == 1
    answers = {"c1": Allowed({"n": 5}), "c3": Refused("no")}
    resumed = Around(before=stored(context.conversation), answers=answers)
    events = await collect(PydanticAgent(agent)(), resumed)
    assert ran == [5]
    assert results(events)["c1"].text == "acted 5"
    assert (results(events)["c3"].text, results(events)["c3"].is_error) == ("refused: no", True)
    assert resumed.added[-1].text == "Done."
    assert b"nothing" in provider.requests[1]


async def test_what_joins_the_run_is_read_before_the_next_request(provider: Provider) -> None:
    agent = Agent(model_of(provider), tools=[noop])
    await provider.teach(
        answer("go", calls(("c1", "noop", "{}")), hasToolResult=False),
        answer("and hurry", {"content": "Hurried."}),
    )
    context = Around(perdure.text("go"))
    context.joining = [(), [perdure.text("and hurry")]]
    events = await collect(PydanticAgent(agent)(), context)
    assert shown(events).endswith("Hurried.")


async def test_a_summary_is_one_message_and_offers_no_tool(provider: Provider) -> None:
    agent = Agent(model_of(provider), tools=[noop], output_type=Weather)
    await provider.teach({"match": {}, "response": {"content": "A summary."}})
    call = Message("assistant", (ToolCall("c1", "noop", {}),))
    gave = Message("tool", (ToolResult("c1", (Text("r"),), name="noop"),))
    events = await collect(PydanticAgent(agent)(), ask("sum up", [call, gave], purpose="summary"))
    (ended,) = [e for e in events if isinstance(e, MessageEnded)]
    assert ended.parts == (Text("A summary."),)
    assert b'"tools"' not in provider.requests[0]


def test_what_cannot_be_wrapped_is_refused_before_anything_is_stored() -> None:
    with pytest.raises(ConfigurationError, match="no pydantic-ai agent"):
        PydanticAgent("nope")()  # type: ignore[arg-type] # that is the point
    with pytest.raises(ConfigurationError, match="no model"):
        PydanticAgent(Agent())()


async def test_no_call_is_current_outside_one() -> None:
    with pytest.raises(LoopError, match="no call"):
        current_call()
