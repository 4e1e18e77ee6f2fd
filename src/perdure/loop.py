"""The Loop contract: anything that turns a model's view into events.

A loop is an async generator of loop events. It is suspended at each `yield` until what it yielded
is stored, so after `yield MessageEnded(...)` its tool calls are durable and may start. A factory
makes one loop per run. A loop stores nothing, assigns no entry ids and knows no store.

The order: `MessageStarted`, any `MessageDelta`s, `MessageEnded` for each message of the assistant;
for each of its calls `ToolStarted`, any `ToolDelta`s, `ToolEnded` (those of parallel calls may
interleave). On cancellation a loop stops its tools and lets CancelledError through.

A loop asks `permit` before it starts a call's tool. A call that has to wait for somebody's
approval is yielded as `CallWaits` and left without a result; when all others have theirs the run
ends. The answer starts another run, whose `answers` say what became of the calls that waited: they
come first. What joined the run meanwhile (`joined`) belongs before the next request of the model.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from inspect import isasyncgenfunction
from typing import Literal, Protocol, cast, runtime_checkable

from msgspec import Struct

from perdure.entry import Json, Message, Part, ToolCall, ToolResult
from perdure.errors import ConfigurationError

Purpose = Literal["turn", "summary"]


class ToolSpec(Struct, frozen=True):
    """A tool as a model is told of it; `schema` is the JSON schema of its arguments, an object.

    `full_name` is what hooks know it by besides: `mcp__SERVER__TOOL` of an MCP server's tool.
    """

    name: str
    description: str
    schema: Json
    full_name: str | None = None


class Allowed(Struct, frozen=True):
    """The call may run, with these arguments: its own, or others that somebody put there."""

    arguments: Json


class Refused(Struct, frozen=True):
    """The call does not run; the reason is its result, for the model to read."""

    reason: str


class Waits(Struct, frozen=True):
    """The call waits for somebody's approval; of these arguments, where they are not its own."""

    reason: str | None = None
    arguments: Json = None


Verdict = Allowed | Refused | Waits
Answer = Allowed | Refused


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

    @property
    def answers(self) -> Mapping[str, Answer]:
        """By their call ids, the calls at the leaf that waited and have their answer now.

        They have no result yet: the run begins with `ToolStarted` and `ToolEnded` for each.
        """

    async def tools(self) -> Sequence[ToolSpec]:
        """The tools around the run, such as its runtime's; none in the library.

        Raises:
            RuntimeLostError: the runtime cannot be reached; let it through.
        """
        ...

    async def call_tool(
        self, call: ToolCall, arguments: Json, show: Callable[[str], object]
    ) -> ToolResult:
        """Runs one of `tools` with the permitted arguments; `show` streams its output.

        Whatever goes wrong in the tool is a result with `is_error`.

        Raises:
            RuntimeLostError: the runtime went away; let it through: the turn ends interrupted.
        """
        ...

    async def permit(self, call: ToolCall) -> Verdict:
        """Whether the tool of a stored call may start; asked once for each call, before it does."""
        ...

    async def ask(self, call: ToolCall, reason: str | None = None) -> Answer:
        """Waits in mid-run for the answer of a person: for protocols that cannot be left meanwhile.

        The session is `waiting` until then; after a crash the call is an interrupted one.
        """
        ...

    async def joined(self) -> Sequence[Message]:
        """Messages that joined the run since this was asked last; they are stored at the leaf.

        Steered messages of users and what hooks had to say; ask when no call is open, before each
        request of the model. A loop whose factory has `steers = True` promises to ask.
        """
        ...

    def remembered(self, key: str) -> Json:
        """What a loop of this session yielded last as `Remembered` with this key, or None."""


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


class CallWaits(Struct, frozen=True):
    """A stored call waits for an approval: the run ends without its result.

    `arguments` are what is to be approved, where they are not the call's own.
    """

    call_id: str
    reason: str | None = None
    arguments: Json = None


class Remembered(Struct, frozen=True):
    """What a later run needs to know, such as an agent's own session id. At most 2 KiB of JSON."""

    key: str
    value: Json


class Notice(Struct, frozen=True):
    """What whoever watches should know now: a provider is asked again in so many seconds.

    Told at any moment, and never stored: it is neither part of a message nor seen by a model.
    """

    text: str


LoopEvent = (
    MessageStarted
    | MessageDelta
    | MessageEnded
    | ToolStarted
    | ToolDelta
    | ToolEnded
    | CallWaits
    | Remembered
    | Notice
)


@runtime_checkable
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
