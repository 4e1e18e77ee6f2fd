"""The threads that write, and how the event loop hears of what they did.

A hop to a thread and back costs more than the rest of an append: so the threads take their work
from one queue without a lock of its own, and the event loop is woken once for all work that ended
meanwhile.
"""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import Protocol

Loop = asyncio.AbstractEventLoop


class Flight(Protocol):
    """What a thread is to do."""

    landing: Landing
    """Where it is told that it is done."""

    def fly(self) -> None:
        """Does it, in a thread; blocks, and raises nothing."""

    def land(self) -> None:
        """Says what it came to, on the event loop."""


class Landing:
    """Lets one event loop land the flights that ended since it last looked, with one call."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.in_flight = 0
        """How many flights are to land here."""
        self._ended: deque[Flight] = deque()
        self._is_called = False

    def tell(self, flight: Flight) -> None:
        """Lets the flight land; any thread may call it."""
        self._ended.append(flight)
        if not self._is_called:
            self._is_called = True
            with suppress(RuntimeError):  # the loop is closed: nobody waits there any more
                self.loop.call_soon_threadsafe(self._land)

    def _land(self) -> None:
        self._is_called = False  # first: what is told from here on calls again
        while self._ended:
            self.in_flight -= 1
            self._ended.popleft().land()


_Queue = SimpleQueue[Flight | None]


class Writers:
    """At most `count` threads; each starts when there is work for it. Used by one loop at a time.

    They end with `close`, or with this object; the process does not wait for them.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._queue: _Queue = SimpleQueue()
        self._threads: list[Thread] = []
        self._end = weakref.finalize(self, _end, self._queue, self._threads)

    def start(self, flight: Flight) -> None:
        """Hands it to a thread; to be called on the loop that it lands on."""
        flight.landing.in_flight += 1
        self._queue.put(flight)
        if len(self._threads) < min(flight.landing.in_flight, self._count):
            name = f"perdure-jsonl-writer-{len(self._threads)}"
            thread = Thread(target=_serve, args=(self._queue,), name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def close(self) -> None:
        """Lets every flight end, then every thread; blocks."""
        self._end()
        for thread in self._threads:
            thread.join()


def _end(queue: _Queue, threads: list[Thread]) -> None:
    for _ in threads:
        queue.put(None)


def _serve(queue: _Queue) -> None:
    while (flight := queue.get()) is not None:
        flight.fly()
        flight.landing.tell(flight)
        del flight  # it holds a session's file while the thread waits
