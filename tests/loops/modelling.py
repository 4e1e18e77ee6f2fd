"""Models in a test: what a provider answers, and what came out of a run."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Any

from perdure.codec import seal
from perdure.entry import Message
from perdure.errors import ModelError
from perdure.loop import LoopEvent, MessageDelta, MessageEnded
from perdure.loops.model import Model
from tests.loops.handmade import Context
from tests.provider.mock import Provider

NAMES = {
    "openai-chat": "openai-chat:gpt-5",
    "openai-responses": "openai-responses:gpt-5",
    "anthropic": "anthropic:claude-sonnet-5-5",
}
STREAMING: tuple[str, ...] = ("truncateAfterChunks", "latency")
KEY = "key-that-nobody-may-see"
Make = Callable[..., Model]


def maker(provider: Provider, protocol: str) -> Make:
    def make(**options: Any) -> Model:
        base_url = provider.base_url(protocol)
        return Model(NAMES[protocol], base_url=base_url, api_key=KEY, **options)

    return make


def answer(user: str, response: dict[str, Any], **match: Any) -> dict[str, Any]:
    """A fixture: what is said to this message, before any tool result if not told otherwise."""
    options: dict[str, Any] = {each: match.pop(each) for each in STREAMING if each in match}
    return {"match": {"userMessage": user, **match}, "response": response, **options}


def calls(*each: tuple[str, str, str], **more: Any) -> dict[str, Any]:
    made = [{"id": call_id, "name": name, "arguments": raw} for call_id, name, raw in each]
    return {"toolCalls": made, **more}


def answers(events: Sequence[LoopEvent]) -> list[MessageEnded]:
    return [event for event in events if isinstance(event, MessageEnded)]


def shown(events: Sequence[LoopEvent], kind: str = "text") -> str:
    deltas = (event for event in events if isinstance(event, MessageDelta))
    return "".join(delta.text for delta in deltas if delta.kind == kind)


async def until_failure(
    model: Model, context: Context
) -> tuple[list[LoopEvent], ModelError | None]:
    """What a run gave before it failed, and how it failed."""
    events: list[LoopEvent] = []
    async with aclosing(model()(context)) as running:
        try:
            async for event in running:
                events.append(event)  # noqa: PERF401 - kept when it fails
        except ModelError as error:
            return events, error
    return events, None


def stored(messages: Sequence[Message]) -> list[Message]:
    """The messages as another process would read them."""
    read = [json.loads(seal(message).raw) for message in messages]
    assert all(entry["type"] == "message" for entry in read)
    views = [type(seal(message))(*_header(message)).view for message in messages]
    assert all(isinstance(view, Message) for view in views)
    return [view for view in views if isinstance(view, Message)]


def _header(message: Message) -> tuple[Any, ...]:
    entry = seal(message)
    return entry.id, entry.type, entry.created_at, entry.parent_id, entry.raw


def noop(a: object = None, b: object = None) -> str:
    """Does nothing."""
    return "nothing"
