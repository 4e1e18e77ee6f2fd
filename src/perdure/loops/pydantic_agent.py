"""A whole pydantic-ai agent as a loop: its model, prompts, tools, toolsets and output stay its own.

The agent is run node by node through its step iterator. What a node came to is stored before the
next one runs: an answer before its tools start, each result when its tool ends. The conversation
is the session's, and no other: each run begins from the model view, whoever ran before.

Of what a tool gave, text and files are stored. Structured output is the arguments of the call that
gave it. A prompt by which the agent asks its model to try again is not stored.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from perdure.entry import Text, ToolCall, ToolResult
from perdure.errors import ConfigurationError, MissingExtraError
from perdure.loop import (
    Allowed,
    Answer,
    LoopContext,
    LoopEvent,
    MessageEnded,
    MessageStarted,
    ToolEnded,
)
from perdure.loops.bridge import Bridge, bridged
from perdure.loops.permission import answered_calls
from perdure.loops.provider import provider_errors
from perdure.loops.request import delta_of
from perdure.loops.told import without_calls

if TYPE_CHECKING:
    from pydantic_ai import Agent
    from pydantic_ai.models import Model as ProviderModel
    from pydantic_ai.tools import DeferredToolResults


class PydanticAgent:
    """Makes loops over a pydantic-ai `Agent`.

    `deps` are the dependencies of every run, or `make_deps` makes them from a run's context.
    `options` go to `Agent.iter` as they are (`model`, `model_settings`, `usage_limits`, …). With
    `offers_tools` the agent is offered the tools around the run, a runtime's say, beside its own;
    its own win where a name is both's.
    """

    steers = True

    def __init__(
        self,
        agent: Agent[Any, Any],
        *,
        deps: Any = None,
        make_deps: Callable[[LoopContext], Any] | None = None,
        offers_tools: bool = True,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.agent = agent
        self.deps = deps
        self.make_deps = make_deps
        self.offers_tools = offers_tools
        self.options = dict(options or {})

    def __repr__(self) -> str:
        return f"PydanticAgent({getattr(self.agent, 'name', None)!r})"

    def __call__(self) -> PydanticLoop:
        """The loop of one run.

        Raises:
            MissingExtraError: the extra `models` is not installed.
            ConfigurationError: it is no agent, or has no model. Nothing is stored or sent.

        """
        if find_spec("pydantic_ai") is None:
            raise MissingExtraError("a pydantic-ai agent", "models")
        from pydantic_ai.agent import AbstractAgent
        from pydantic_ai.exceptions import UserError
        from pydantic_ai.models import Model, infer_model

        import perdure.loops.pydantic_gate  # noqa: F401 - now, and not in the event loop

        if not isinstance(self.agent, AbstractAgent):
            raise ConfigurationError(f"{self.agent!r} is no pydantic-ai agent")
        given = self.options.get("model") or self.agent.model
        if given is None:
            raise ConfigurationError(
                f"the agent {self.agent.name!r} has no model: give it one, or one in options"
            )
        try:
            model = infer_model(given) if isinstance(given, str) else given
        except (UserError, ImportError) as error:
            raise ConfigurationError(f"the model {given!r} cannot be used: {error}") from error
        if not isinstance(model, Model):
            raise ConfigurationError(
                "an agent that chooses its model in each step cannot be wrapped: give it one model"
            )
        return PydanticLoop(self, model)


class PydanticLoop:
    """One run."""

    def __init__(self, options: PydanticAgent, model: ProviderModel) -> None:
        self._options = options
        self._model = model

    @property
    def _name(self) -> str:
        return f"{self._model.system}:{self._model.model_name}"

    async def __call__(self, context: LoopContext) -> AsyncGenerator[LoopEvent, None]:
        """Runs the agent.

        Raises:
            ModelError: its model's provider failed. What a tool of the agent raises comes out.

        """
        run = self._summarise if context.purpose == "summary" else self._run
        async with aclosing(bridged(lambda bridge: run(context, bridge))) as events:
            async for event in events:
                yield event

    async def _summarise(self, context: LoopContext, bridge: Bridge) -> None:
        """One answer of its model, without its tools and its output type."""
        from pydantic_ai.direct import model_request

        from perdure.loops.model_messages import (
            from_response,
            interface_of,
            to_history,
        )

        model = self._model
        with provider_errors(self._name, model):
            history = to_history(without_calls(await context.messages()), model)
            response = await model_request(model, history)
        parts, provider = from_response(response, interface_of(model), model.context_window)
        said = tuple(part for part in parts if not isinstance(part, ToolCall))
        await bridge.say(MessageEnded(said, provider))

    async def _run(self, context: LoopContext, bridge: Bridge) -> None:
        from pydantic_ai import Agent
        from pydantic_ai.capabilities.reinject_system_prompt import ReinjectSystemPrompt
        from pydantic_graph import End

        from perdure.loops.model_messages import to_history
        from perdure.loops.pydantic_gate import AroundToolset, Batch, Gate, Rest

        options = self._options
        batch = Batch()
        around = AroundToolset(context, bridge, batch)
        if options.offers_tools:
            await around.load(await self._own_names())
        messages = list(await context.messages())
        calls = answered_calls(context, messages)
        if calls:
            batch.begin({call.call_id: call for call in calls})
        steps = _Steps(self, context, bridge, batch)
        given = dict(options.options)
        given["toolsets"] = [*(given.get("toolsets") or ()), around]
        given["capabilities"] = [
            *(given.get("capabilities") or ()),
            ReinjectSystemPrompt(),
            Gate(context=context, bridge=bridge, batch=batch),
        ]
        deps = options.deps if options.make_deps is None else options.make_deps(context)
        try:
            with provider_errors(self._name, self._model, only_layer=True):
                async with options.agent.iter(
                    message_history=to_history(messages, self._model),
                    deferred_tool_results=_results_of(context.answers) if calls else None,
                    deps=deps,
                    infer_name=False,
                    **given,
                ) as run:
                    node: Any = run.next_node
                    while not isinstance(node, End):
                        if Agent.is_model_request_node(node):
                            node = await steps.ask(run, node)
                        elif Agent.is_call_tools_node(node):
                            node = await steps.call(run, node)
                        else:
                            node = await run.next(node)
        except Rest:
            return

    async def _own_names(self) -> frozenset[str]:
        """The names of the agent's own functions; what toolsets bring is known in a run only."""
        names: set[str] = set()
        for toolset in getattr(self._options.agent, "toolsets", ()):
            names.update(getattr(toolset, "tools", None) or ())
        return frozenset(names)


class _Steps:
    """The steps of one run of an agent."""

    def __init__(
        self, loop: PydanticLoop, context: LoopContext, bridge: Bridge, batch: Any
    ) -> None:
        self._model = loop._model
        self._context = context
        self._bridge = bridge
        self._batch = batch

    async def ask(self, run: Any, node: Any) -> Any:
        """One request to the model: streamed, then stored."""
        from perdure.loops.model_messages import (
            from_response,
            interface_of,
            request_parts,
        )

        for message in await self._context.joined():
            node.request.parts = [*node.request.parts, *request_parts(message)]
        is_started = False
        async with node.stream(run.ctx) as stream:
            async for event in stream:
                if (delta := delta_of(event)) is not None:
                    if not is_started:
                        is_started = True
                        await self._bridge.say(MessageStarted())
                    await self._bridge.say(delta)
        following = await run.next(node)
        response = getattr(following, "model_response", None)
        if response is None:
            return following  # the agent asks its model to try again
        parts, provider = from_response(
            response, interface_of(self._model), self._model.context_window
        )
        calls = [part for part in parts if isinstance(part, ToolCall)]
        asked = [call.tool_call_id for call in response.tool_calls]
        self._batch.begin(dict(zip(asked, calls, strict=True)))
        await self._bridge.say(MessageEnded(parts, provider))
        return following

    async def call(self, run: Any, node: Any) -> Any:
        """The calls of an answer: each result is stored when its tool ends."""
        from pydantic_ai.messages import ToolResultEvent

        async with node.stream(run.ctx) as stream:
            async for event in stream:
                if isinstance(event, ToolResultEvent):
                    await self._end(event.part)
        following = await run.next(node)
        request = getattr(following, "request", None)
        for part in () if request is None else request.parts:
            await self._end(part)
        for part in run.all_messages()[-1].parts:
            await self._end(part)
        for call in self._batch.calls.values():
            if call.call_id not in self._batch.ended:  # none that the agent spoke of
                told = Text("the agent ended without a result of this call")
                result = ToolResult(call.call_id, (told,), name=call.name, is_error=True)
                self._batch.ended.add(call.call_id)
                await self._bridge.say(ToolEnded(result))
        return following

    async def _end(self, part: Any) -> None:
        from perdure.loops.model_messages import from_tool_part

        known = self._batch.calls.get(getattr(part, "tool_call_id", None) or "")
        if known is None or known.call_id in self._batch.ended:
            return
        result = self._batch.results.get(known.call_id) or from_tool_part(part, known)
        if result is None:
            return
        self._batch.ended.add(known.call_id)
        await self._bridge.flush()
        await self._bridge.say(ToolEnded(result))


def _results_of(answers: Mapping[str, Answer]) -> DeferredToolResults:
    """The answers of people, as pydantic-ai has them."""
    from pydantic_ai.tools import DeferredToolResults, ToolApproved, ToolDenied

    approvals: dict[str, Any] = {}
    for call_id, answer in answers.items():
        if isinstance(answer, Allowed):
            changed = answer.arguments if isinstance(answer.arguments, dict) else None
            approvals[call_id] = ToolApproved(override_args=changed)
        else:
            approvals[call_id] = ToolDenied(f"refused: {answer.reason}")
    return DeferredToolResults(approvals=approvals)
