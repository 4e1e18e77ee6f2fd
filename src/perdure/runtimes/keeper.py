"""Runs one MCP server that cannot outlive its owner. A program of its own, not imported by others.

    python -I -S keeper.py OWNER_PID GRACE_S PROGRAM [ARGUMENT …]

The program has this one's input and output, so the owner talks to it as if it had started it. When
the owner dies, by whatever signal, and when the program has ended and left something running, the
whole process group gets SIGTERM, and SIGKILL after the grace. Where the death of a parent is not
told (outside Linux), it is looked for.
"""

import os
import select
import signal
import sys
import time

PR_SET_PDEATHSIG = 1
LOOK_S = 1.0
POLL_S = 0.02


def main() -> None:
    """Runs the program of the arguments, and ends with its exit status."""
    owner, grace_s, command = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda *_: None)
    tell_of_death(signal.SIGTERM)
    if os.getppid() != owner:
        return
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)
    pid = start(command)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    status = None
    while status is None and os.getppid() == owner:
        ready, _, _ = select.select([woken], [], [], LOOK_S)
        asked = signal.SIGTERM in os.read(woken, 64) if ready else False
        status = reap(pid)
        if asked:
            break
    end(pid, status, grace_s)


def start(command: list[str]) -> int:
    """Starts the program in this process group; it is killed if this process is."""
    keeper = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            tell_of_death(signal.SIGKILL)
            if os.getppid() != keeper:
                os._exit(127)
            for number in (signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(number, signal.SIG_DFL)
            os.execvp(command[0], command)
        except OSError as error:
            os.write(2, f"{command[0]}: {error.strerror}\n".encode())
        finally:
            os._exit(127)
    return pid


def tell_of_death(number: int) -> None:
    """Has the death of the parent send this process a signal, where Linux can."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)


def reap(pid: int) -> int | None:
    """The program's exit status, once it has one."""
    ended, status = os.waitpid(pid, os.WNOHANG)
    if ended == 0:
        return None
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def end(pid: int, status: int | None, grace_s: float) -> None:
    """Ends what is left of the group, this process last."""
    os.killpg(0, signal.SIGTERM)
    ends = time.monotonic() + grace_s
    while status is None and time.monotonic() < ends:
        status = reap(pid)
        time.sleep(POLL_S)
    if status is None:
        os.killpg(0, signal.SIGKILL)
    sys.stdout = None
    leftovers(grace_s)
    os._exit(status or 0)


def leftovers(grace_s: float) -> None:
    """Kills what the program left in the group; that includes this process where there is any."""
    ends = time.monotonic() + grace_s
    while others() and time.monotonic() < ends:
        time.sleep(POLL_S)
    if others():
        os.killpg(0, signal.SIGKILL)


def others() -> bool:
    """Whether another process is in this group."""
    try:
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return True
    for pid in pids:
        try:
            if pid != os.getpid() and os.getpgid(pid) == os.getpgrp() and is_running(pid):
                return True
        except ProcessLookupError:
            continue
    return False


def is_running(pid: int) -> bool:
    """Whether it is more than a dead process that nobody has reaped."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except OSError:
        return False


if __name__ == "__main__":
    main()
