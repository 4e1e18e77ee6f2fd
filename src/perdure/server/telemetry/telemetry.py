"""Who hears of a server's turns, runs and appends: the log, the disk's watch, metrics and traces.

The log and the watch are always there, metrics and traces where their extras are installed. The
parts of a server are told of through `observer`, `observe_store` and `observe_loops`, and know of
no listener.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from perdure.errors import MissingExtraError
from perdure.server.journal import JournalStore
from perdure.server.session.port import FeedPort, Loops
from perdure.server.telemetry.appends import (
    AppendListener,
    DiskWatch,
    GoneWatch,
    observe_appends,
)
from perdure.server.telemetry.metrics import Metrics, Numbers
from perdure.server.telemetry.observed_loop import Enter, observe_loops
from perdure.server.telemetry.observer import Observer, TurnListener, TurnLog
from perdure.server.telemetry.told import RunNotes
from perdure.server.telemetry.tracing import Tracing


class Telemetry:
    """The listeners of one server. `metrics` is None where the extra `metrics` is missing."""

    def __init__(self, feed: FeedPort, loops: Loops, *, gauges: Numbers, counters: Numbers) -> None:
        self.disk = DiskWatch()
        self.metrics: Metrics | None = None
        notes = RunNotes()
        turns: list[TurnListener] = [TurnLog(), notes]
        self.observer = Observer(feed, turns)
        self._appends: list[AppendListener] = [self.disk, GoneWatch(self.observer)]
        self._runs: list[Enter] = [notes.enter]
        with suppress(MissingExtraError):  # nobody has to count
            self.metrics = Metrics(
                {
                    "turns_running": ("Turns that run.", lambda: self.observer.running),
                    **gauges,
                    "appends_refused": (
                        "Whether the last append failed: 1, the store takes none.",
                        lambda: self.disk.refusal is not None,
                    ),
                },
                counters,
            )
            turns.append(self.metrics)
            self._appends.append(self.metrics)
        with suppress(MissingExtraError):
            tracing = Tracing(loops.default)
            turns.append(tracing)
            self._appends.append(tracing)
            self._runs.append(tracing.enter)

    def observe_store(self, store: JournalStore) -> JournalStore:
        """The same store, whose appends are heard of."""
        return observe_appends(store, self._appends)

    def observe_loops(self, loops: Loops) -> Loops:
        """The same loops, whose runs are heard of."""
        return observe_loops(loops, self._runs)

    @contextmanager
    def counting_commits(self, store: JournalStore) -> Iterator[None]:
        """Counts the group commits of the store inside the block, where it tells of them."""
        observe: Callable[[Callable[[int, float], object]], Callable[[], object]] | None
        observe = getattr(store, "observe_commits", None)
        if self.metrics is None or observe is None:
            yield
            return
        stop = observe(self.metrics.committed)
        try:
            yield
        finally:
            stop()
