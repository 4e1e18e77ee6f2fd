"""Runs one command that cannot outlive its owner. A program of its own, not imported by others.

    python -I -S lifeline.py REPORT_FD[,INPUT_FD,ERROR_FD] GRACE_S[,all] PROGRAM [ARGUMENT …]

Standard input is the lifeline: the owner holds its other end, so it closes when the owner lets go
of it *or dies, by whatever signal*. Then, and also when the command has ended and left something
running, the command's process group gets SIGTERM, and SIGKILL after the grace. On REPORT_FD it
writes the group's id before the command starts, and the exit status when nothing is left of it
(128 and the signal's number for a command that a signal ended). The command has a session of its
own, and the standard output and error of this program, and no input, unless it is given an
INPUT_FD and an ERROR_FD to have as its own.

A process that leaves the group on purpose (setsid) is not followed, unless `all` says so: then
every descendant is ended, wherever it went, where Linux tells of them.
"""

import os
import select
import signal
import sys
import time

POLL_S = 0.01
PR_SET_CHILD_SUBREAPER = 36
HEEDED = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE, signal.SIGXFSZ)
"""Signals that Python, nohup or a shell's background job ignores; the command gets its own way."""


def main() -> None:
    """Runs the command of the program's arguments and reports how it ended."""
    report, *streams = map(int, sys.argv[1].split(","))
    grace, _, scope = sys.argv[2].partition(",")
    grace_s, everything, command = float(grace), scope == "all", sys.argv[3:]
    adopt_orphans()
    for fd in (report, *streams):
        os.set_inheritable(fd, False)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake)
    pid = start(command, report, streams)
    for fd in streams:
        os.close(fd)
    os.close(1)
    os.close(2)
    status = None
    while status is None:
        ready, _, _ = select.select([0, woken], [], [])
        if woken in ready:
            os.read(woken, 64)
            status = reap(pid)
        if 0 in ready:
            break
    status = end(pid, status, grace_s, everything=everything)
    os.write(report, b"%d\n" % status)


def start(command: list[str], report: int, streams: list[int]) -> int:
    """Starts the command in a session of its own, which reports itself before it can do harm."""
    executed, executing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            os.write(report, b"%d\n" % os.getpid())
            os.dup2(streams[0] if streams else os.open(os.devnull, os.O_RDONLY), 0)
            if streams:
                os.dup2(streams[1], 2)
            for each in HEEDED:
                signal.signal(each, signal.SIG_DFL)
            os.execv(command[0], command)
        except OSError as error:
            os.write(2, f"{command[0]}: {error.strerror}\n".encode())
        finally:
            os._exit(127)
    os.close(executing)
    os.read(executed, 1)
    return pid


def adopt_orphans() -> None:
    """Makes this program the parent of what the command leaves behind, where Linux lets it.

    Without it the leftovers are the business of process 1, which in a container may reap nothing,
    and a dead process that nobody reaps still counts as one of its group.
    """
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reap(pid: int) -> int | None:
    """Reaps whatever has ended; the command's exit status if it is among them."""
    found: int | None = None
    while True:
        try:
            ended, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if ended == 0:
            return found
        if ended == pid:
            code = os.waitstatus_to_exitcode(status)
            found = code if code >= 0 else 128 - code


def end(pid: int, status: int | None, grace_s: float, *, everything: bool) -> int:
    """Ends what is left of the group; returns the command's exit status."""
    kill(pid, signal.SIGTERM)
    for each in descendants() if everything else ():
        kill_one(each, signal.SIGTERM)
    waits_until = time.monotonic() + grace_s
    while time.monotonic() < waits_until:
        ended = reap(pid)
        status = ended if status is None else status
        if status is not None and not kill(pid, 0) and not (everything and descendants()):
            reap(pid)
            return status
        time.sleep(POLL_S)
    kill(pid, signal.SIGKILL)
    while status is None:
        status = reap(pid)
        time.sleep(POLL_S)
    while everything and (left := descendants()):
        for each in left:
            kill_one(each, signal.SIGKILL)
        time.sleep(POLL_S)
    reap(pid)
    return status


def descendants() -> list[int]:
    """What descends from this process and is not dead; orphans do too, as it adopts them."""
    children: dict[int, list[int]] = {}
    try:
        found = [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []
    for name in found:
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                state, parent = file.read().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if state not in "ZX":
            children.setdefault(int(parent), []).append(int(name))
    left, below = [os.getpid()], list[int]()
    while left:
        more = children.get(left.pop(), [])
        below += more
        left += more
    return below


def kill_one(pid: int, number: int) -> None:
    """Signals one process, if it is still there."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def kill(pid: int, number: int) -> bool:
    """Signals the group; says whether there was anything to signal."""
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


if __name__ == "__main__":
    main()
