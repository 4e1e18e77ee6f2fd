"""A provider that is overloaded, cut off or malformed fails the run clean, and nothing hangs."""

from __future__ import annotations

import asyncio
import re

import pytest

from perdure.entry import Message, Text, ToolCall, ToolResult, text
from perdure.errors import ModelError
from perdure.loops.model import Model
from tests.loops.handmade import Context, ask, collect
from tests.loops.modelling import (
    KEY,
    NAMES,
    Make,
    answer,
    answers,
    calls,
    noop,
    shown,
    stored,
    until_failure,
)
from tests.provider.mock import Provider, event_stream


async def test_an_overloaded_provider_in_mid_turn_is_asked_again(
    provider: Provider, model: Make
) -> None:
    overloaded = {"error": {"message": "Overloaded", "type": "overloaded_error"}, "status": 529}
    await provider.teach(
        answer("go", calls(("call_1", "noop", "{}")), hasToolResult=False),
        answer("go", overloaded, hasToolResult=True, sequenceIndex=0),
        answer("go", {"content": "There."}, hasToolResult=True, sequenceIndex=1),
    )
    events = await collect(model(tools=[noop])(), ask("go"))
    assert shown(events[-4:]) or shown(events)
    assert answers(events)[-1].parts[-1].text == "There."  # type: ignore[union-attr] # a text
    assert len(provider.requests) == 3


async def test_without_retries_it_fails_clean_and_the_next_run_works(
    provider: Provider, model: Make
) -> None:
    overloaded = {"error": {"message": "Overloaded", "type": "overloaded_error"}, "status": 529}
    await provider.teach(
        answer("go", calls(("call_1", "noop", "{}")), hasToolResult=False),
        answer("go", overloaded, hasToolResult=True, sequenceIndex=0),
        answer("go", {"content": "There."}, hasToolResult=True, sequenceIndex=1),
    )
    make = model(tools=[noop], max_retries=0)
    context = ask("go")
    with pytest.raises(ModelError, match="overloaded") as failed:
        await collect(make(), context)
    assert failed.value.status == 529
    assert KEY not in str(failed.value)
    assert [type(message.parts[-1]) for message in context.added] == [ToolCall, ToolResult]
    events = await collect(make(), Context(before=stored(context.conversation)))
    assert shown(events) == "There."


async def test_a_connection_cut_in_the_middle_of_a_message_fails_and_nothing_hangs(
    provider: Provider, model: Make
) -> None:
    cut = answer("cut", {"content": "words " * 100}, truncateAfterChunks=8, latency=2)
    await provider.teach(cut, answer("again", {"content": "Whole."}))
    make = model(max_retries=0)
    async with asyncio.timeout(20):
        events, failure = await until_failure(make, ask("cut"))
    assert re.search("connection|broke off", str(failure))
    assert shown(events).startswith("words ")
    assert not answers(events)
    partial = Message("assistant", (Text(shown(events)),), end="failed")
    again = await collect(make(), ask("again", [text("cut"), partial]))
    assert shown(again) == "Whole."
    assert b"words words" in provider.requests[-1]


CUT_STREAMS = {
    "openai-chat": (
        'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":'
        '[{"index":0,"delta":{"role":"assistant","content":"half"},"finish_reason":null}]}',
        "",
    ),
    "openai-responses": (
        "event: response.output_text.delta",
        'data: {"type":"response.output_text.delta","item_id":"m","output_index":0,'
        '"content_index":0,"delta":"half","sequence_number":1}',
        "",
    ),
    "anthropic": (
        "event: message_start",
        'data: {"type":"message_start","message":{"id":"m","type":"message","role":"assistant",'
        '"model":"x","content":[],"stop_reason":null,"usage":{"input_tokens":1,"output_tokens":1}}}',
        "",
        "event: content_block_start",
        'data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}',
        "",
        "event: content_block_delta",
        'data: {"type":"content_block_delta","index":0,'
        '"delta":{"type":"text_delta","text":"half"}}',
        "",
    ),
}


async def test_a_stream_that_just_ends_is_no_answer(
    provider: Provider, model: Make, protocol: str
) -> None:
    provider.canned.append(event_stream(*CUT_STREAMS[protocol]))
    events, failure = await until_failure(model(max_retries=0), ask("x"))
    assert isinstance(failure, ModelError)
    assert shown(events) == "half"


@pytest.mark.parametrize("line", ['data: {"id": "c", "choi', "data: [1, 2]", "<html>"])
async def test_a_malformed_stream_fails_the_run(
    provider: Provider, model: Make, protocol: str, line: str
) -> None:
    event = "event: content_block_start" if protocol == "anthropic" else ""
    provider.canned.append(event_stream(event, line, "", ""))
    with pytest.raises(ModelError):
        await collect(model(max_retries=0)(), ask("x"))


@pytest.mark.parametrize(
    ("status", "kind", "advice"),
    [
        (401, "authentication_error", "key"),
        (404, "not_found_error", "name"),
        (429, "rate_limit_error", "limit"),
        (500, "api_error", "again"),
    ],
)
async def test_a_refusal_says_what_happened_and_what_to_do(
    provider: Provider, model: Make, status: int, kind: str, advice: str
) -> None:
    said = f"Sorry about {KEY}."
    await provider.teach(answer("x", {"error": {"message": said, "type": kind}, "status": status}))
    with pytest.raises(ModelError, match=advice) as failed:
        await collect(model(max_retries=0)(), ask("x"))
    assert failed.value.status == status
    assert "Sorry about" in str(failed.value)
    assert KEY not in str(failed.value)


async def test_a_server_that_is_not_there_fails_the_run() -> None:
    model = Model(NAMES["openai-chat"], base_url="http://127.0.0.1:9/v1", max_retries=0)
    with pytest.raises(ModelError, match="connection"):
        await collect(model(), ask("x"))
