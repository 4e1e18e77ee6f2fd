"""Plain functions as tools: their schemas, their arguments, their results."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import Any

import msgspec
import pydantic
import pytest

from perdure.entry import File, Text, ToolCall
from perdure.errors import ConfigurationError
from perdure.loops.tool import Tool, ToolContext, parse_arguments


@pytest.fixture(scope="module", autouse=True)
def _imported() -> None:
    """The first tool imports the model layer: not while an event loop is timed."""
    Tool(text_of)


def context(show: Callable[[str], object] = print) -> ToolContext:
    return ToolContext("s-1", "turn-1", "call-1", "key-1", show)


async def run(function: Callable[..., Any], arguments: object = None) -> tuple[bool, Any]:
    tool = Tool(function)
    call = ToolCall("call-1", tool.name, {} if arguments is None else arguments)
    failed, parts = await tool.run(call, context())
    return failed, parts


def text_of(parts: Any) -> str:
    (part,) = parts
    assert isinstance(part, Text)
    return part.text


class Unit(Enum):
    DAY = "day"
    WEEK = "week"


class Place(pydantic.BaseModel):
    city: str
    country: str = "IT"


def forecast(where: Place, when: date, unit: Unit = Unit.DAY, *, limit: int = 3) -> str:
    """Tells the weather.

    Args:
        where: The place.
        when: The first day.
        unit: How far.
        limit: How many lines.
    """
    return f"{where.city} {where.country} {when.year} {unit.name} {limit}"


async def test_the_schema_comes_from_type_hints_and_docstring() -> None:
    definition = Tool(forecast).definition
    assert definition.name == "forecast"
    assert definition.description is not None
    assert "Tells the weather." in definition.description
    schema = definition.parameters_json_schema
    assert schema["required"] == ["where", "when"]
    assert schema["properties"]["when"]["description"] == "The first day."
    assert schema["properties"]["limit"]["type"] == "integer"


async def test_arguments_are_validated_and_converted() -> None:
    arguments = {"where": {"city": "Rome"}, "when": "2026-11-30", "unit": "week", "limit": "7"}
    assert await run(forecast, arguments) == (False, (Text("Rome IT 2026 WEEK 7"),))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"where": {"city": 1}, "when": "x"}, "where.city"),
        ({}, "where"),
        ("{not json", "no JSON object"),
        ([1], "no JSON object"),
        ({"where": {"city": "x"}, "when": "2026-01-01", "more": 1}, "more"),
    ],
)
async def test_arguments_that_do_not_fit_are_an_error_result_that_says_where(
    arguments: object, told: str
) -> None:
    failed, parts = await run(forecast, arguments)
    assert failed
    assert told in text_of(parts)


@pytest.mark.parametrize(
    ("raw", "arguments"),
    [
        ('{"a": "\\ud83d"}', {"a": "\ufffd"}),
        ('{"a": "\\ud83d\\ude00"}', {"a": "\U0001f600"}),
        ('{"a": Infinity}', '{"a": Infinity}'),
        ('{"a": "\\ud83d", "b": NaN}', '{"a": "\\ud83d", "b": NaN}'),
        ('{"comm', '{"comm'),
        ("[1]", "[1]"),
    ],
)
def test_arguments_are_an_object_or_stay_as_they_came(raw: str, arguments: object) -> None:
    assert parse_arguments(raw) == arguments


async def test_a_first_parameter_of_the_context_type_is_the_context_and_not_in_the_schema() -> None:
    def keyed(call: ToolContext, name: str) -> str:
        """Uses its key."""
        return f"{name} {call.idempotency_key} {call.session_id} {call.turn_id} {call.call_id}"

    assert list(Tool(keyed).definition.parameters_json_schema["properties"]) == ["name"]
    assert await run(keyed, {"name": "n"}) == (False, (Text("n key-1 s-1 turn-1 call-1"),))


async def test_a_method_and_variadic_parameters_work() -> None:
    class Shop:
        def buy(self, context: ToolContext, first: str, *others: str, **more: int) -> list[Any]:
            """Buys."""
            return [first, others, more, context.call_id]

    failed, parts = await run(Shop().buy, {"first": "a", "others": ["b", "c"], "n": 2})
    assert (failed, text_of(parts)) == (False, '["a",["b","c"],{"n":2},"call-1"]')


async def test_a_synchronous_tool_runs_in_a_thread_and_an_asynchronous_one_in_the_loop() -> None:
    def sync() -> bool:
        return threading.current_thread() is threading.main_thread()

    async def here() -> bool:
        await asyncio.sleep(0)
        return threading.current_thread() is threading.main_thread()

    assert await run(sync) == (False, (Text("false"),))
    assert await run(here) == (False, (Text("true"),))


async def test_a_tool_that_raises_is_an_error_result() -> None:
    async def broken() -> None:
        raise LookupError("not there")

    def leaves() -> None:
        raise SystemExit(2)

    assert await run(broken) == (True, (Text("LookupError: not there"),))
    assert await run(leaves) == (True, (Text("SystemExit: 2"),))


@dataclass
class Point:
    x: int


class Row(msgspec.Struct):
    day: date


PICTURE = File("image/png", b"\x89PNG")


@pytest.mark.parametrize(
    ("value", "parts"),
    [
        (None, ()),
        ("text", (Text("text"),)),
        (PICTURE, (PICTURE,)),
        ([Text("a"), PICTURE], (Text("a"), PICTURE)),
        ([], (Text("[]"),)),
        ({"a": [1, None]}, (Text('{"a":[1,null]}'),)),
        (Point(1), (Text('{"x":1}'),)),
        (Place(city="Rome"), (Text('{"city":"Rome","country":"IT"}'),)),
        (Row(date(2026, 1, 2)), (Text('{"day":"2026-01-02"}'),)),
    ],
)
async def test_what_a_tool_returns_becomes_parts(value: object, parts: object) -> None:
    def give() -> Row:
        return value  # type: ignore[return-value] # any value, and no schema of it

    assert await run(give) == (False, parts)


@pytest.mark.parametrize("value", [b"bytes", object()])
async def test_a_value_that_cannot_be_written_is_an_error_result(value: object) -> None:
    def give() -> object:
        return value

    failed, _ = await run(give)
    assert failed


@pytest.mark.parametrize("thing", [3, lambda context: context, Point(1)])
def test_what_cannot_be_a_tool_is_refused(thing: Any) -> None:
    if callable(thing):
        thing.__annotations__ = {"context": "Missing"}
    with pytest.raises(ConfigurationError, match="cannot be a tool"):
        Tool(thing)


@pytest.mark.parametrize(
    ("raw", "arguments"),
    [
        ("", {}),
        (None, {}),
        ('{"a": 1.0}', {"a": 1.0}),
        ({"a": 1}, {"a": 1}),
        ("{broken", "{broken"),
        ("[1]", "[1]"),
        ('{"a": NaN}', '{"a": NaN}'),
        ('{"a": 123456789012345678901234567890}', {"a": 123456789012345678901234567890}),
    ],
)
def test_arguments_are_an_object_that_can_be_stored_or_stay_as_they_came(
    raw: object, arguments: object
) -> None:
    assert parse_arguments(raw) == arguments
