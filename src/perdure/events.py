"""What a run and an agent tell the world, after the fact.

Run events are receipts: whatever a consumer sees as an entry is in the store already. Updates of a
message in the making are provisional: they name the entry to come and an offset in code points.
Lifecycle events go to a publisher, after the change is committed and in that order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol, runtime_checkable

from msgspec import Struct

from perdure.codec import Entry
from perdure.entry import Json, Message, Role, ToolResult
from perdure.store import Receipt


class _Event(Struct, frozen=True, tag_field="type"):
    @property
    def type(self) -> str:
        """The event's name."""
        tag = self.__struct_config__.tag
        assert isinstance(tag, str)
        return tag


class AgentStart(_Event, tag="agent_start", frozen=True):
    """The run starts; its input is stored, repairs of what came before it first."""

    turn_id: str
    receipt: Receipt
    leaf_id: str | None


class MessageStart(_Event, tag="message_start", frozen=True):
    """A message is in the making; it will be the entry `message_id`."""

    message_id: str
    role: Role


class MessageUpdate(_Event, tag="message_update", frozen=True):
    """More text of part `part`, from `offset` (in code points); provisional.

    `call_id` is the running call whose "output" it is; None for text of the assistant's message.
    """

    message_id: str
    part: int
    offset: int
    text: str
    kind: Literal["text", "reasoning", "output"]
    call_id: str | None = None


class RunNotice(_Event, tag="notice", frozen=True):
    """What the loop wants watchers to know now; it is no text of a message, and is not stored."""

    turn_id: str
    text: str


class MessageEnd(_Event, tag="message_end", frozen=True):
    """The message is stored, and with it a `tool_dispatched` for each of its calls."""

    message: Message
    receipt: Receipt
    leaf_id: str


class ToolStart(_Event, tag="tool_start", frozen=True):
    """A call, stored before, starts; its result will be the entry `message_id`."""

    call_id: str
    name: str
    arguments: Json
    message_id: str


class ToolEnd(_Event, tag="tool_end", frozen=True):
    """A call ended, and its result is stored."""

    result: ToolResult
    receipt: Receipt
    leaf_id: str


class AgentEnd(_Event, tag="agent_end", frozen=True):
    """The run is over; `messages` are those that it added."""

    messages: Sequence[Message]
    leaf_id: str | None


RunEvent = (
    AgentStart
    | MessageStart
    | MessageUpdate
    | MessageEnd
    | ToolStart
    | ToolEnd
    | RunNotice
    | AgentEnd
)


class SessionInit(_Event, tag="session_init", frozen=True):
    """An agent was opened, on a new session or on one that was there."""

    session_id: str
    leaf_id: str | None


class SessionBranched(_Event, tag="session_branched", frozen=True):
    """The leaf was moved."""

    from_id: str | None
    leaf_id: str | None


class SessionForked(_Event, tag="session_forked", frozen=True):
    """A child session was created; its own init follows."""

    session_id: str
    parent_id: str


class SessionCompacted(_Event, tag="session_compacted", frozen=True):
    """A summary was appended."""

    entry: Entry
    leaf_id: str


LifecycleEvent = SessionInit | SessionBranched | SessionForked | SessionCompacted


@runtime_checkable
class Publisher(Protocol):
    """An object that takes lifecycle events; a function that does is as good (`Publish`)."""

    def publish(self, event: LifecycleEvent, /) -> object:
        """Called synchronously, outside every lock; what it raises harms nothing."""


Publish = Callable[[LifecycleEvent], object]
"""A function that takes lifecycle events, as `Publisher.publish` does."""
