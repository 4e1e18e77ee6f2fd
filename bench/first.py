"""How long from sending a message until its viewer has it, through the whole server?

A server's process, a connection that sends, and one viewer's stream of the same session. Sent to a
session that is awake, and to one that has to be woken first, each time a new one. Counted are the
group commits that end between the two, and the CPU time that the server takes from before the
request until the viewer has the message. (The event before it, the turn's start, comes in the same
write.) A viewer of a session that sleeps hears of its waking after the first commit.
"""

from __future__ import annotations

import socket
import statistics
import time
from pathlib import Path

from bench import report
from bench.broadcast import TOKEN
from bench.node import Client, Node
from bench.report import Figure, Measured
from perdure.testing import Say, Wait, write_script

TIMES = 30
MOST_COMMITS = 2
MOST_MS = 5.0
SCRIPT = write_script(Wait(0.05), Say("done"))


class Viewer:
    """One stream of one session."""

    def __init__(self, port: int, session_id: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        request = f"GET /v1/stream?session={session_id} HTTP/1.1\r\nHost: localhost\r\n"
        self._socket.sendall(f"{request}Authorization: Bearer {TOKEN}\r\n\r\n".encode())
        self._got = b""
        self.wait_for(b'"status"')

    def wait_for(self, mark: bytes) -> None:
        """Until this has come, after what came before."""
        while (at := self._got.find(mark)) < 0:
            self._got += self._socket.recv(65536)
        self._got = self._got[at:].partition(b"\n\n")[2]

    def close(self) -> None:
        """Ends the stream."""
        self._socket.close()


def send(node: Node, client: Client, session_id: str) -> tuple[int, float, float]:
    """The commits, the CPU milliseconds and the milliseconds until the viewer has the message."""
    viewer = Viewer(node.port, session_id)
    time.sleep(0.05)  # the stream has been opened, and nothing is left to be done
    node.forget()
    cpu_s, start = node.cpu_s, time.monotonic()
    client.ask("POST", f"/v1/sessions/{session_id}/messages", {"text": SCRIPT})
    viewer.wait_for(b'"type":"message"')
    end, used = time.monotonic(), node.cpu_s - cpu_s
    viewer.close()
    node.rest()
    commits = sum(start <= finish <= end for _, finish in node.tell()["commits"])
    assert commits, "a message was seen before it was stored"
    return commits, used * 1e3, (end - start) * 1e3


async def measure(folder: Path, rounds: int) -> Measured:
    """Each kind of session in turns."""
    del rounds
    found: dict[str, list[tuple[int, float, float]]] = {"awake": [], "asleep": []}
    with Node(folder / "sessions.db") as node:
        client = Client(node.port)
        for number in range(-3, TIMES):
            for kind, session_id in (("awake", "s"), ("asleep", f"s{number}")):
                client.ask("POST", "/v1/sessions", {"session_id": session_id})
                taken = send(node, client, session_id)
                if number >= 0:
                    found[kind].append(taken)
        client.close()
    figures = []
    notes = []
    for kind, taken in found.items():
        commits, cpu, wall = (statistics.median(column) for column in zip(*taken, strict=True))
        for what, ours, unit, most in (
            ("group commits", commits, "", MOST_COMMITS),
            ("CPU of the server", cpu, "ms", MOST_MS),
        ):
            figures.append(
                Figure(
                    f"send to first sight, session {kind}: {what}",
                    ours,
                    unit,
                    "the target",
                    most,
                    ours / most,
                    at_most=1.0,
                )
            )
        notes.append(f"session {kind}: {wall:.1f} ms at the median, of {TIMES}")
    return figures, notes


if __name__ == "__main__":
    assert __doc__ is not None
    report.run("first", __doc__, measure)
