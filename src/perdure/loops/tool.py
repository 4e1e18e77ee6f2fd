"""A tool: a plain Python function, its JSON schema from its type hints and its docstring.

Arguments are validated before the function is called; a synchronous function runs in a thread of
its own, which is left behind where its call is cut off (blocking.py). Whatever goes wrong in a tool
is a result that the model can read, never a dead run.
"""

from __future__ import annotations

import inspect
import json
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, update_wrapper
from typing import TYPE_CHECKING, Any, get_type_hints

from perdure.blocking import Blocking
from perdure.codec import encode
from perdure.entry import File, Json, ResultPart, Text, ToolCall, ToolResult
from perdure.errors import AppendRejectedError, ConfigurationError
from perdure.loop import ToolSpec

if TYPE_CHECKING:
    from pydantic_ai.tools import ToolDefinition

MAX_HANGING = 16
"""So many calls of one function may hang, cut off, before it is not called any more."""

ToolFunction = Callable[..., Any]
"""A function with type hints, `async` or not. Its name and docstring are what the model reads.

It returns text, a `Text`, a `File`, a list of those, or any value that can be written as JSON.
"""


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a tool may know of its call: give it a first parameter of this type.

    `idempotency_key` is the same for the same call whenever it is made again, so that a tool whose
    effect must happen once can hand it on. `show` streams output, text, while the tool runs; it can
    be called from any thread, and what it shows is provisional. After the end of the tool it does
    nothing.
    """

    session_id: str
    turn_id: str
    call_id: str
    idempotency_key: str
    show: Callable[[str], object]


class Tool:
    """A function as a model can call it.

    Raises:
        ConfigurationError: the function cannot be a tool; the text says why.

    """

    def __init__(self, function: ToolFunction) -> None:
        from pydantic_ai import Tool as SchemaTool
        from pydantic_ai.exceptions import UserError

        self._function = function
        self._blocking = Blocking(function)
        self._takes_context = False
        try:
            self._takes_context = _takes_context(function)
            bound = _without_context(function) if self._takes_context else function
            with warnings.catch_warnings():  # of what it returns no schema is needed
                warnings.filterwarnings("ignore", "Could not generate return schema", UserWarning)
                tool: SchemaTool[None] = SchemaTool(bound, takes_ctx=False)
        except (UserError, TypeError, NameError, AttributeError) as error:
            raise ConfigurationError(f"{function!r} cannot be a tool: {error}") from error
        self.name: str = tool.name
        self.definition: ToolDefinition = tool.tool_def
        self._schema = tool.function_schema

    async def run(self, call: ToolCall, context: ToolContext) -> tuple[bool, Sequence[ResultPart]]:
        """Validates the arguments and calls the function: whether it failed, and what it gave."""
        from pydantic import ValidationError

        if not isinstance(call.arguments, dict):
            return True, (Text(f"the arguments are no JSON object: {call.arguments!r}"),)
        try:
            arguments = self._schema.validator.validate_json(encode(call.arguments))
        except ValidationError as error:
            return True, (Text(_explain(error.errors(include_url=False, include_context=False))),)
        if (hanging := self._blocking.hanging) >= MAX_HANGING:
            return True, (Text(f"not run: {hanging} earlier calls of it still hang"),)
        positional, named = self._arguments(arguments)
        if self._takes_context:
            positional.insert(0, context)
        try:
            if self._schema.is_async:
                value = await self._function(*positional, **named)
            else:
                value = await self._blocking(*positional, **named)
                if inspect.isawaitable(value):
                    value = await value
            return False, _parts(value)
        except (Exception, SystemExit) as error:  # a tool's outermost frame
            return True, (Text(f"{type(error).__name__}: {error}"),)

    def _arguments(self, arguments: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        named = dict(arguments)
        positional = [named.pop(name) for name in self._schema.positional_fields]
        if self._schema.var_positional_field is not None:
            positional += named.pop(self._schema.var_positional_field)
        return positional, named


def _takes_context(function: ToolFunction) -> bool:
    first = next(iter(inspect.signature(function).parameters), None)
    return first is not None and get_type_hints(function).get(first) is ToolContext


def _without_context(function: ToolFunction) -> ToolFunction:
    """The function as the schema should see it: without its first parameter."""
    bound = partial(function, None)
    update_wrapper(bound, function)
    del bound.__wrapped__  # type: ignore[attr-defined] # its signature would be the whole one
    return bound


def _explain(problems: Sequence[Any]) -> str:
    lines = (f"{'.'.join(map(str, each['loc'])) or 'it'}: {each['msg']}" for each in problems)
    return "the arguments are not valid:\n" + "\n".join(lines)


def _parts(value: object) -> tuple[ResultPart, ...]:
    match value:
        case None:
            return ()
        case str():
            return (Text(value),)
        case Text() | File():
            return (value,)
        case list() | tuple() if value and all(isinstance(item, Text | File) for item in value):
            return tuple(value)
        case bytes():
            raise TypeError("a tool returns bytes as File(media_type, data)")
        case _:
            return (Text(to_json(value)),)


def definition_of(spec: ToolSpec) -> ToolDefinition:
    """A tool from around the run as the model layer is told of it."""
    from pydantic_ai.tools import ToolDefinition

    schema: Any = spec.schema
    return ToolDefinition(
        name=spec.name, description=spec.description, parameters_json_schema=schema
    )


def to_json(value: object) -> str:
    """JSON of a tool's value: builtins, dataclasses, pydantic models, msgspec structs, dates."""
    import msgspec
    from pydantic_core import to_json as dump

    return dump(value, fallback=msgspec.to_builtins).decode()


def checked_output(text: object) -> str:
    """What a tool shows, if it is text.

    Raises:
        TypeError: it is not; whoever shows it is told.

    """
    if not isinstance(text, str):
        raise TypeError(f"a tool shows text, not {type(text).__name__}")
    return text


def failed_result(call: ToolCall, why: str) -> ToolResult:
    """The result of a call that could not be made."""
    return ToolResult(call.call_id, (Text(why),), name=call.name, is_error=True)


def parse_arguments(raw: object) -> Json:
    """The arguments where they are a JSON object that is stored as it is, else as they came."""
    from pydantic_core import from_json

    if not raw:
        return {}
    try:
        parsed = from_json(raw, allow_inf_nan=False) if isinstance(raw, str) else raw
        encode(parsed)
    except (ValueError, AppendRejectedError):
        parsed = _cleaned(raw) if isinstance(raw, str) else None
    if isinstance(parsed, dict):
        return parsed
    return raw if isinstance(raw, str) else repr(raw)


def _cleaned(raw: str) -> Json:
    """The JSON with each lone surrogate, which models do write, as U+FFFD; None if it is none."""
    try:
        return json.loads(encode(json.loads(raw, parse_constant=_refuse_constant)))
    except (ValueError, RecursionError, AppendRejectedError):
        return None


def _refuse_constant(name: str) -> Json:
    raise ValueError(f"{name} is no JSON")
