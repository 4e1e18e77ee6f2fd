"""One request to a model and its answer, streamed: asked again while nothing was shown.

A provider that fails before anything of its answer was shown is asked again, later; where that does
not help, the next model of the list is. An answer that breaks off once text was shown is not begun
anew behind the reader's back: the run fails, and what was shown is kept.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from typing import TYPE_CHECKING, Any

from perdure import clock
from perdure.entry import Json, Message, Part, ToolCall
from perdure.errors import LoopError, ModelError
from perdure.loop import LoopEvent, MessageDelta, MessageEnded, MessageStarted, Notice
from perdure.loops.deadline import Deadline
from perdure.loops.provider import Connection, provider_errors
from perdure.loops.retry import wait_before

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelResponse
    from pydantic_ai.models import Model as ProviderModel
    from pydantic_ai.models import ModelRequestParameters


class Candidate:
    """A model that may be asked, its settings, and its context window where that is known."""

    def __init__(
        self,
        name: str,
        connection: Connection,
        settings: Mapping[str, Any],
        context_window: int | None,
    ) -> None:
        self.name = name
        self.model = connection.model
        self.settings = dict(settings)
        self._connection = connection
        self._context_window = context_window

    @property
    def context_window(self) -> int | None:
        """In tokens."""
        return self._context_window or self.model.context_window

    async def enter(self, stack: AsyncExitStack) -> None:
        """Opens its connection for as long as the stack lasts."""
        await stack.enter_async_context(self._connection)


class Answer:
    """What a request came to."""

    def __init__(self) -> None:
        self.message = Message("assistant", ())
        self.is_suspended = False
        self.finish: str | None = None
        """Why it ended, in the model layer's word; `length` and `content_filter` cut it off."""
        self.tokens = 0
        """What it cost, in tokens of input and output, as its provider counted them."""

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The calls that it makes."""
        return self.message.tool_calls


class Asking:
    """The requests of one run. A model that was given up is not asked again in this run."""

    def __init__(
        self, candidates: Sequence[Candidate], max_retries: int, deadline: Deadline
    ) -> None:
        self._candidates = list(candidates)
        self._max_retries = max_retries
        self._deadline = deadline
        self._stack = AsyncExitStack()
        self._is_open = False

    async def __aenter__(self) -> Asking:
        return self

    async def __aexit__(self, *details: Any) -> None:
        await self._stack.aclose()

    async def ask(
        self,
        messages: Sequence[Message],
        parameters: ModelRequestParameters,
        answer: Answer,
        *,
        is_summary: bool = False,
    ) -> AsyncGenerator[LoopEvent, None]:
        """One answer; a summary is without calls, whatever the model said.

        Raises:
            ModelError: every model failed, or one in mid-answer; the last failure.
            LoopError: there is nothing to send, or the deadline is over.

        """
        attempt = 0
        while True:
            current = self._candidates[0]
            if not self._is_open:
                await current.enter(self._stack)
                self._is_open = True
            is_shown = False
            asked = self._ask_once(current, messages, parameters, answer, is_summary)
            try:
                async with aclosing(asked) as asking:
                    async for event in asking:
                        is_shown = True
                        yield event
                return
            except ModelError as error:
                if is_shown:
                    raise
                failure = error
            attempt += 1
            wait_s = wait_before(attempt, failure) if attempt <= self._max_retries else None
            if wait_s is not None:
                yield Notice(f"{_failed(current, failure)}; asking again in {wait_s:.1f} s")
                await self._deadline.meet(clock.sleep(wait_s))
                continue
            if len(self._candidates) == 1:
                raise failure
            del self._candidates[0]
            attempt, self._is_open = 0, False
            yield Notice(f"{_failed(current, failure)}; asking {self._candidates[0].name} instead")

    async def _ask_once(
        self,
        current: Candidate,
        messages: Sequence[Message],
        parameters: ModelRequestParameters,
        answer: Answer,
        is_summary: bool,
    ) -> AsyncGenerator[LoopEvent, None]:
        from pydantic_ai.direct import model_request_stream

        from perdure.loops.model_messages import from_response, interface_of, to_history

        model = current.model
        is_started = False
        with provider_errors(current.name, model):
            history = to_history(messages, model)
            if not history:
                raise LoopError("there is nothing in the conversation to send to a model")
            settings: Any = {**current.settings, "max_retries": 0}
            request = model_request_stream(
                model, history, model_settings=settings, model_request_parameters=parameters
            )
            async with AsyncExitStack() as stack:
                stream = await self._deadline.meet(stack.enter_async_context(request))
                events = aiter(stream)
                while (event := await self._deadline.meet(anext(events, None))) is not None:
                    if (delta := delta_of(event)) is not None:
                        if not is_started:
                            is_started = True
                            yield MessageStarted()
                        yield delta
                response = stream.get()
        if _is_broken_off(response, model):
            raise ModelError(
                f"the answer of the model {current.name!r} broke off before its end. "
                "What it had finished is stored; send again to go on",
                is_transient=True,
            )
        parts, provider = from_response(response, interface_of(model), current.context_window)
        if is_summary:
            parts = tuple(part for part in parts if not isinstance(part, ToolCall))
        _fill(answer, parts, provider, response)
        if not is_started:
            yield MessageStarted()
        yield MessageEnded(parts, provider)


def _fill(answer: Answer, parts: Sequence[Part], provider: Json, response: ModelResponse) -> None:
    answer.message = Message("assistant", parts, provider=provider)
    answer.is_suspended = response.state == "suspended"
    answer.finish = response.finish_reason
    answer.tokens = response.usage.total_tokens


def _failed(candidate: Candidate, error: ModelError) -> str:
    status = f" ({error.status})" if error.status is not None else ""
    return f"{candidate.name} failed{status}"


def delta_of(event: object) -> MessageDelta | None:
    """What an event of the model layer's stream shows."""
    from pydantic_ai.messages import (
        PartDeltaEvent,
        PartStartEvent,
        TextPart,
        TextPartDelta,
        ThinkingPart,
        ThinkingPartDelta,
    )

    match event:
        case PartStartEvent(index=index, part=TextPart(content=text)):
            return MessageDelta(text, index) if text else None
        case PartStartEvent(index=index, part=ThinkingPart(content=text)):
            return MessageDelta(text, index, "reasoning") if text else None
        case PartDeltaEvent(index=index, delta=TextPartDelta(content_delta=text)):
            return MessageDelta(text, index) if text else None
        case PartDeltaEvent(index=index, delta=ThinkingPartDelta(content_delta=str(text))):
            return MessageDelta(text, index, "reasoning") if text else None
        case _:
            return None


_SAYS_WHY_IT_ENDS = frozenset({"OpenAIChatModel", "OpenAIResponsesModel", "AnthropicModel"})


def _is_broken_off(response: ModelResponse, model: ProviderModel) -> bool:
    """Whether a stream ended without saying why: a connection that was closed in the middle.

    The layer reads a missing reason as "stop", so for the protocols that always give one it is
    the provider's own word that counts.
    """
    if response.state in ("incomplete", "interrupted"):
        return True
    if type(model).__name__ not in _SAYS_WHY_IT_ENDS or response.finish_reason == "content_filter":
        return False
    return (response.provider_details or {}).get("finish_reason") is None
