"""Each turn as a span of OpenTelemetry, by the GenAI conventions. Needs the extra `otel`.

Only the API is used: where spans go is set up by whoever starts the server, with
`opentelemetry-instrument` for one. Without that they cost next to nothing.
Source: OpenTelemetry semantic conventions for generative AI agent spans.
"""

from __future__ import annotations

from typing import Any

from perdure.errors import MissingExtraError
from perdure.server.telemetry.observer import RunningTurn


class Tracing:
    """A span for each turn that runs here.

    Raises:
        MissingExtraError: opentelemetry-api is not installed.

    """

    def __init__(self, default_loop: str) -> None:
        try:
            from opentelemetry import trace
        except ModuleNotFoundError as error:
            raise MissingExtraError("traces", "otel") from error
        self._trace = trace
        self._tracer = trace.get_tracer("perdure")
        self._default_loop = default_loop
        self._spans: dict[str, Any] = {}

    def started(self, turn: RunningTurn, /) -> None:
        """Begins the turn's span."""
        loop = turn.loop or self._default_loop
        self._spans[turn.turn_id] = self._tracer.start_span(
            f"invoke_agent {loop}",
            attributes={
                "gen_ai.operation.name": "invoke_agent",
                "gen_ai.agent.name": loop,
                "gen_ai.conversation.id": turn.session_id,
                "perdure.turn.id": turn.turn_id,
            },
        )

    def ended(self, turn: RunningTurn, reason: str, cause: str | None, seconds: float, /) -> None:
        """Ends it."""
        span = self._spans.pop(turn.turn_id, None)
        if span is None:
            return
        span.set_attribute("perdure.turn.reason", reason)
        if reason in {"failed", "interrupted"}:
            span.set_attribute("error.type", reason)
            status = self._trace.Status(self._trace.StatusCode.ERROR, cause or reason)
            span.set_status(status)
        span.end()
