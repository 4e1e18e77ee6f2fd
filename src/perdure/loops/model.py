"""A loop over any provider's model: ask, run the tools it calls, ask again until it is done.

It is the smallest loop that does that. Everything a provider needs to go on (signatures, ids) is
kept with the messages, so that a conversation can be resumed by another process, years later.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from perdure.clock import monotonic
from perdure.entry import File, Json, Message, Text, ToolCall, ToolResult
from perdure.errors import ConfigurationError, LoopError
from perdure.loop import LoopContext, LoopEvent, ToolEnded, ToolSpec
from perdure.loops.batch import Show, run_batch
from perdure.loops.deadline import Deadline
from perdure.loops.permission import answered_calls
from perdure.loops.provider import connect
from perdure.loops.request import Answer, Asking, Candidate
from perdure.loops.told import without_calls
from perdure.loops.tool import Tool, ToolContext, ToolFunction, definition_of, failed_result

if TYPE_CHECKING:
    from pydantic_ai.models import ModelRequestParameters


class Model:
    """Makes loops over one model, `provider:model` (`anthropic:…`, `openai-responses:…`, …).

    `tools` are plain functions (tool.py); of two tools of one name, here and around the run, the
    model is offered the one here. `settings` go to the model layer as they are (`max_tokens`,
    `temperature`, `thinking`, …).

    A request that failed before anything of its answer was shown is sent again up to `max_retries`
    times, after longer and longer waits, or as long as the provider asked for. Then the
    `fallbacks` are asked, in their order: names (of the same provider: at the same address, with
    the same key) or `Model`s, of which the address, the settings and the context window count.

    A run fails, and what it did is stored, when it still calls tools after `max_steps` answers,
    when its answers have cost `max_run_tokens` (input and output) and it calls tools, and when it
    takes longer than `max_run_s` seconds. A model is shown `limit_chars` of each tool result; all
    of it is stored. `context_window`, in tokens, is for models whose window is not known.
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
        fallbacks: Sequence[str | Model] = (),
        max_retries: int = 4,
        max_steps: int = 100,
        max_run_tokens: int | None = None,
        max_run_s: float | None = None,
        limit_chars: int | None = 50_000,
        context_window: int | None = None,
    ) -> None:
        self.name = name
        self.system = system
        self.settings = dict(settings or {})
        self.fallbacks = tuple(fallbacks)
        self.max_retries = max_retries
        self.max_steps = max_steps
        self.max_run_tokens = max_run_tokens
        self.max_run_s = max_run_s
        self.limit_chars = limit_chars
        self.context_window = context_window
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
            ConfigurationError: a model, its key or a tool cannot be used; the text says what is
                known or what to set. Nothing is stored or sent.

        """
        candidates = [self._candidate(), *(self._fallback(each) for each in self.fallbacks)]
        if self._tools is None:
            tools = [Tool(function) for function in self._functions]
            self._tools = {tool.name: tool for tool in tools}
            if len(self._tools) < len(tools):
                self._tools = None
                raise ConfigurationError("two tools have the same name")
        return ModelLoop(self, candidates, self._tools)

    def _candidate(self) -> Candidate:
        base_url, api_key = self._address
        connection = connect(self.name, base_url=base_url, api_key=api_key)
        return Candidate(self.name, connection, self.settings, self.context_window)

    def _fallback(self, given: str | Model) -> Candidate:
        if isinstance(given, Model):
            return given._candidate()
        is_same = given.partition(":")[0] == self.name.partition(":")[0]
        base_url, api_key = self._address if is_same else (None, None)
        other = Model(given, base_url=base_url, api_key=api_key, settings=self.settings)
        return other._candidate()


class ModelLoop:
    """One run."""

    def __init__(
        self, options: Model, candidates: Sequence[Candidate], tools: Mapping[str, Tool]
    ) -> None:
        self._options = options
        self._candidates = candidates
        self._tools = tools

    async def __call__(self, context: LoopContext) -> AsyncGenerator[LoopEvent, None]:
        """Answers, calling tools on the way.

        Raises:
            ModelError: the providers failed; `status` is the last one's, where it gave one.
            LoopError: the run reached one of its limits.

        """
        options = self._options
        deadline = Deadline(options.max_run_s)
        messages = list(await context.messages())
        is_summary = context.purpose == "summary"
        if is_summary:
            messages = without_calls(messages)
        around = {spec.name: spec for spec in await context.tools()}
        parameters = self._parameters(around, is_summary=is_summary)
        run_call = partial(self._run_call, context=context)
        calls: Sequence[ToolCall] = answered_calls(context, messages)
        tokens, steps = 0, 0
        answer = Answer()
        async with Asking(self._candidates, options.max_retries, deadline) as asking:
            while calls or steps < options.max_steps:
                if not calls:
                    steps += 1
                    messages += await context.joined()
                    answer = Answer()
                    asked = asking.ask(messages, parameters, answer, is_summary=is_summary)
                    async with aclosing(asked) as events:
                        async for event in events:
                            yield event
                    calls = answer.calls
                    if not calls and not answer.is_suspended:
                        self._check_said(answer)
                        return
                    tokens += answer.tokens
                    messages.append(answer.message)
                results: dict[str, ToolResult] = {}
                for call in calls:
                    result = self._unknown(call, around) or _cut_off(call, answer)
                    if result is not None:
                        results[call.call_id] = result
                        yield ToolEnded(result)
                known = [call for call in calls if call.call_id not in results]
                batch = run_batch(known, run_call, context, deadline)
                async with aclosing(batch) as running:
                    async for event in running:
                        if isinstance(event, ToolEnded):
                            results[event.result.call_id] = event.result
                        yield event
                if len(results) < len(calls):
                    return  # the others wait for an approval, which starts another run
                messages += [Message("tool", (results[call.call_id],)) for call in calls]
                calls = ()
                if options.max_run_tokens is not None and tokens >= options.max_run_tokens:
                    raise self._at_its_limit(
                        f"after {tokens} tokens (max_run_tokens is {options.max_run_tokens})"
                    )
        raise self._at_its_limit(f"after {options.max_steps} answers (max_steps)")

    def _check_said(self, answer: Answer) -> None:
        if any(
            isinstance(part, File) or (isinstance(part, Text) and part.text.strip())
            for part in answer.message.parts
        ):
            return
        if answer.finish == "length":
            raise LoopError(
                f"the model {self._options.name!r} reached its limit of tokens before it said "
                "anything; raise max_tokens in its settings, or ask for less at once"
            )
        if answer.finish == "content_filter":
            raise LoopError(
                f"the model {self._options.name!r} gave no answer: its provider's content filter "
                "kept it back. Say it in another way"
            )

    def _at_its_limit(self, where: str) -> LoopError:
        return LoopError(
            f"the model {self._options.name!r} still calls tools {where}; what it did is stored. "
            "Send a message to let it go on"
        )

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

    def _unknown(self, call: ToolCall, around: Mapping[str, ToolSpec]) -> ToolResult | None:
        """The result of a call of no tool: nobody is asked whether it may run."""
        if call.name in self._tools or call.name in around:
            return None
        known = ", ".join([*self._tools, *around]) or "none"
        return failed_result(call, f"there is no tool {call.name!r}; the tools are: {known}")

    async def _run_call(
        self,
        call: ToolCall,
        arguments: Json,
        show: Show,
        *,
        context: LoopContext,
    ) -> ToolResult:
        tool = self._tools.get(call.name)
        if tool is None:
            return await context.call_tool(call, arguments, show)
        key = context.idempotency_key(call.call_id)
        scope = ToolContext(context.session_id, context.turn_id, call.call_id, key, show)
        began = monotonic()
        is_error, parts = await tool.run(replace(call, arguments=arguments), scope)
        return ToolResult(
            call.call_id,
            parts,
            name=call.name,
            is_error=is_error,
            limit_chars=self._options.limit_chars,
            provider={"seconds": round(monotonic() - began, 3)},
        )


def _cut_off(call: ToolCall, answer: Answer) -> ToolResult | None:
    """The result of a call whose arguments ended with the answer's tokens; nobody is asked."""
    if answer.finish != "length" or isinstance(call.arguments, dict):
        return None
    return failed_result(
        call,
        "nothing was run: your answer reached its limit of tokens in the middle of this call's "
        "arguments. Do it in smaller steps",
    )
