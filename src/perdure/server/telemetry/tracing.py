"""Each turn as a span of OpenTelemetry, by the GenAI conventions. Needs the extra `otel`.

Under the span of a turn are those of its model requests and of its tool calls, and whatever the
libraries that it uses make themselves. Only the API is used: where spans go is set up by whoever
starts the server, with `opentelemetry-instrument` for one. Without that they cost next to nothing.
No text of a conversation is in them.
Source: OpenTelemetry semantic conventions for generative AI agent spans.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from perdure import clock
from perdure.entry import Json, Message, ToolResult
from perdure.errors import MissingExtraError, PerdureError
from perdure.fact import ToolDispatched
from perdure.loop import LoopContext
from perdure.server.telemetry.observer import RunningTurn
from perdure.server.telemetry.usage import usage_of
from perdure.store import Receipt


class _Traced(Struct):
    """A turn's span, those of its calls in flight, and when the model had what it is asked."""

    span: Any
    context: Any
    since_ns: int
    calls: dict[str, Any]


class Tracing:
    """A span for each turn that runs here, each model request, and each tool call.

    Raises:
        MissingExtraError: opentelemetry-api is not installed.

    """

    def __init__(self, default_loop: str) -> None:
        try:
            from opentelemetry import context, trace
        except ModuleNotFoundError as error:
            raise MissingExtraError("traces", "otel") from error
        self._context = context
        self._trace = trace
        self._tracer = trace.get_tracer("perdure")
        self._default_loop = default_loop
        self._turns: dict[str, _Traced] = {}
        self._by_session: dict[str, _Traced] = {}

    def started(self, turn: RunningTurn, /) -> None:
        """Begins the turn's span."""
        loop = turn.loop or self._default_loop
        span = self._tracer.start_span(
            f"invoke_agent {loop}",
            attributes={
                "gen_ai.operation.name": "invoke_agent",
                "gen_ai.agent.name": loop,
                "gen_ai.conversation.id": turn.session_id,
                "perdure.turn.id": turn.turn_id,
            },
        )
        within = self._trace.set_span_in_context(span)
        traced = _Traced(span, within, _now_ns(), {})
        self._turns[turn.turn_id] = self._by_session[turn.session_id] = traced

    def enter(self, context: LoopContext) -> None:
        """Lets the spans that a run's libraries make stand under the turn's."""
        if (traced := self._turns.get(context.turn_id)) is not None:
            self._context.attach(traced.context)  # for the rest of the run's task

    def stored(self, session_id: str, receipt: Receipt, seconds: float, /) -> None:
        """Ends the span of a model request or of a call whose outcome is stored, or begins one."""
        if (traced := self._by_session.get(session_id)) is None:
            return
        for stored in receipt.entries:
            if stored.type == "tool_dispatched" and isinstance(view := stored.view, ToolDispatched):
                self._start_call(traced, session_id, view)
            elif stored.type == "message" and isinstance(view := stored.view, Message):
                if view.role == "assistant":
                    self._tell_request(traced, session_id, view)
                for result in view.tool_results:
                    self._end_call(traced, result)
                traced.since_ns = _now_ns()

    def failed(self, session_id: str, error: PerdureError, /) -> None:
        """A span of an append there is none."""

    def ended(self, turn: RunningTurn, reason: str, cause: str | None, seconds: float, /) -> None:
        """Ends the turn's span, and what was under way in it."""
        traced = self._turns.pop(turn.turn_id, None)
        if traced is None:
            return
        if self._by_session.get(turn.session_id) is traced:
            del self._by_session[turn.session_id]
        for span in traced.calls.values():
            self._fail(span, "interrupted", "the turn ended before it")
            span.end()
        traced.span.set_attribute("perdure.turn.reason", reason)
        if reason in {"failed", "interrupted"}:
            self._fail(traced.span, reason, cause or reason)
        traced.span.end()

    def _tell_request(self, traced: _Traced, session_id: str, message: Message) -> None:
        """The span of a request to a model, if the answer says which one it was."""
        told = message.provider if isinstance(message.provider, dict) else {}
        model = told.get("model_name")
        if not isinstance(model, str):
            return
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": model,
            "gen_ai.response.model": model,
            "gen_ai.conversation.id": session_id,
        }
        _add(attributes, "gen_ai.provider.name", told.get("provider_name"))
        _add(attributes, "gen_ai.response.id", told.get("provider_response_id"))
        if isinstance(finish := told.get("finish_reason"), str):
            attributes["gen_ai.response.finish_reasons"] = (finish,)
        for name, count in usage_of(message.provider).items():
            attributes[f"gen_ai.usage.{name}"] = count
        span = self._tracer.start_span(
            f"chat {model}",
            context=traced.context,
            kind=self._trace.SpanKind.CLIENT,
            attributes=attributes,
            start_time=traced.since_ns,
        )
        if message.end is not None:
            self._fail(span, message.end, message.end)
        span.end()

    def _start_call(self, traced: _Traced, session_id: str, fact: ToolDispatched) -> None:
        traced.calls[fact.call_id] = self._tracer.start_span(
            f"execute_tool {fact.name}",
            context=traced.context,
            attributes={
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": fact.name,
                "gen_ai.tool.call.id": fact.call_id,
                "gen_ai.conversation.id": session_id,
            },
        )

    def _end_call(self, traced: _Traced, result: ToolResult) -> None:
        if (span := traced.calls.pop(result.call_id, None)) is None:
            return
        if result.is_error:
            self._fail(span, "tool_error", "the result is an error")
        span.end()

    def _fail(self, span: Any, kind: str, cause: str) -> None:
        span.set_attribute("error.type", kind)
        span.set_status(self._trace.Status(self._trace.StatusCode.ERROR, cause))


def _add(attributes: dict[str, Any], name: str, value: Json) -> None:
    if isinstance(value, str):
        attributes[name] = value


def _now_ns() -> int:
    return int(clock.now().timestamp() * 1e9)
