"""The command as a person or a script starts it: a process, with pipes or with a terminal."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

REPO = Path(__file__).parents[2]
DEADLINE_S = 30.0


def environment() -> dict[str, str]:
    """This process's environment without settings of its own, and with the package found."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PERDURE_")}
    for key in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        kept.pop(key, None)
    path = os.pathsep.join((str(REPO / "src"), str(REPO)))
    return kept | {"PYTHONPATH": path, "PYTHONUTF8": "1", "TERM": "dumb"}


def run(
    *arguments: str, cwd: Path, stdin: str = "", env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs `perdure …` with pipes, to its end."""
    return subprocess.run(
        [sys.executable, "-m", "perdure", *arguments],
        input=stdin,
        cwd=cwd,
        env=environment() | (env or {}),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


class Terminal:
    """`perdure …` on a terminal of its own, typed into and read from."""

    def __init__(self, *arguments: str, cwd: Path) -> None:
        self.shown = ""
        self._fd, child_fd = pty.openpty()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "perdure", *arguments],
            stdin=child_fd,
            stdout=child_fd,
            stderr=child_fd,
            cwd=cwd,
            env=environment(),
            start_new_session=True,
        )
        os.close(child_fd)

    def wait_for(self, text: str, *, after: int = 0) -> int:
        """Reads until `text` is shown; returns where it ends in `shown`."""
        deadline = time.monotonic() + DEADLINE_S
        while (at := self.shown.find(text, after)) < 0:
            ready = self._is_readable(max(0.0, deadline - time.monotonic()))
            data = self._read() if ready else b""
            if not data:
                raise AssertionError(f"{text!r} was never shown in:\n{self.shown}")
            self.shown += data.decode(errors="replace").replace("\r\n", "\n")
        return at + len(text)

    def _is_readable(self, timeout_s: float) -> bool:
        return bool(select.select([self._fd], [], [], timeout_s)[0])

    def _read(self) -> bytes:
        try:
            return os.read(self._fd, 65536)
        except OSError:  # the other end is closed
            return b""

    def type(self, text: str) -> None:
        """Types the text; end it with a newline to send it."""
        os.write(self._fd, text.encode())

    def interrupt(self) -> None:
        """Presses Ctrl-C."""
        self._process.send_signal(signal.SIGINT)

    def interrupt_prompt(self) -> None:
        """Presses Ctrl-C at a prompt until something is shown for it.

        Python's line editing does not notice one that comes after the prompt is written and before
        it waits for keys.
        """
        deadline = time.monotonic() + DEADLINE_S
        self.interrupt()
        while not self._is_readable(1.0) and time.monotonic() < deadline:
            self.interrupt()

    def kill(self) -> None:
        """kill -9."""
        self._process.kill()
        self._process.wait(DEADLINE_S)

    def end(self) -> int:
        """Presses Ctrl-D and waits for the exit status."""
        os.write(self._fd, b"\x04")
        try:
            while self._read():
                pass
        finally:
            return_code = self._process.wait(DEADLINE_S)
        return return_code

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self.kill()
        os.close(self._fd)
