"""A program that is spoken to in lines, and of which nothing is left when its owner is gone.

Like process.py it runs under a lifeline, so a timeout, an end and the death of the owner's process
are one thing. Here everything that descends from the program is ended too, also what moved to a
process group of its own (on Linux). What it writes is read one line at a time and no faster than
its owner takes it; of its standard error the last few KiB are kept. POSIX only.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any

import msgspec

from perdure.completion import complete
from perdure.errors import LoopError
from perdure.loops.process import make_pipes

_LIFELINE = Path(__file__).with_name("lifeline.py")
_BUFFER_BYTES = 1 << 18
_LAST_WORDS_BYTES = 4096
_MARGIN_S = 2.0
_REST_S = 1.0
"""How long a program may take to end by itself, once its input is closed."""

MAX_LINE_BYTES = 32 << 20


def find_program(name: str, env: Mapping[str, str]) -> str | None:
    """Where the program is, by the `PATH` of this environment; None where it is not."""
    return shutil.which(name, path=env.get("PATH"))


class Command:
    """One running program; `start` begins it, `end` leaves nothing of it."""

    def __init__(self, *, grace_s: float, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self.status: int | None = None
        """The exit status, once it has ended: 128 and the signal's number for a signal."""
        self._grace_s = grace_s
        self._max_line_bytes = max_line_bytes
        self._popen: subprocess.Popen[bytes] | None = None
        self._lifeline = -1
        self._closing: list[Any] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._errors = b""
        self._over = asyncio.Event()

    async def start(self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str]) -> None:
        """Starts the program in the folder `cwd`; its name is looked for in the `PATH` of `env`.

        Raises:
            LoopError: it cannot be started; nothing runs.

        """
        program = find_program(argv[0], env)
        if program is None:
            raise LoopError(f"the command {argv[0]!r} was not found")
        try:
            ours, theirs = self._launch([program, *argv[1:]], cwd, env)
        except (OSError, ValueError) as error:
            raise LoopError(f"the command {argv[0]!r} cannot be started: {error}") from error
        for fd in theirs:
            os.close(fd)
        await complete(self._connect(ours))

    async def _connect(self, ours: list[int]) -> None:
        try:
            self._input = await self._writer(ours.pop())
            self._output = await self._reader(ours.pop())
            errors = await self._reader(ours.pop())
            report = await self._reader(ours.pop())
        finally:
            for fd in ours:
                os.close(fd)
        self._tasks = [
            asyncio.create_task(self._listen(errors)),
            asyncio.create_task(self._watch(report)),
        ]

    def _launch(
        self, argv: Sequence[str], cwd: Path, env: Mapping[str, str]
    ) -> tuple[list[int], list[int]]:
        """Starts the supervisor; returns our ends of the pipes, the last one first, and theirs."""
        pipes = make_pipes(5)
        alive, stdin, stdout, stderr, report = pipes
        try:
            passed = (report[1], stdin[0], stderr[1])
            supervisor = [sys.executable, "-I", "-S", str(_LIFELINE)]
            self._popen = subprocess.Popen(
                [*supervisor, ",".join(map(str, passed)), f"{self._grace_s},all", *argv],
                cwd=cwd,
                env=env,
                stdin=alive[0],
                stdout=stdout[1],
                stderr=stderr[1],
                pass_fds=passed,
                start_new_session=True,
            )
        except BaseException:
            for pipe in pipes:
                for fd in pipe:
                    os.close(fd)
            raise
        self._lifeline = alive[1]
        return [report[0], stderr[0], stdout[0], stdin[1]], [
            alive[0],
            stdin[0],
            stdout[1],
            stderr[1],
            report[1],
        ]

    async def _reader(self, fd: int) -> asyncio.StreamReader:
        reader = asyncio.StreamReader(limit=_BUFFER_BYTES)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(fd, "rb", 0)
        )
        self._closing.append(transport)
        return reader

    async def _writer(self, fd: int) -> asyncio.StreamWriter:
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.connect_write_pipe(
            lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), os.fdopen(fd, "wb", 0)
        )
        self._closing.append(transport)
        return asyncio.StreamWriter(transport, protocol, None, loop)

    async def send(self, line: bytes) -> None:
        """Writes a line; waits while the program does not read.

        Raises:
            ConnectionError: it reads no more.

        """
        if self._input.is_closing():
            raise ConnectionResetError("the program reads no more")
        self._input.write(line + b"\n")
        await self._input.drain()

    async def receive(self) -> bytes | None:
        """The next line that it writes, without its end; None when there is none any more.

        Raises:
            LoopError: the line is longer than any that is taken.

        """
        pieces: list[bytes] = []
        size = 0
        while True:
            try:
                piece = await self._output.readuntil(b"\n")
            except asyncio.LimitOverrunError as overrun:
                piece = await self._output.readexactly(overrun.consumed)
            except asyncio.IncompleteReadError as ended:
                pieces.append(ended.partial)
                return b"".join(pieces) or None
            size += len(piece)
            if size > self._max_line_bytes:
                raise LoopError(f"the agent wrote a line of more than {self._max_line_bytes} bytes")
            pieces.append(piece)
            if piece.endswith(b"\n"):
                return b"".join(pieces)[:-1]

    @property
    def last_words(self) -> str:
        """The end of what it wrote to its standard error."""
        return self._errors.decode("utf-8", "replace").strip()

    def hear(self, line: bytes) -> None:
        """Counts a line of its output as one of its standard error: it was no message."""
        self._errors = (self._errors + line + b"\n")[-_LAST_WORDS_BYTES:]

    async def wait(self, at_most_s: float) -> bool:
        """Waits for its end; says whether it has ended."""
        with suppress(TimeoutError):
            async with asyncio.timeout(at_most_s):
                await self._over.wait()
        return self._over.is_set()

    def let_go(self) -> None:
        """From here on it is being ended, whatever becomes of us."""
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1

    async def end(self) -> None:
        """Closes its input, lets it go, and returns when nothing is left of it."""
        if self._popen is None:
            return
        try:
            if self._lifeline >= 0 and self._tasks:
                self._input.close()
                await self.wait(_REST_S)
            self.let_go()
            if self._tasks and not await self.wait(self._grace_s + _MARGIN_S):
                self._popen.kill()  # the program may have stopped its supervisor
                await self._over.wait()
            await asyncio.to_thread(self._popen.wait)
        finally:
            self.let_go()
            if self._popen.poll() is None:  # cancelled once more: it ends by itself, unattended
                Thread(target=self._popen.wait, daemon=True).start()
            for task in self._tasks:
                task.cancel()
            for transport in self._closing:
                transport.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _listen(self, errors: asyncio.StreamReader) -> None:
        while chunk := await errors.read(_BUFFER_BYTES):
            self._errors = (self._errors + chunk)[-_LAST_WORDS_BYTES:]

    async def _watch(self, report: asyncio.StreamReader) -> None:
        """Waits for the report of how it ended, which comes when nothing is left of it."""
        lines = (await report.read(-1)).split()
        if len(lines) == 2:
            self.status = int(lines[1])
        elif lines:
            with suppress(ProcessLookupError):  # the supervisor was killed: do its work
                os.killpg(int(lines[0]), signal.SIGKILL)
        self._over.set()


def read_message(line: bytes) -> dict[str, Any] | None:
    """The JSON object of a line; None where it is none. It takes lone surrogates, and NaN."""
    try:
        found = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError):
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            return None
    return found if isinstance(found, dict) else None


def write_message(message: object) -> bytes:
    """The line of a message; a lone surrogate goes back as it came."""
    try:
        return msgspec.json.encode(message)
    except UnicodeEncodeError:
        return json.dumps(message).encode()


def ended(command: Command) -> str:
    """How an agent's command ended before its turn did, for a person to read."""
    status = command.status
    how = "" if status is None else f" with exit status {status}"
    if status is not None and status > 128:
        how = f": signal {status - 128} ended it"
    words = f"; its last words: {command.last_words}" if command.last_words else ""
    return f"the agent's command ended in mid-turn{how}; what it did until then is kept{words}"
