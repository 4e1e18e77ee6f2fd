"""The Loop contract: anything that turns a model's view into events.

A loop is an async generator of loop events. It is suspended at each `yield` until what it yielded
is stored, so after `yield MessageEnded(...)` its tool calls are durable and may start. A factory
makes one loop per run. A loop stores nothing, assigns no entry ids and knows no store.

The order: `MessageStarted`, any `MessageDelta`s, `MessageEnded` for each message of the assistant;
for each of its calls `ToolStarted`, any `ToolDelta`s, `ToolEnded` (those of parallel calls may
interleave). On cancellation a loop stops its tools and lets CancelledError through.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from inspect import isasyncgenfunction
from typing import Literal, Protocol, cast

from msgspec import Struct

from perdure.entry import Json, Message, Part, ToolResult
from perdure.errors import ConfigurationError

Purpose = Literal["turn", "summary"]


class LoopContext(Protocol):
    """What a loop is given for one run."""

    @property
    def session_id(self) -> str:
        """The session that the run belongs to."""

    @property
    def turn_id(self) -> str:
        """The run's turn; part of every idempotency key."""

    @property
    def purpose(self) -> Purpose:
        """A summary is answered in one message, calls no tool, and is not stored."""

    @property
    def input(self) -> Sequence[Message]:
        """The messages that this run was given, ephemeral ones included; may be empty."""

    async def messages(self) -> Sequence[Message]:
        """The model view up to and with the input; O(its length), so ask for it if needed."""

    def idempotency_key(self, call_id: str) -> str:
        """The stable key of a call that was yielded in a `MessageEnded`."""


class MessageStarted(Struct, frozen=True):
    """An assistant's message begins."""


class MessageDelta(Struct, frozen=True):
    """More text of the message's part number `part`; provisional until `MessageEnded`."""

    text: str
    part: int = 0
    kind: Literal["text", "reasoning"] = "text"


class MessageEnded(Struct, frozen=True):
    """The assistant's message, whole. When the loop resumes, it and its calls are stored."""

    parts: Sequence[Part]
    provider: Json = None


class ToolStarted(Struct, frozen=True):
    """The tool of a stored call starts."""

    call_id: str


class ToolDelta(Struct, frozen=True):
    """More of a running tool's output; provisional until `ToolEnded`."""

    call_id: str
    text: str


class ToolEnded(Struct, frozen=True):
    """The result of a started call. When the loop resumes, it is stored."""

    result: ToolResult


LoopEvent = MessageStarted | MessageDelta | MessageEnded | ToolStarted | ToolDelta | ToolEnded


class Loop(Protocol):
    """One run's inner agent: called once, with that run's context."""

    def __call__(self, context: LoopContext, /) -> AsyncGenerator[LoopEvent, None]:
        """The run, as loop events. An exception that leaves it fails the run."""


LoopFactory = Callable[[], Loop]
"""Makes the loop of one run, before anything of that run is stored; raises if it cannot start."""


def as_factory(given: object, name: str) -> LoopFactory:
    """What was given as a loop factory, unless it is plain that it is none; it is not called.

    Raises:
        ConfigurationError: it cannot be called, or it is a loop; the text has `name`.
    """
    if not callable(given):
        raise ConfigurationError(f"{name} is no loop factory: it cannot be called")
    if isasyncgenfunction(given) or isasyncgenfunction(type(given).__call__):
        raise ConfigurationError(
            f"{name} is a loop, not a loop factory: give a function without arguments that "
            "returns it, so that each run has a loop of its own"
        )
    return cast("LoopFactory", given)
