"""Wrapped agents as loops of a server: an approval outlives the server that asked for it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from agents import Agent as SdkAgent
from agents import OpenAIResponsesModel, function_tool
from openai import AsyncOpenAI
from pydantic_ai import Agent

from perdure.entry import Message
from perdure.loop import LoopFactory
from perdure.loops import Model, OpenAIAgent, PydanticAgent, current_call
from perdure.loops.approving import approving
from perdure.stores.memory import MemoryStore
from perdure.tree import Tree
from perdure.view import model_view
from tests.loops.modelling import calls
from tests.loops.test_pydantic_agent import answer, model_of
from tests.provider.mock import Provider
from tests.server.house import ID, House, Loops

RAN: list[str] = []


def refund(order: int) -> str:
    """Refunds an order."""
    RAN.append(current_call().idempotency_key)
    return f"order {order} is refunded"


def plain_refund(order: int) -> str:
    """Refunds an order."""
    RAN.append("ran")
    return f"order {order} is refunded"


plain_refund.__name__ = "refund"


@pytest.fixture
async def client(provider: Provider) -> AsyncIterator[AsyncOpenAI]:
    base_url = provider.base_url("openai-chat")
    async with AsyncOpenAI(base_url=base_url, api_key="k", max_retries=0) as client:
        yield client


@pytest.fixture(params=["model", "pydantic-ai", "openai-agents"])
def factory(request: pytest.FixtureRequest, provider: Provider, client: AsyncOpenAI) -> Any:
    made: LoopFactory
    match request.param:
        case "model":
            base_url = provider.base_url("openai-chat")
            made = Model("openai-chat:gpt-5", base_url=base_url, tools=[plain_refund])
        case "pydantic-ai":
            made = PydanticAgent(Agent(model_of(provider), tools=[refund]))
        case _:
            model = OpenAIResponsesModel("gpt-5", client)
            made = OpenAIAgent(SdkAgent("clerk", model=model, tools=[function_tool(refund)]))
    return approving(made, ["ref*"])


async def test_an_approval_outlives_the_server_and_the_tool_runs_once(
    provider: Provider, factory: Any
) -> None:
    RAN.clear()
    await provider.teach(
        answer(
            "go", calls(("c1", "refund", '{"order":7}'), content="Let me see."), sequenceIndex=0
        ),
        {"match": {}, "response": {"content": "It is refunded."}},
    )
    house = House(MemoryStore(), Loops(factory))
    await house.create()
    await house.send("go")
    look = await house.until(lambda look: look.status == "waiting")
    assert look.turn is not None
    assert [each.call_id for each in look.approvals] == ["c1"]
    assert RAN == []
    other = house.restart()
    assert (await other.look()).status == "waiting"
    await other.registry.answer(ID, "c1", approve=True)
    await other.until(lambda look: look.status == "idle")
    assert len(RAN) == 1
    log = await other.log()
    tree = Tree(log)
    view = model_view(tree.path(tree.leaf_id))
    assert [message.role for message in view] == ["user", "assistant", "tool", "assistant"]
    assert view[-1].text == "It is refunded."
    (result,) = view[2].tool_results
    assert (result.text, result.is_error) == ("order 7 is refunded", False)
    assert [reason for _, reason in await other.ends()] == ["completed"]
    assert isinstance(view[1], Message)
    await house.close()
