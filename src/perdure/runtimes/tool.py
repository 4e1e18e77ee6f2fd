"""What a tool of a runtime is: a spec, and a function from checked arguments to an outcome.

The JSON schema of its arguments, and their check, are both made from one msgspec Struct.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

import msgspec
from msgspec import Struct

from perdure.entry import Json, ResultPart, Text
from perdure.loop import ToolSpec
from perdure.runtimes.contract import CallOrigin, Show

A = TypeVar("A", bound=Struct)

_SHOWN_CHARS = 200


class Outcome(Struct, frozen=True):
    """What a tool came to. `provider` is kept with the result and shown to no model."""

    parts: Sequence[ResultPart]
    is_error: bool = False
    provider: Mapping[str, Json] | None = None


class ToolFailure(Exception):
    """A tool cannot do what was asked; the text is its result, for the model to read."""


class Tool(Protocol):
    """A tool as a runtime runs it."""

    @property
    def spec(self) -> ToolSpec:
        """The tool as a model is told of it."""

    async def run(self, arguments: Json, origin: CallOrigin, show: Show) -> Outcome:
        """Runs it. Cancelling ends whatever it started.

        Raises:
            ToolFailure: it could not do it.

        """
        ...


class WorkspaceTool(Generic[A]):
    """A tool from a Struct of arguments and a function; `inner` has the arguments checked."""

    def __init__(
        self,
        name: str,
        description: str,
        arguments: type[A],
        inner: Callable[[A, CallOrigin, Show], Awaitable[Outcome]],
    ) -> None:
        self._arguments = arguments
        self._inner = inner
        self._spec = ToolSpec(name, description, _schema(arguments))

    @property
    def spec(self) -> ToolSpec:
        """The tool as a model is told of it."""
        return self._spec

    async def run(self, arguments: Json, origin: CallOrigin, show: Show) -> Outcome:
        """Checks the arguments and runs the function."""
        if not isinstance(arguments, dict):
            raise no_object(arguments)
        try:
            checked = msgspec.convert(arguments, self._arguments)
        except msgspec.ValidationError as error:
            raise ToolFailure(f"the arguments are not valid: {error}") from error
        return await self._inner(checked, origin, show)


def _schema(arguments: type[Struct]) -> dict[str, Any]:
    """The schema of a Struct of plain fields, without references."""
    (_,), components = msgspec.json.schema_components((arguments,), ref_template="{name}")
    schema: dict[str, Any] = components[arguments.__name__]
    del schema["title"]
    return schema


def no_object(arguments: Json) -> ToolFailure:
    """What a call comes to whose arguments are no JSON object, as those that were cut off are."""
    shown = arguments if isinstance(arguments, str) else repr(arguments)
    if len(shown) > _SHOWN_CHARS:
        shown = f"{shown[:_SHOWN_CHARS]}… ({len(shown)} characters)"
    return ToolFailure(f"nothing was run: the arguments are no JSON object: {shown}")


def said(text: str, **provider: Json) -> Outcome:
    """An outcome of one text."""
    return Outcome((Text(text),), provider=provider or None)
