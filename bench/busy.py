"""How long do appends wait when 1,000 sessions have a turn each at once?

A whole server with 1,000 sessions that are awake, on one SQLite file. Over real connections each is
sent a message, and all turns run at once: text in deltas, a call of a tool, more text; five appends
each. Two cores have all of it, the clients too. An append that comes while a group commit is under
way is in the next one, so two commits end until it is stored, and no more. When it is stored its
turn goes on as soon as the event loop comes to it, which 1,000 turns share; that is told too, in
commits that end meanwhile, and in time, held against the longest of the commits that it met.
"""

from __future__ import annotations

import asyncio
import bisect
import statistics
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from bench import report
from bench.node import Client, Node, Noted
from bench.process import raise_limit
from bench.report import Figure, Measured
from perdure.stores.sqlite import SqliteStore
from perdure.testing import Call, Say, write_script

SESSIONS = 1000
CONNECTIONS = 8
MOST_COMMITS = 2
SCRIPT = write_script(
    Say(
        "x" * 400,
        delta_chars=40,
        delay_s=0.1,
        calls=[Call("look", output=["y" * 200] * 4, delay_s=0.2)],
    ),
    Say("z" * 400, delta_chars=40, delay_s=0.1),
)


def send_all(port: int, session_ids: Sequence[str]) -> None:
    """Sends each a message, over a few connections."""

    def send(part: Sequence[str]) -> None:
        client = Client(port)
        for each in part:
            client.ask("POST", f"/v1/sessions/{each}/messages", {"text": SCRIPT})
        client.close()

    size = -(-len(session_ids) // CONNECTIONS)
    parts = [session_ids[n : n + size] for n in range(0, len(session_ids), size)]
    with ThreadPoolExecutor(CONNECTIONS) as threads:
        for _ in threads.map(send, parts):
            pass


class Wait(NamedTuple):
    """Of one append: the commits until it was stored and until its turn went on; its time in them.

    The time is held against the longest of the commits that it met.
    """

    until_stored: int
    until_returned: int
    in_commits: float


def waits(noted: Noted) -> list[Wait]:
    """One for each append."""
    commits = noted["commits"]
    begins, ends = [begin for begin, _ in commits], [end for _, end in commits]
    found = []
    for asked, taken, returned in noted["appends"]:
        first = bisect.bisect_left(ends, asked)
        own, last = bisect.bisect_left(ends, taken), bisect.bisect_right(begins, returned)
        longest = max(end - begin for begin, end in commits[first:last])
        finished = bisect.bisect_right(ends, returned) - first
        found.append(Wait(own - first + 1, finished, (returned - asked) / longest))
    return found


def percentile(values: Sequence[float], share: float) -> float:
    """The value that this share of them is not above."""
    return sorted(values)[min(int(share * len(values)), len(values) - 1)]


async def measure(folder: Path, rounds: int) -> Measured:
    """Some rounds of turns; what is told is the worst round."""
    raise_limit()
    session_ids = [f"s{n}" for n in range(SESSIONS)]
    file = folder / "sessions.db"
    async with SqliteStore(file) as store:
        await asyncio.gather(*(store.create_session(each) for each in session_ids))
    found: list[Wait] = []
    notes = []
    with Node(file) as node:
        for number in range(1 + max(2, rounds // 2)):
            node.forget()
            before = node.cpu_s
            await asyncio.to_thread(send_all, node.port, session_ids)
            await asyncio.to_thread(node.rest)
            used = node.cpu_s - before
            noted = node.tell()
            if number == 0:
                continue  # it wakes them
            found += waits(noted)
            taken = [end - begin for begin, end in noted["commits"]]
            span = noted["appends"][-1][2] - noted["appends"][0][0]
            notes.append(
                f"{len(noted['appends']):,} appends in {span:.1f} s, and {used:.1f} s of the "
                f"server's CPU; {len(taken):,} commits of {statistics.mean(noted['sizes']):.0f} "
                f"requests (at most {max(noted['sizes'])}) in {statistics.median(taken) * 1e3:.1f}"
                f" ms (at most {max(taken) * 1e3:.1f} ms)"
            )

    def figure(case: str, value: float, at_most: float | None = None) -> Figure:
        ratio = value / MOST_COMMITS
        return Figure(case, value, "", "group commits", MOST_COMMITS, ratio, at_most=at_most)

    stored = [each.until_stored for each in found]
    returned = [each.until_returned for each in found]
    times = [each.in_commits for each in found]
    return [
        figure("commits until an append is stored, the most", max(stored), 1.0),
        figure("commits until its turn goes on, median", statistics.median(returned)),
        figure("commits until its turn goes on, 99 of 100", percentile(returned, 0.99)),
        figure("its wait, of the longest commit it met, median", statistics.median(times)),
        figure("its wait, of the longest commit it met, 99 of 100", percentile(times, 0.99)),
    ], notes


if __name__ == "__main__":
    assert __doc__ is not None
    report.run("busy", __doc__, measure)
