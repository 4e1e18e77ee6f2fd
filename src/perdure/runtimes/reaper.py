"""Ends what a runtime left behind whose process is gone, wherever those processes have fled to.

Whatever a runtime starts finds in its environment who its owner is. A command ends with its owner
anyway (process.py, keeper.py); only what left its process group on purpose, and only where the
watcher was killed too, is still there when the next runtime starts. It looks for marks of owners
that are dead, and kills those processes. Linux only: elsewhere there is nothing to look into.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

VARIABLE = "PERDURE_OWNER"
_PROC = Path("/proc")


@cache
def _machine() -> str:
    """Which boot of which machine, and which world of process ids; "" where it cannot be told."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def mark() -> str:
    """What the processes that this one starts carry in their environment."""
    return f"{_machine()}/{os.getpid()}/{_started(os.getpid())}"


def reap() -> list[int]:
    """Kills processes whose owner is dead, and says which; blocks: call it in a thread."""
    if not _machine():
        return []
    return [pid for pid in _orphans() if _kill(pid)]


def _orphans() -> Iterator[int]:
    for entry in os.listdir(_PROC):
        if entry.isdigit() and (owner := _owner(int(entry))) is not None and not _lives(owner):
            yield int(entry)


def _owner(pid: int) -> tuple[int, str] | None:
    """The owner's process id and start, where the process carries a mark of this machine."""
    with suppress(OSError):  # it went, or is somebody else's
        for variable in (_PROC / str(pid) / "environ").read_bytes().split(b"\0"):
            name, _, value = variable.partition(b"=")
            if name == VARIABLE.encode():
                machine, _, rest = value.decode("utf-8", "replace").rpartition("/")
                machine, _, owner = machine.rpartition("/")
                if machine == _machine() and owner.isdigit():
                    return int(owner), rest
    return None


def _lives(owner: tuple[int, str]) -> bool:
    pid, started = owner
    return started != "" and _started(pid) == started


def _started(pid: int) -> str:
    """When a process began, in ticks since boot: with its id it is one process; "" for none."""
    with suppress(OSError):
        fields = (
            (_PROC / str(pid) / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        )
        if fields[0] not in {"Z", "X"}:
            return fields[19]
    return ""


def _kill(pid: int) -> bool:
    """Kills it, if it still is what was found under this id."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        owner = _owner(pid)
        if owner is None or _lives(owner):
            return False
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
    return True
