"""A loop over any provider's model: ask, run the tools it calls, ask again until it is done.

It is the smallest loop that does that. Everything a provider needs to go on (signatures, ids) is
kept with the messages, so that a conversation can be resumed by another process, years later.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from perdure.clock import monotonic
from perdure.entry import Json, Message, Part, ToolCall, ToolResult
from perdure.errors import (
    ConfigurationError,
    LoopError,
    ModelError,
    PerdureError,
    RuntimeLostError,
)
from perdure.loop import (
    Allowed,
    CallWaits,
    LoopContext,
    LoopEvent,
    MessageDelta,
    MessageEnded,
    MessageStarted,
    Refused,
    ToolDelta,
    ToolEnded,
    ToolSpec,
    ToolStarted,
    Waits,
)
from perdure.loops.permission import answered_calls, refused_result, verdict_of
from perdure.loops.provider import Connection, connect, provider_errors
from perdure.loops.tool import Tool, ToolContext, ToolFunction, definition_of, failed_result

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelResponse
    from pydantic_ai.models import Model as ProviderModel
    from pydantic_ai.models import ModelRequestParameters


class Model:
    """Makes loops over one model, `provider:model` (`anthropic:…`, `openai-responses:…`, …).

    `tools` are plain functions (tool.py). `settings` go to the model layer as they are
    (`max_tokens`, `temperature`, `thinking`, …); `max_retries` is how often a request that failed
    before its first token is sent again. A conversation that still calls tools after `max_steps`
    answers fails. A model is shown `limit_chars` of each tool result; all of it is stored.
    """

    def __init__(
        self,
        name: str,
        *,
        tools: Sequence[ToolFunction] = (),
        system: str | None = None,
        base_url: str | None = None,
        api_key: str | None = None,
        settings: Mapping[str, Any] | None = None,
        max_retries: int | None = None,
        max_steps: int = 100,
        limit_chars: int | None = 50_000,
    ) -> None:
        self.name = name
        self.system = system
        self.max_steps = max_steps
        self.limit_chars = limit_chars
        self.settings = dict(settings or {})
        if max_retries is not None:
            self.settings["max_retries"] = max_retries
        self._functions = tuple(tools)
        self._address = (base_url, api_key)
        self._tools: dict[str, Tool] | None = None

    steers = True

    def __repr__(self) -> str:
        return f"Model({self.name!r})"

    def __call__(self) -> ModelLoop:
        """The loop of one run; the first one imports the provider's library, which takes a second.

        Raises:
            MissingExtraError: the extra `models` is not installed.
            ConfigurationError: the model, its key or a tool cannot be used; the text says what is
                known or what to set. Nothing is stored or sent.

        """
        base_url, api_key = self._address
        connection = connect(self.name, base_url=base_url, api_key=api_key)
        if self._tools is None:
            tools = [Tool(function) for function in self._functions]
            self._tools = {tool.name: tool for tool in tools}
            if len(self._tools) < len(tools):
                self._tools = None
                raise ConfigurationError("two tools have the same name")
        return ModelLoop(self, connection, self._tools)


class ModelLoop:
    """One run."""

    def __init__(self, options: Model, connection: Connection, tools: Mapping[str, Tool]) -> None:
        self._options = options
        self._connection = connection
        self._tools = tools

    async def __call__(self, context: LoopContext) -> AsyncGenerator[LoopEvent, None]:
        """Answers, calling tools on the way.

        Raises:
            ModelError: the provider failed; `status` is its HTTP status where it gave one.
            LoopError: the model still calls tools after `max_steps` answers.

        """
        from perdure.loops.model_messages import without_calls

        messages = list(await context.messages())
        is_summary = context.purpose == "summary"
        if is_summary:
            messages = without_calls(messages)
        around = {spec.name: spec for spec in await context.tools()}
        calls: Sequence[ToolCall] = answered_calls(context, messages)
        async with self._connection:
            for _ in range(self._options.max_steps):
                if not calls:
                    messages += await context.joined()
                    answer = _Answer()
                    asked = self._ask(messages, around, answer, is_summary=is_summary)
                    async with aclosing(asked) as asking:
                        async for event in asking:
                            yield event
                    calls = answer.calls
                    if not calls and not answer.is_suspended:
                        return
                    messages.append(answer.message)
                results: dict[str, ToolResult] = {}
                async with aclosing(self._run_tools(calls, around, context)) as running:
                    async for event in running:
                        if isinstance(event, ToolEnded):
                            results[event.result.call_id] = event.result
                        yield event
                if len(results) < len(calls):
                    return  # the others wait for an approval, which starts another run
                messages += [Message("tool", (results[call.call_id],)) for call in calls]
                calls = ()
        raise LoopError(
            f"the model {self._options.name!r} still calls tools after {self._options.max_steps} "
            "answers (max_steps); what it did is stored. Send a message to let it go on"
        )

    async def _ask(
        self,
        messages: Sequence[Message],
        around: Mapping[str, ToolSpec],
        answer: _Answer,
        *,
        is_summary: bool,
    ) -> AsyncGenerator[LoopEvent, None]:
        """One request and its answer, streamed."""
        from pydantic_ai.direct import model_request_stream

        from perdure.loops.model_messages import from_response, interface_of, to_history

        model = self._connection.model
        with provider_errors(self._options.name, model):
            history = to_history(messages, model)
            if not history:
                raise LoopError("there is nothing in the conversation to send to a model")
            settings: Any = dict(self._options.settings)
            async with model_request_stream(
                model,
                history,
                model_settings=settings,
                model_request_parameters=self._parameters(around, is_summary=is_summary),
            ) as stream:
                started = False
                async for event in stream:
                    if not started:
                        started = True
                        yield MessageStarted()
                    if (delta := _delta(event)) is not None:
                        yield delta
                response = stream.get()
        if _is_broken_off(response, model):
            raise ModelError(
                f"the answer of the model {self._options.name!r} broke off before its end. "
                "What it had finished is stored; send again to go on"
            )
        parts, provider = from_response(response, interface_of(model))
        if is_summary:
            parts = tuple(part for part in parts if not isinstance(part, ToolCall))
        answer.take(parts, provider, is_suspended=response.state == "suspended")
        if not started:
            yield MessageStarted()
        yield MessageEnded(parts, provider)

    def _parameters(
        self, around: Mapping[str, ToolSpec], *, is_summary: bool
    ) -> ModelRequestParameters:
        from pydantic_ai.messages import InstructionPart
        from pydantic_ai.models import ModelRequestParameters

        system = self._options.system
        tools = [tool.definition for tool in self._tools.values()]
        tools += [definition_of(spec) for name, spec in around.items() if name not in self._tools]
        return ModelRequestParameters(
            function_tools=[] if is_summary else tools,
            instruction_parts=[InstructionPart(content=system)] if system else None,
        )

    async def _run_tools(
        self, calls: Sequence[ToolCall], around: Mapping[str, ToolSpec], context: LoopContext
    ) -> AsyncGenerator[LoopEvent, None]:
        """Runs the calls side by side; each result comes as soon as its tool ends."""
        events: asyncio.Queue[LoopEvent | RuntimeLostError] = asyncio.Queue()
        tasks = [
            asyncio.create_task(self._run_tool(call, around, context, events)) for call in calls
        ]
        try:
            running = len(tasks)
            while running:
                event = await events.get()
                if isinstance(event, RuntimeLostError):
                    raise event
                running -= isinstance(event, ToolEnded | CallWaits)
                yield event
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _run_tool(
        self,
        call: ToolCall,
        around: Mapping[str, ToolSpec],
        context: LoopContext,
        events: asyncio.Queue[LoopEvent | RuntimeLostError],
    ) -> None:
        loop = asyncio.get_running_loop()

        def show(text: str) -> None:
            loop.call_soon_threadsafe(events.put_nowait, ToolDelta(call.call_id, text))

        last: LoopEvent | RuntimeLostError
        try:
            match await verdict_of(context, call):
                case Waits(reason=reason, arguments=changed):
                    last = CallWaits(call.call_id, reason, changed)
                case Refused(reason=reason):
                    last = ToolEnded(refused_result(call, reason))
                case Allowed(arguments=arguments):
                    events.put_nowait(ToolStarted(call.call_id))
                    last = ToolEnded(await self._result(call, arguments, around, context, show))
        except RuntimeLostError as error:
            last = error
        except PerdureError as error:  # a hook or the store; the run says which
            last = ToolEnded(failed_result(call, str(error)))
        loop.call_soon_threadsafe(events.put_nowait, last)  # after what it has shown

    async def _result(
        self,
        call: ToolCall,
        arguments: Json,
        around: Mapping[str, ToolSpec],
        context: LoopContext,
        show: Callable[[str], object],
    ) -> ToolResult:
        tool = self._tools.get(call.name)
        if tool is None and call.name in around:
            return await context.call_tool(call, arguments, show)
        if tool is None:
            known = ", ".join([*self._tools, *around]) or "none"
            return failed_result(call, f"there is no tool {call.name!r}; the tools are: {known}")
        key = context.idempotency_key(call.call_id)
        scope = ToolContext(context.session_id, context.turn_id, call.call_id, key, show)
        began = monotonic()
        try:
            is_error, parts = await tool.run(replace(call, arguments=arguments), scope)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            return failed_result(call, "the tool cancelled itself")
        return ToolResult(
            call.call_id,
            parts,
            name=call.name,
            is_error=is_error,
            limit_chars=self._options.limit_chars,
            provider={"seconds": round(monotonic() - began, 3)},
        )


class _Answer:
    """What a request came to."""

    def __init__(self) -> None:
        self.message = Message("assistant", ())
        self.is_suspended = False

    def take(self, parts: Sequence[Part], provider: Any, *, is_suspended: bool) -> None:
        self.message = Message("assistant", parts, provider=provider)
        self.is_suspended = is_suspended

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return self.message.tool_calls


def _delta(event: object) -> MessageDelta | None:
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
