"""A whole agent of the OpenAI Agents SDK as a loop: models, tools, handoffs and guardrails its own.

Its session is the Perdure session, and no other: each run begins from the model view. An answer is
stored before its tools start: the SDK awaits its hook at the end of an answer before it runs any of
them, and the hook awaits the store. Each result is stored when its tool ends. Reasoning items and
the provider's ids are kept, so that a conversation that was loaded goes on as it was.

The SDK sends traces to its maker by default; here it does not, unless a `run_config` says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from perdure.entry import Json, ToolCall
from perdure.errors import (
    ConfigurationError,
    LoopError,
    MissingExtraError,
    ModelError,
    PerdureError,
)
from perdure.loop import LoopContext, LoopEvent, MessageDelta, MessageEnded
from perdure.loops.bridge import Bridge, bridged
from perdure.loops.permission import answered_calls
from perdure.loops.told import without_calls

if TYPE_CHECKING:
    from agents import Agent

CATCH_UP_S = 5.0
"""How long the end of an answer waits for the texts before it to be shown."""

_OURS = frozenset({"session", "hooks", "previous_response_id", "conversation_id", "context"})
_ENDS = frozenset({"response.completed", "response.incomplete", "response.failed"})
_SHOWN = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "text",
    "response.reasoning_summary_text.delta": "reasoning",
    "response.reasoning_text.delta": "reasoning",
}


class OpenAIAgent:
    """Makes loops over an `agents.Agent`.

    `context` is the object that its tools and instructions get in every run, or `make_context`
    makes it from a run's context. `options` go to `Runner.run_streamed` (`run_config`, `max_turns`,
    …). With `offers_tools` it is offered the tools around the run beside its own. `context_window`,
    in tokens, lets a session be compacted in time; the SDK does not know it.
    """

    steers = True

    def __init__(
        self,
        agent: Agent[Any],
        *,
        context: Any = None,
        make_context: Callable[[LoopContext], Any] | None = None,
        offers_tools: bool = True,
        limit_chars: int | None = 50_000,
        context_window: int | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.agent = agent
        self.context = context
        self.make_context = make_context
        self.offers_tools = offers_tools
        self.limit_chars = limit_chars
        self.context_window = context_window
        self.options = dict(options or {})

    def __repr__(self) -> str:
        return f"OpenAIAgent({getattr(self.agent, 'name', None)!r})"

    def __call__(self) -> OpenAILoop:
        """The loop of one run.

        Raises:
            MissingExtraError: the extra `openai-agents` is not installed.
            ConfigurationError: it is no agent of the SDK. Nothing is stored or sent.

        """
        if find_spec("agents") is None:
            raise MissingExtraError("an agent of the OpenAI Agents SDK", "openai-agents")
        from agents import Agent

        import perdure.loops.openai_tools  # noqa: F401 - now, and not in the event loop

        if not isinstance(self.agent, Agent):
            raise ConfigurationError(f"{self.agent!r} is no agent of the OpenAI Agents SDK")
        if taken := _OURS & self.options.keys():
            raise ConfigurationError(
                f"{sorted(taken)[0]!r} is not for you to set: the conversation is Perdure's"
            )
        return OpenAILoop(self)


class OpenAILoop:
    """One run."""

    def __init__(self, options: OpenAIAgent) -> None:
        self._options = options

    async def __call__(self, context: LoopContext) -> AsyncGenerator[LoopEvent, None]:
        """Runs the agent.

        Raises:
            ModelError: its model's provider failed.
            LoopError: the SDK ended the run: too many turns, a guardrail.

        """
        run = self._summarise if context.purpose == "summary" else self._run
        async with aclosing(bridged(lambda bridge: run(context, bridge))) as events:
            async for event in events:
                yield event

    def _run_config(self) -> Any:
        from agents import RunConfig

        return self._options.options.get("run_config") or RunConfig(tracing_disabled=True)

    async def _summarise(self, context: LoopContext, bridge: Bridge) -> None:
        """One answer of its model, without its tools, handoffs and output type."""
        from agents import Runner

        from perdure.loops.openai_items import to_items

        plain: Any = self._options.agent.clone(
            tools=[],
            handoffs=[],
            mcp_servers=[],
            output_type=None,
            input_guardrails=[],
            output_guardrails=[],
            hooks=None,
        )
        items: Any = to_items(without_calls(await context.messages()))
        result = Runner.run_streamed(
            plain, items, max_turns=1, hooks=None, run_config=self._run_config()
        )
        try:
            async for _ in result.stream_events():
                pass
        except Exception as error:  # the edge of foreign code
            raise _explain(error) from error
        for response in result.raw_responses:
            await bridge.say(self._ended(response, plain))

    async def _run(self, context: LoopContext, bridge: Bridge) -> None:
        from agents import RunContextWrapper, Runner

        from perdure.loops.openai_items import to_items
        from perdure.loops.openai_tools import Tools

        options = self._options
        own = options.context if options.make_context is None else options.make_context(context)
        around = await context.tools() if options.offers_tools else ()
        tools = Tools(context, bridge, around, options.limit_chars)
        agent = tools.adopt(options.agent)
        messages = list(await context.messages())
        if calls := answered_calls(context, messages):
            try:
                messages += await tools.resume(agent, RunContextWrapper(own), calls)
            except ExceptionGroup as group:
                raise tools.lost or _explain(group.exceptions[0]) from group
        answers = _Answers(self, bridge, tools)
        config = self._run_config()
        joining = _Joining(context, config.call_model_input_filter)
        given = {key: value for key, value in options.options.items() if key != "run_config"}
        items: Any = to_items(messages)
        result = Runner.run_streamed(
            agent,
            items,
            context=own,
            hooks=answers.hooks(),
            run_config=replace(config, call_model_input_filter=joining),
            **given,
        )
        reading = asyncio.create_task(answers.read(result))
        resting = asyncio.create_task(tools.rest.wait())
        try:
            await asyncio.wait({reading, resting}, return_when=asyncio.FIRST_COMPLETED)
            if tools.lost is not None:
                raise tools.lost
            if not reading.done():
                await tools.leave()
                return
            await reading
        except PerdureError:
            raise
        except Exception as error:  # the edge of foreign code
            raise tools.lost or _explain(error) from error
        finally:
            result.cancel()
            for task in (reading, resting):
                task.cancel()
            background = [task for task in (result.run_loop_task,) if task is not None]
            await asyncio.gather(reading, resting, *background, return_exceptions=True)

    def _ended(self, response: Any, agent: Any) -> MessageEnded:
        from perdure.loops.openai_items import LAYER, from_items

        usage = response.usage
        counts = {
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "cache_read_tokens": getattr(usage.input_tokens_details, "cached_tokens", 0),
        }
        model = agent.model
        provider: dict[str, Json] = {
            "layer": LAYER,
            "agent": agent.name,
            "model_name": model if isinstance(model, str) else getattr(model, "model", None),
            "usage": {name: count for name, count in counts.items() if count},
            "response_id": response.response_id,
        }
        if self._options.context_window is not None:
            provider["context_window"] = self._options.context_window
        known = {name: value for name, value in provider.items() if value is not None}
        return MessageEnded(from_items(response.to_input_items()), known)


class _Joining:
    """What joined the run, in its place in the input of this request and of those after it."""

    def __init__(self, context: LoopContext, own: Any) -> None:
        self._context = context
        self._own = own
        self._joined: list[tuple[int, list[Any]]] = []

    async def __call__(self, data: Any) -> Any:
        """Called by the SDK before each request."""
        from perdure.loops.openai_items import to_items

        given = data.model_data
        if fresh := await self._context.joined():
            self._joined.append((len(given.input), to_items(fresh)))
        items = list(given.input)
        for place, more in reversed(self._joined):
            items[place:place] = more
        data = replace(data, model_data=replace(given, input=items))
        if self._own is None:
            return data.model_data
        found = self._own(data)
        return await found if asyncio.iscoroutine(found) else found


class _Answers:
    """The answers of a run: shown as they come, stored when they end."""

    def __init__(self, loop: OpenAILoop, bridge: Bridge, tools: Any) -> None:
        self._loop = loop
        self._bridge = bridge
        self._tools = tools
        self._stored = 0
        self._shown = 0
        self._caught_up = asyncio.Condition()

    def hooks(self) -> Any:
        """The hook that the SDK awaits after an answer, and before it runs any of its tools."""
        from agents import RunHooks

        outer = self

        class Hooks(RunHooks[Any]):
            async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
                await outer.store(agent, response)

        return Hooks()

    async def store(self, agent: Any, response: Any) -> None:
        """Stores an answer, after what was shown of it."""
        try:
            async with asyncio.timeout(CATCH_UP_S), self._caught_up:
                await self._caught_up.wait_for(lambda: self._shown > self._stored)
        except TimeoutError:
            pass  # its end was not in the stream: what comes of it now is not shown any more
        self._stored += 1
        ended = self._loop._ended(response, agent)
        calls = [part for part in ended.parts if isinstance(part, ToolCall)]
        await self._bridge.say(ended)
        self._tools.begin(calls)

    async def read(self, result: Any) -> None:
        """Shows what the SDK streams, and stores results that only the SDK knows."""
        async for event in result.stream_events():
            if event.type == "raw_response_event":
                await self._show(event.data)
            elif event.type == "run_item_stream_event" and event.name in _RESULTS:
                raw = event.item.raw_item
                if isinstance(raw, dict) and raw.get("type") == "function_call_output":
                    found = {raw["call_id"]: (raw.get("output"), None)}
                    await self._tools.end_others(found)

    async def _show(self, data: Any) -> None:
        if data.type in _ENDS:
            async with self._caught_up:
                self._shown += 1
                self._caught_up.notify_all()
        elif (kind := _SHOWN.get(data.type)) is not None and self._shown >= self._stored:
            shown: Any = kind
            await self._bridge.say(MessageDelta(data.delta, data.output_index, shown))


_RESULTS = frozenset({"tool_output", "handoff_occured"})


def _explain(error: Exception) -> LoopError:
    """What the SDK, or the provider's library beneath it, says."""
    at: BaseException | None = error
    while at is not None:
        if isinstance(at, LoopError):
            return at
        status = getattr(at, "status_code", None)
        if isinstance(status, int) or type(at).__name__.startswith("API"):
            return _model_error(at, status)
        at = at.__cause__
    return LoopError(f"the agent ended its run: {type(error).__name__}: {error}")


def _model_error(error: BaseException, status: int | None) -> ModelError:
    code = f" ({status})" if status is not None else ""
    return ModelError(
        f"the model of the agent failed{code}: {error}. What it had finished is stored; send again "
        "to go on",
        status=status,
        is_transient=status is None or status in (408, 409, 429) or status >= 500,
    )
