"""What a server counts, for Prometheus. Needs the extra `metrics`, and nothing else does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from perdure.errors import MissingExtraError
from perdure.server.telemetry.observer import RunningTurn


class Metrics:
    """The counters of one server, in a registry of their own.

    Raises:
        MissingExtraError: prometheus-client is not installed.

    """

    def __init__(self, gauges: Mapping[str, tuple[str, Callable[[], float]]]) -> None:
        try:
            import prometheus_client
        except ModuleNotFoundError as error:
            raise MissingExtraError("/metrics", "metrics") from error
        self.media_type: str = prometheus_client.CONTENT_TYPE_LATEST
        self._write: Any = prometheus_client.generate_latest
        self._registry = prometheus_client.CollectorRegistry()
        self._ended = prometheus_client.Counter(
            "perdure_turns", "Turns that ended here.", ["reason"], registry=self._registry
        )
        self._seconds = prometheus_client.Histogram(
            "perdure_turn_seconds",
            "How long turns took.",
            buckets=(0.1, 0.5, 1, 5, 10, 30, 60, 300, 1800),
            registry=self._registry,
        )
        self._requests = prometheus_client.Counter(
            "perdure_http_requests",
            "Answered requests.",
            ["method", "status"],
            registry=self._registry,
        )
        for name, (says, read) in gauges.items():
            gauge = prometheus_client.Gauge(f"perdure_{name}", says, registry=self._registry)
            gauge.set_function(read)

    def started(self, turn: RunningTurn, /) -> None:
        """A turn that runs is counted by a gauge."""

    def ended(self, turn: RunningTurn, reason: str, cause: str | None, seconds: float, /) -> None:
        """Counts a turn that ended."""
        self._ended.labels(reason).inc()
        self._seconds.observe(seconds)

    def answered(self, method: str, status: int) -> None:
        """Counts a request."""
        known = method if method in {"GET", "HEAD", "POST", "DELETE"} else "other"
        self._requests.labels(known, str(status)).inc()

    def render(self) -> bytes:
        """All of them, as Prometheus reads them."""
        rendered: bytes = self._write(self._registry)
        return rendered
