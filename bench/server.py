"""What sending, stopping, branching and a page of history cost, in a long session and a short one.

    python -m bench.server [--rounds 40] [--folder DIR]

A server's registry on one SQLite file with two sessions, of 10 and of 10,000 messages. Each round
does the same to both, one right after the other; a figure is the median of its rounds, and the
ratio is long over short: 1 means that the length does not matter.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable
from pathlib import Path
from typing import TypeVar

from msgspec.structs import replace

from perdure.entry import Message, Text, text
from perdure.events import MessageUpdate
from perdure.loop import Loop, LoopContext, LoopEvent, LoopFactory, MessageEnded
from perdure.server.session.look import SessionLook
from perdure.server.session.registry import Registry
from perdure.stores.sqlite import SqliteStore

_T = TypeVar("_T")
LENGTHS = {"short": 10, "long": 10_000}
CONTENT = "x" * 880


class Feed:
    """Nobody watches."""

    def delta(self, session_id: str, turn_id: str, update: MessageUpdate) -> None:
        pass

    def notice(self, session_id: str, turn_id: str, text: str) -> None:
        pass

    def status(self, look: SessionLook) -> None:
        pass


class Loops:
    """A loop that answers at once, or never where it is told to wait."""

    default = "answer"

    async def prepare(self, name: str) -> None:
        pass

    def factory(self, name: str) -> LoopFactory:
        return self._make

    def _make(self) -> Loop:
        return self._run

    async def _run(self, context: LoopContext) -> AsyncGenerator[LoopEvent, None]:
        if context.input[-1].text == "wait":
            await asyncio.Event().wait()
        yield MessageEnded((Text("done"),))


async def fill(store: SqliteStore, session_id: str, length: int) -> None:
    """A session of one chain of messages of about 1 KiB."""
    await store.create_session(session_id)
    parent_id: str | None = None
    for first in range(0, length, 1000):
        batch: list[Message] = []
        for _ in range(min(1000, length - first)):
            batch.append(replace(text(CONTENT), parent_id=parent_id))
            parent_id = batch[-1].id
        await store.append_entries(session_id, batch)


class Timings:
    """Seconds by what was done and to which session."""

    def __init__(self) -> None:
        self._seconds: dict[str, dict[str, list[float]]] = {}

    async def take(self, what: str, session_id: str, step: Awaitable[_T]) -> _T:
        start = time.perf_counter()
        result = await step
        taken = time.perf_counter() - start
        self._seconds.setdefault(what, {}).setdefault(session_id, []).append(taken)
        return result

    def table(self) -> list[dict[str, float | str]]:
        """A line for each thing that was done."""
        lines: list[dict[str, float | str]] = []
        for what, by_session in self._seconds.items():
            short, long = (statistics.median(by_session[name]) for name in LENGTHS)
            line = {"short_ms": short * 1e3, "long_ms": long * 1e3, "ratio": long / short}
            lines.append({"what": what, **line})
        return lines


async def rest(registry: Registry, session_id: str) -> None:
    """Waits until no turn runs."""
    while (await registry.look(session_id)).turn is not None:  # noqa: ASYNC110 - it has no event
        await asyncio.sleep(0.001)


async def one_round(registry: Registry, timings: Timings, session_id: str) -> None:
    """Everything once."""
    parts = (Text(CONTENT),)
    await timings.take("send", session_id, registry.send(session_id, parts))
    await rest(registry, session_id)
    sent = await registry.send(session_id, (Text("wait"),))
    await timings.take("stop", session_id, registry.stop(session_id, sent.turn_id))
    page = await timings.take(
        "transcript page", session_id, registry.transcript(session_id, limit=10)
    )
    await timings.take("entries page", session_id, registry.entries(session_id, limit=10))
    await timings.take("look", session_id, registry.look(session_id))
    target = page.entries[-4].stored.id
    await timings.take("branch", session_id, registry.branch(session_id, target))


async def main(rounds: int, folder: Path) -> None:
    timings = Timings()
    async with SqliteStore(folder / "server.db") as store:
        registry = Registry(store, Loops(), Feed())
        for session_id, length in LENGTHS.items():
            await fill(store, session_id, length)
            await timings.take("wake", session_id, registry.send(session_id, (Text(CONTENT),)))
            await rest(registry, session_id)
        for round_ in range(rounds):
            for session_id in LENGTHS if round_ % 2 else reversed(LENGTHS):
                await one_round(registry, timings, session_id)
        await registry.close()
    lines = timings.table()
    print(f"{'':16} {'10 (ms)':>9} {'10,000 (ms)':>12} {'ratio':>6}")
    for line in lines:
        figures = f"{line['short_ms']:9.2f} {line['long_ms']:12.2f} {line['ratio']:6.2f}"
        print(f"{line['what']:16} {figures}")
    results = Path(__file__).parent / "results"
    results.mkdir(exist_ok=True)
    (results / "server.json").write_text(json.dumps(lines, indent=1))
    print("\nwaking replays the journal, so its cost grows with it; nothing else does")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        asyncio.run(main(options.rounds, Path(name)))
