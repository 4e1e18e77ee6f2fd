"""What a command-line agent tells while it works, in words that do not depend on its protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Literal

from perdure.entry import File, Json, Text, ToolCall
from perdure.loop import Answer

CallState = Literal["pending", "running", "done", "failed"]


class Said:
    """More text of the assistant; `message_id` is the agent's own id of its message, if any."""

    __slots__ = ("kind", "message_id", "text")

    def __init__(
        self,
        text: str,
        kind: Literal["text", "reasoning"] = "text",
        message_id: str | None = None,
    ) -> None:
        self.text = text
        self.kind = kind
        self.message_id = message_id


class CallTold:
    """Something about a call: what is None is as it was told before.

    `is_first` says that the agent makes the call now, and not that it tells more of one. `is_whole`
    says that the arguments are complete, which the protocol may not tell otherwise; `is_asked` that
    they are those of a request for permission, where some agents put what a person is to read.
    `output` is all of it so far, `more` is added to it.
    """

    __slots__ = (
        "arguments",
        "call_id",
        "is_asked",
        "is_first",
        "is_whole",
        "more",
        "name",
        "output",
        "provider",
        "state",
    )

    def __init__(
        self,
        call_id: str,
        *,
        name: str | None = None,
        arguments: Json = None,
        state: CallState | None = None,
        is_first: bool = False,
        is_whole: bool = False,
        is_asked: bool = False,
        output: Sequence[Text | File] | None = None,
        more: str = "",
        provider: dict[str, Json] | None = None,
    ) -> None:
        self.call_id = call_id
        self.name = name
        self.arguments = arguments
        self.state = state
        self.is_first = is_first
        self.is_whole = is_whole
        self.is_asked = is_asked
        self.output = output
        self.more = more
        self.provider = provider


class Asked:
    """The agent asks whether it may make a call, and waits for the answer.

    `call` is what it asks about where that has no place in the journal: a call of an agent that it
    started itself, of which it tells nothing else.
    """

    __slots__ = ("answer", "call", "call_id", "reason")

    def __init__(self, call_id: str, reason: str | None, call: ToolCall | None = None) -> None:
        self.call_id = call_id
        self.reason = reason
        self.call = call
        self.answer: asyncio.Future[Answer | None] = asyncio.get_running_loop().create_future()
        """None where nobody will answer any more: the turn is being stopped."""


class Answered:
    """A person, a hook or a rule has answered what the agent asked."""

    __slots__ = ("answer", "asked")

    def __init__(self, asked: Asked, answer: Answer) -> None:
        self.asked = asked
        self.answer = answer


class TurnOver:
    """The agent has ended its turn; `problem` is why it did not end well."""

    __slots__ = ("problem",)

    def __init__(self, problem: BaseException | None = None) -> None:
        self.problem = problem


Told = Said | CallTold | Asked | Answered | TurnOver
