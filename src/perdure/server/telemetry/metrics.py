"""What a server counts, for Prometheus. Needs the extra `metrics`, and nothing else does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from perdure.entry import Message
from perdure.errors import MissingExtraError, PerdureError
from perdure.server.telemetry.observer import RunningTurn
from perdure.server.telemetry.usage import usage_of
from perdure.store import Receipt

Numbers = Mapping[str, tuple[str, Callable[[], float]]]
"""By name, what a number says and how it is read; it is read when somebody asks."""

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"})
_FAST_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 5)
_SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


class Metrics:
    """The counters of one server, in a registry of their own.

    Raises:
        MissingExtraError: prometheus-client is not installed.

    """

    def __init__(
        self,
        gauges: Numbers,
        counters: Numbers,
    ) -> None:
        try:
            import prometheus_client
        except ModuleNotFoundError as error:
            raise MissingExtraError("/metrics", "metrics") from error
        self.media_type: str = prometheus_client.CONTENT_TYPE_LATEST
        self._write: Any = prometheus_client.generate_latest
        self._registry = prometheus_client.CollectorRegistry()
        self._prometheus: Any = prometheus_client
        self._ended = self._counter("turns", "Turns that ended here.", ["reason"])
        self._seconds = self._histogram(
            "turn_seconds", "How long turns took.", (0.1, 0.5, 1, 5, 10, 30, 60, 300, 1800)
        )
        self._requests = self._counter("http_requests", "Answered requests.", ["method", "status"])
        self._refusals = self._counter("refusals", "Refused requests by their code.", ["code"])
        self._appends = self._histogram("append_seconds", "How long appends took.", _FAST_S)
        self._entries = self._counter("appended_entries", "Entries that were appended.")
        self._bytes = self._counter("appended_bytes", "Bytes of entries that were appended.")
        self._failures = self._counter("append_failures", "Appends that failed.", ["error"])
        self._commits = self._histogram("commit_seconds", "How long group commits took.", _FAST_S)
        self._groups = self._histogram("commit_requests", "Requests a group commit.", _SIZES)
        self._tools = self._counter("tool_calls", "Results of tool calls.", ["outcome"])
        self._tokens = self._counter("tokens", "Tokens, as providers count them.", ["kind"])
        for name, (says, read) in gauges.items():
            gauge = prometheus_client.Gauge(f"perdure_{name}", says, registry=self._registry)
            gauge.set_function(read)
        self._registry.register(_Counters(counters))

    def _counter(self, name: str, says: str, labels: Sequence[str] = ()) -> Any:
        return self._prometheus.Counter(f"perdure_{name}", says, labels, registry=self._registry)

    def _histogram(self, name: str, says: str, buckets: Sequence[float]) -> Any:
        return self._prometheus.Histogram(
            f"perdure_{name}", says, buckets=buckets, registry=self._registry
        )

    def started(self, turn: RunningTurn, /) -> None:
        """A turn that runs is counted by a gauge."""

    def ended(self, turn: RunningTurn, reason: str, cause: str | None, seconds: float, /) -> None:
        """Counts a turn that ended."""
        self._ended.labels(reason).inc()
        self._seconds.observe(seconds)

    def stored(self, session_id: str, receipt: Receipt, seconds: float, /) -> None:
        """Counts an append, and what it says of tools and models."""
        self._appends.observe(seconds)
        self._entries.inc(len(receipt.entries))
        self._bytes.inc(sum(len(each.raw) for each in receipt.entries))
        for stored in receipt.entries:
            if stored.type != "message" or not isinstance(view := stored.view, Message):
                continue
            for result in view.tool_results:
                self._tools.labels("error" if result.is_error else "ok").inc()
            if view.role == "assistant":
                for kind, count in usage_of(view.provider).items():
                    self._tokens.labels(kind).inc(count)

    def failed(self, session_id: str, error: PerdureError, /) -> None:
        """Counts an append that failed."""
        self._failures.labels(type(error).__name__).inc()

    def committed(self, requests: int, seconds: float) -> None:
        """Counts a group commit; from any thread."""
        self._groups.observe(requests)
        self._commits.observe(seconds)

    def refused(self, code: str) -> None:
        """Counts a problem."""
        self._refusals.labels(code).inc()

    def answered(self, method: str, status: int) -> None:
        """Counts a request."""
        known = method if method in _METHODS else "other"
        self._requests.labels(known, str(status)).inc()

    def render(self) -> bytes:
        """All of them, as Prometheus reads them."""
        rendered: bytes = self._write(self._registry)
        return rendered


class _Counters:
    """What others count in numbers of their own, read when it is asked for."""

    def __init__(self, counters: Numbers) -> None:
        self._counters = counters

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily

        for name, (says, read) in self._counters.items():
            yield CounterMetricFamily(f"perdure_{name}", says, value=read())
