"""A hook's command as a process: input on its standard input, output and error kept apart.

It is a `Process` with a lifeline: it, and all that it started and left in its group, is ended with
its time limit, with the fire that it belongs to, and with the server, however that dies.
"""

from __future__ import annotations

import asyncio
import codecs
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from perdure.loops.process import Process, make_pipes

MAX_OUTPUT_BYTES = 1 << 20
"""A hook that writes more than this to either stream is ended; so much of it is kept."""

GRACE_S = 1.0
"""Between SIGTERM and SIGKILL."""

_CHUNK_BYTES = 1 << 16


class HookProcess(Process):
    """One run of a hook's command; `start_with`, then `wait_for_end`, then always `end`."""

    def __init__(self) -> None:
        super().__init__(max_output_bytes=MAX_OUTPUT_BYTES, grace_s=GRACE_S)
        self._error = bytearray()
        self._error_fd = -1
        self._input = memoryview(b"")
        self._input_fd = -1

    def start_with(
        self, data: bytes, command: Sequence[str], *, cwd: Path, env: Mapping[str, str]
    ) -> None:
        """Starts the command, with this on its standard input.

        Raises:
            OSError: it cannot be started; nothing runs.
            ValueError: an argument holds a NUL.

        """
        (input_out, input_in), (error, error_in) = make_pipes(2)
        try:
            self.start(command, cwd=cwd, env=env, streams=(input_out, error_in))
        except BaseException:
            os.close(input_in)
            os.close(error)
            raise
        finally:
            os.close(input_out)
            os.close(error_in)
        loop = asyncio.get_running_loop()
        os.set_blocking(error, False)
        self._error_fd = error
        self._reading[error] = None
        loop.add_reader(error, self._read_error)
        os.set_blocking(input_in, False)
        self._input, self._input_fd = memoryview(data), input_in
        loop.add_writer(input_in, self._write_input)

    @property
    def is_over(self) -> bool:
        """Whether nothing of it is left running."""
        return self._ended.is_set()

    @property
    def error(self) -> str:
        """What it has written to standard error so far."""
        return codecs.decode(self._error, "utf-8", "replace")

    async def end(self) -> None:
        """Ends the command if it still runs, and returns when nothing is left of it."""
        try:
            await super().end()
        finally:
            self._close_input()

    def _write_input(self) -> None:
        try:
            written = os.write(self._input_fd, self._input[:_CHUNK_BYTES])
        except BlockingIOError:
            return
        except OSError:  # it reads no more
            written = len(self._input)
        self._input = self._input[written:]
        if not self._input:
            self._close_input()

    def _close_input(self) -> None:
        if self._input_fd >= 0:
            asyncio.get_running_loop().remove_writer(self._input_fd)
            os.close(self._input_fd)
            self._input_fd = -1

    def _read_error(self) -> None:
        try:
            chunk = os.read(self._error_fd, _CHUNK_BYTES)
        except BlockingIOError:
            return
        self._error += chunk[: MAX_OUTPUT_BYTES - len(self._error)]
        if len(chunk) and len(self._error) >= MAX_OUTPUT_BYTES:
            self.overflowed = True
            self.let_go()
        if not chunk or self.overflowed:
            self._stop_reading(self._error_fd)

    def _drain(self) -> None:
        super()._drain()
        with suppress(BlockingIOError):
            while self._error_fd in self._reading:
                chunk = os.read(self._error_fd, _CHUNK_BYTES)
                self._error += chunk[: MAX_OUTPUT_BYTES - len(self._error)]
                self.overflowed |= bool(chunk) and len(self._error) >= MAX_OUTPUT_BYTES
                if not chunk or self.overflowed:
                    self._stop_reading(self._error_fd)
