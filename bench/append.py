"""How many durable appends of 1 KiB a second, of what the disk does at that moment?

One session and 64 at once, through agents, with histories of several lengths. Before and after
each slice of ours runs a slice of its reference: for one session a loop of write + fdatasync; for
64 on SQLite as many asyncio producers that share one commit of a bare SQLite, on JSON lines a pool
of threads that sync a file each.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import perdure
from bench import report
from bench.reference import (
    CONTENT,
    KINDS,
    MANY,
    NAMES,
    Append,
    Limits,
    Series,
    fill,
    fleeting,
    lasting,
    messages,
    rate,
)
from perdure.store import Store

SLICE_S = 0.2
HISTORIES = {1: (0, 1_000, 100_000), MANY: (0, 1_000)}
AT_LEAST = {("sqlite", 1): 0.45, ("jsonl", 1): 0.5, ("sqlite", MANY): 0.5, ("jsonl", MANY): 0.5}


class Case:
    """One store, so many sessions, with so long a history each."""

    def __init__(self, kind: str, sessions: int, history: int, place: Path) -> None:
        self.kind, self.sessions, self.history, self.place = kind, sessions, history, place
        self.series, self.of_file, self.of_module = Series(), Series(), Series()
        self.store: Store
        self._agents: list[perdure.DurableAgent] = []

    async def prepare(self, stack: AsyncExitStack) -> None:
        if self.history:
            entries = messages(self.history)
            async with fleeting(self.kind, self.place) as store:
                for session_id in self._ids(0):
                    await fill(store, session_id, entries)
        self.store = await stack.enter_async_context(lasting(self.kind, self.place))
        if self.history:
            self._agents = [await perdure.open(each, store=self.store) for each in self._ids(0)]

    def _ids(self, number: int) -> list[str]:
        return [f"round-{number}-session-{n}" for n in range(self.sessions)]

    async def appends(self, number: int) -> list[Append]:
        """The producers of a round; new sessions where they are to have no history."""
        agents = self._agents or [
            await perdure.open(each, store=self.store) for each in self._ids(number)
        ]
        return [_append(agent) for agent in agents]

    def limit(self, limits: Limits) -> tuple[str, Callable[[float], Awaitable[float]]]:
        if self.sessions == 1:
            return "write + fdatasync", limits.bare
        if self.kind == "sqlite":
            return "64 sharing a bare SQLite commit", limits.shared_sqlite
        return "a pool of fdatasyncs, 64 files", limits.pool

    def figure(self, limits: Limits) -> report.Figure:
        ours, limit = self.series.medians
        many = "1 session" if self.sessions == 1 else f"{self.sessions} sessions"
        return report.Figure(
            f"{NAMES[self.kind]}, {many}, history {self.history:,}",
            ours,
            "/s",
            self.limit(limits)[0],
            limit,
            self.series.ratio,
            at_least=AT_LEAST[self.kind, self.sessions],
        )


def _append(agent: perdure.DurableAgent) -> Append:
    return lambda: agent.append(perdure.text(CONTENT))


def _share(what: str, series: Sequence[tuple[str, Series]]) -> str:
    shares = ", ".join(f"{NAMES[kind]} {each.ratio:.2f}" for kind, each in series)
    return f"64 sessions as a share of 64 producers that share one {what}: {shares}"


async def measure(folder: Path, rounds: int) -> report.Measured:
    cases = [
        Case(kind, sessions, history, folder / f"{kind}-{sessions}-{history}")
        for sessions, histories in HISTORIES.items()
        for kind in KINDS
        for history in histories
    ]
    async with AsyncExitStack() as stack:
        limits = Limits(folder)
        stack.callback(limits.close)
        for case in cases:
            await case.prepare(stack)
        for number in range(rounds):
            for case in cases:
                appends = await case.appends(number)
                _, limit = case.limit(limits)
                before = await limit(SLICE_S / 2)
                ours = await rate(appends, SLICE_S)
                case.series.add(ours, (before + await limit(SLICE_S / 2)) / 2)
                if case.sessions > 1:
                    case.of_file.add(ours, await limits.shared_file(SLICE_S / 2))
                    case.of_module.add(ours, await limits.shared_module(SLICE_S / 2))
        many = [case for case in cases if case.sessions > 1]
        notes = [
            _share("fdatasync of a file", [(case.kind, case.of_file) for case in many]),
            _share(
                "commit of Python's sqlite3 as it comes",
                [(case.kind, case.of_module) for case in many if case.kind == "sqlite"],
            ),
        ]
        return [case.figure(limits) for case in cases], notes


if __name__ == "__main__":
    report.run("append", __doc__ or "", measure)
