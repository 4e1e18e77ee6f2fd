"""What always holds, however a session got where it is."""

from __future__ import annotations

from collections.abc import Sequence

import perdure
from perdure import DurableAgent, Message
from perdure.store import Store
from perdure.view import open_calls


def check_model_view(view: Sequence[Message]) -> None:
    """Exactly one result for each call, in call order, right behind its message; no other."""
    expected: list[str] = []
    for message in view:
        if message.tool_results:
            (found,) = message.tool_results
            assert message.role == "tool"
            assert len(message.parts) == 1
            assert expected
            assert found.call_id == expected.pop(0)
        else:
            assert not expected
            expected = [call.call_id for call in message.tool_calls]
    assert not expected


def answers(view: Sequence[Message]) -> list[tuple[str, str]]:
    """The results of a view, as call ids and texts."""
    return [(each.call_id, each.text) for message in view for each in message.tool_results]


def said(view: Sequence[Message]) -> list[str]:
    """The texts of a view."""
    return [message.text for message in view if message.text]


async def check_agrees(agent: DurableAgent, store: Store) -> None:
    """The agent knows what the store has, its view is valid, and a reopened one sees the same."""
    stored = await store.load_entries(agent.session_id)
    assert [(each.seq, each.raw) for each in agent.entries()] == [
        (each.seq, each.raw) for each in stored
    ]
    view = agent.messages()
    check_model_view(view)
    again = await perdure.open(agent.session_id, store=store)
    assert agent.leaf_id == again.leaf_id
    assert again.messages() == view


def check_at_rest(agent: DurableAgent) -> None:
    """Each call has a stored result."""
    assert open_calls(agent.transcript()) == []
