"""A command in its own process group, read as it writes, that dies with whoever started it.

The owner holds one end of a lifeline (lifeline.py). Ending a command, a timeout and the death of
the owner's process are one thing: the lifeline closes, and the whole group is ended. Standard
output and error are one pipe, so their order is the order of arrival; input is empty. POSIX only.
"""

from __future__ import annotations

import asyncio
import codecs
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Thread

_LIFELINE = Path(__file__).with_name("lifeline.py")
_CHUNK_BYTES = 1 << 18
_MARGIN_S = 2.0
"""How much longer than the grace the supervisor may take to end the group."""


class Process:
    """One running command; `start` begins it, `end` leaves nothing of it.

    The output is decoded as UTF-8 as it comes: what is not UTF-8 becomes U+FFFD, and a character
    whose bytes arrive in two pieces stays one. More than `max_output_bytes` end the command.
    """

    def __init__(self, *, max_output_bytes: int, grace_s: float) -> None:
        self.status: int | None = None
        """The exit status, once the command has ended by itself or has been ended."""
        self.overflowed = False
        self.timed_out = False
        self._max_output_bytes = max_output_bytes
        self._grace_s = grace_s
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._bytes_read = 0
        self._fresh: list[str] = []
        self._all: list[str] = []
        self._report = b""
        self._changed = asyncio.Event()
        self._ended = asyncio.Event()
        self._lifeline = -1
        self._timer: asyncio.TimerHandle | None = None
        self._reading: dict[int, None] = {}
        self._popen: subprocess.Popen[bytes] | None = None

    def start(
        self,
        command: Sequence[str | bytes],
        *,
        cwd: Path,
        env: Mapping[str, str],
        streams: tuple[int, int] | None = None,
    ) -> None:
        """Starts the command in the folder `cwd`.

        `streams` are descriptors to have as standard input and error; they stay the caller's.

        Raises:
            OSError: it cannot be started; nothing runs.
            ValueError: an argument holds a NUL.

        """
        (alive_in, alive_out), (output, output_in), (report, report_in) = make_pipes(3)
        try:
            supervisor = [sys.executable, "-I", "-S", str(_LIFELINE)]
            passed = (report_in, *(streams or ()))
            self._popen = subprocess.Popen(
                [*supervisor, ",".join(map(str, passed)), str(self._grace_s), *command],
                cwd=cwd,
                env=env,
                stdin=alive_in,
                stdout=output_in,
                stderr=output_in,
                pass_fds=passed,
                start_new_session=True,
            )
        except BaseException:
            for fd in (alive_out, output, report):
                os.close(fd)
            raise
        finally:
            for fd in (alive_in, output_in, report_in):
                os.close(fd)
        self._lifeline, self._output, self._report_fd = alive_out, output, report
        for fd, callback in ((output, self._read_output), (report, self._read_report)):
            os.set_blocking(fd, False)
            self._reading[fd] = None
            asyncio.get_running_loop().add_reader(fd, callback)

    async def wait_for_output(self) -> str:
        """The output since the last call, as soon as there is any; "" when the command is over."""
        while not self._fresh and not self._ended.is_set():
            self._changed.clear()
            await self._changed.wait()
        fresh = "".join(self._fresh)
        self._fresh.clear()
        return fresh

    async def wait_for_end(self, at_most_s: float) -> None:
        """Returns when the command is over, and after `at_most_s` seconds anyway."""
        with suppress(TimeoutError):
            async with asyncio.timeout(at_most_s):
                await self._ended.wait()

    @property
    def output(self) -> str:
        """Everything that it has written so far."""
        return "".join(self._all)

    def expire(self) -> None:
        """Ends it because its time is up."""
        self.timed_out = True
        self.let_go()

    def let_go(self) -> None:
        """Closes the lifeline: from here on the command is being ended, whatever becomes of us.

        A supervisor that does not do it in time (the command may have stopped it) is killed, which
        ends the group too.
        """
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1
            if self._popen is not None and not self._ended.is_set():
                patience_s = self._grace_s + _MARGIN_S
                self._timer = asyncio.get_running_loop().call_later(patience_s, self._popen.kill)

    async def end(self) -> None:
        """Ends the command if it still runs, and returns when nothing is left of it."""
        self.let_go()
        if self._popen is None:
            return
        try:
            await self._ended.wait()
            await asyncio.to_thread(self._popen.wait)
        finally:
            if self._popen.poll() is None:  # cancelled once more: it ends by itself, unattended
                Thread(target=self._popen.wait, daemon=True).start()
            for fd in tuple(self._reading):
                self._stop_reading(fd)

    def _read_output(self) -> None:
        if not self._read_chunk():
            self._stop_reading(self._output)

    def _read_chunk(self) -> bool:
        try:
            chunk = os.read(self._output, _CHUNK_BYTES)
        except BlockingIOError:
            return True
        self._bytes_read += len(chunk)
        if self._bytes_read > self._max_output_bytes:
            chunk = chunk[: len(chunk) - (self._bytes_read - self._max_output_bytes)]
            self._bytes_read = self._max_output_bytes
            self.overflowed = True
            self.let_go()
        self._put(self._decoder.decode(chunk))
        return bool(chunk)

    def _put(self, decoded: str) -> None:
        if decoded:
            self._fresh.append(decoded)
            self._all.append(decoded)
            self._changed.set()

    def _read_report(self) -> None:
        try:
            data = os.read(self._report_fd, 64)
        except BlockingIOError:
            return
        self._report += data
        if data:
            return
        lines = self._report.split()
        if len(lines) == 2:
            self.status = int(lines[1])
        elif lines:
            with suppress(ProcessLookupError):  # the supervisor was killed: do its work
                os.killpg(int(lines[0]), signal.SIGKILL)
        self._stop_reading(self._report_fd)
        if self._timer is not None:
            self._timer.cancel()
        self._drain()
        self._ended.set()
        self._changed.set()

    def _drain(self) -> None:
        """Takes what is in the pipe; a process that escaped the group may keep it open for ever."""
        while self._output in self._reading:
            before = self._bytes_read
            if not self._read_chunk() or self._bytes_read == before:
                self._stop_reading(self._output)
        self._put(self._decoder.decode(b"", final=True))

    def _stop_reading(self, fd: int) -> None:
        asyncio.get_running_loop().remove_reader(fd)
        del self._reading[fd]
        os.close(fd)


def make_pipes(count: int) -> list[tuple[int, int]]:
    """That many pipes, or none where the descriptors do not suffice."""
    made: list[tuple[int, int]] = []
    try:
        while len(made) < count:
            made.append(os.pipe())
    except OSError:
        for pipe in made:
            for fd in pipe:
                os.close(fd)
        raise
    return made
