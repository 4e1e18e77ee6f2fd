"""What it costs to tell many viewers of an entry, and to have a viewer who is told nothing.

A server on one core, with its store in memory, and all its viewers on one session, over real
connections; the viewers are on another core. An entry of about 1 KiB is appended when all viewers
have the one before. The CPU time of the server for each delivery is held against nginx with nchan
(one worker, the same bytes on the wire), and against a bare endpoint that does nothing but send the
same shared bytes to all (ASGI on the same HTTP server), measured in the same run and in turns.
Memory for each idle viewer is what the server grows by when they connect.

nginx and its module nchan are packages of the system (libnginx-mod-nchan in Debian). Where they
are not installed, that comparison is left out, and said to be.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench import report
from bench.broadcast import MARK, TOKEN, Nchan, OwnServer, missing_nchan
from bench.process import LAST, raise_limit
from bench.report import Figure, Measured

VIEWERS = (500, 2000)
ENTRIES = 30
WIRE_BYTES = 1100
MOST_BYTES = 30 * 1024

Served = OwnServer | Nchan


class Viewers:
    """So many connections; each counts the entries that it has got."""

    def __init__(self, port: int, count: int) -> None:
        self._selector = selectors.DefaultSelector()
        self._sockets = []
        self.bytes = 0
        """How many have come since the streams began."""
        request = "GET /v1/stream?session=s HTTP/1.1\r\nHost: localhost\r\n"
        request += f"Accept: text/event-stream\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
        for _ in range(count):
            each = socket.create_connection(("127.0.0.1", port))
            each.sendall(request.encode())
            self._sockets.append(each)
        for each in self._sockets:
            head = b""
            while b"\n\n" not in head:  # its first event, or comment
                head += each.recv(65536)
            each.setblocking(False)
            self._selector.register(each, selectors.EVENT_READ, bytearray())

    def wait(self) -> None:
        """Until each has one more entry, whole."""
        left = len(self._sockets)
        while left:
            for key, _ in self._selector.select(20):
                assert isinstance(key.fileobj, socket.socket)
                got = key.fileobj.recv(65536)
                assert got, "the server ended a stream"
                self.bytes += len(got)
                key.data.extend(got)
                at = key.data.find(MARK)
                if at >= 0 and (end := key.data.find(b"\n\n", at)) >= 0:
                    left -= 1
                    del key.data[: end + 2]

    def close(self) -> None:
        self._selector.close()
        for each in self._sockets:
            each.close()


def size_for(served: Served) -> int:
    """The size of text that makes a delivery of `WIRE_BYTES`; it warms the server up, too."""
    size = 800
    with contextlib.closing(Viewers(served.port, 10)) as few:
        served.append(size)
        few.wait()
        before = few.bytes
        served.append(size)
        few.wait()
        return size + WIRE_BYTES - (few.bytes - before) // 10


@contextmanager
def watching(served: Served, count: int) -> Iterator[tuple[Viewers, float]]:
    """Viewers, and the bytes of memory that each one of them took."""
    before = served.resident_bytes
    viewers = Viewers(served.port, count)
    time.sleep(0.5)
    try:
        yield viewers, (served.resident_bytes - before) / count
    finally:
        viewers.close()


def deliver(served: Served, viewers: Viewers, count: int, size: int) -> float:
    """The CPU time of the server for each delivery, in microseconds."""
    before, got = served.cpu_s, viewers.bytes
    for _ in range(ENTRIES):
        served.append(size)
        viewers.wait()
    taken = (served.cpu_s - before) / (ENTRIES * count)
    each = (viewers.bytes - got) / (ENTRIES * count)
    assert abs(each - WIRE_BYTES) < 8, f"{each:.0f} bytes for each delivery"
    return taken * 1e6


def measure_with(folder: Path, rounds: int, count: int, has_nchan: bool) -> Measured:
    """All servers in turns, with so many viewers each."""
    with ExitStack() as stack:
        servers: dict[str, Served] = {"ours": OwnServer("ours"), "bare": OwnServer("bare")}
        if has_nchan:
            servers["nchan"] = Nchan(folder / f"nchan-{count}")
        for each in servers.values():
            stack.enter_context(each)
        sizes = {name: size_for(each) for name, each in servers.items()}
        watched = {
            name: stack.enter_context(watching(each, count)) for name, each in servers.items()
        }
        taken: dict[str, list[float]] = {name: [] for name in servers}
        for _ in range(rounds):
            for name, each in servers.items():
                taken[name].append(deliver(each, watched[name][0], count, sizes[name]))
    figures = [
        Figure(
            f"CPU per delivery, {count:,} viewers",
            statistics.median(taken["ours"]),
            "µs",
            reference,
            statistics.median(taken[name]),
            statistics.median(
                mine / theirs for mine, theirs in zip(taken["ours"], taken[name], strict=True)
            ),
            at_most=most,
        )
        for name, reference, most in (
            ("nchan", "nginx with nchan, same bytes", 1.5),
            ("bare", "bare endpoint, shared bytes", None),
        )
        if name in servers
    ]
    memory = watched["ours"][1]
    figures.append(
        Figure(
            f"memory per idle viewer, {count:,} viewers",
            memory / 1024,
            "KiB",
            "the target",
            MOST_BYTES / 1024,
            memory / MOST_BYTES,
            at_most=1.0,
        )
    )
    others = ", ".join(
        f"{bytes_ / 1024:.1f} KiB ({name})"
        for name, (_, bytes_) in watched.items()
        if name != "ours"
    )
    return figures, [f"of {count:,} viewers one takes {others} elsewhere"]


async def measure(folder: Path, rounds: int) -> Measured:
    """With few viewers and with many."""
    raise_limit()
    os.sched_setaffinity(0, {LAST})
    missing = missing_nchan()
    figures: list[Figure] = []
    notes: list[str] = []
    for count in VIEWERS:
        more, said = measure_with(folder, rounds, count, missing is None)
        figures += more
        notes += said
    if missing is not None:
        notes.append(f"NOT HELD AGAINST nginx with nchan: {missing} (Debian: libnginx-mod-nchan)")
    return figures, notes


if __name__ == "__main__":
    assert __doc__ is not None
    report.run("fanout", __doc__, measure)
