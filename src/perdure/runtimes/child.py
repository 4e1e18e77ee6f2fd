"""The program of a runtime in a subprocess, which ends with whoever started it.

    python -m perdure.runtimes.child SOCKET_FD PARENT_PID

Its first frame is what to be: a `Charge`, as JSON. It is given over the socket and not on the
command line, where everybody can read it. When the socket closes, and when the parent dies while
this process is stopped, it is over.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys

import msgspec
from msgspec import Struct

from perdure.errors import PerdureError
from perdure.runtimes.command_tool import CommandLimits
from perdure.runtimes.link import Link, WireClosedError
from perdure.runtimes.local import EXCERPT_CHARS, open_local
from perdure.runtimes.parent_death import end_with_parent
from perdure.runtimes.serving import Serving
from perdure.runtimes.socket_wire import SocketWire
from perdure.runtimes.source import sources_of
from perdure.runtimes.table import McpServer

READY = "ready"


class Charge(Struct, frozen=True):
    """What a subprocess is to be a runtime of."""

    workspace: str
    name: str
    life: str
    lost_after_s: float
    tools: tuple[str, ...] | None = None
    excerpt_chars: int | None = EXCERPT_CHARS
    limits: CommandLimits = CommandLimits()
    mcp: dict[str, McpServer] = {}


def main() -> None:
    """Serves until the link is over."""
    descriptor, parent = int(sys.argv[1]), int(sys.argv[2])
    end_with_parent(parent, signal.SIGKILL)
    os.set_inheritable(descriptor, False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is the parent's business
    asyncio.run(serve(socket.socket(fileno=descriptor)))


async def serve(connected: socket.socket) -> None:
    """Takes its charge, and serves it."""
    wire = await SocketWire.over(connected)
    try:
        charge = msgspec.json.decode(await wire.receive(), type=Charge)
        runtime = await open_local(
            charge.workspace,
            name=charge.name,
            life=charge.life,
            sources=sources_of(charge.mcp, charge.workspace),
            chosen=charge.tools,
            limits=charge.limits,
            excerpt_chars=charge.excerpt_chars,
        )
        await wire.send(READY)
    except WireClosedError:
        return
    except PerdureError as error:
        await wire.send(str(error))
        return
    link = Link(wire, lost_after_s=charge.lost_after_s)
    serving = Serving(runtime)
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    link.start()
    try:
        await serving.serve(link)
    except asyncio.CancelledError:
        task.uncancel()
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
        await serving.close()


if __name__ == "__main__":
    main()
