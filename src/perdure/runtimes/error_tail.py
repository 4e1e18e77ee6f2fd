"""What a program writes to standard error: passed on to this process's own, and its end kept.

A program that ends as it is started says why there, and nowhere else.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from types import TracebackType
from typing import Self, TextIO

from perdure.codec import clean_text

KEPT_BYTES = 4096
"""So much of the end is kept."""

_CHUNK_BYTES = 1 << 16
_SHOWN_CHARS = 500


class ErrorTail:
    """A pipe whose writing end, `writer`, is a program's standard error, while it is entered."""

    def __init__(self) -> None:
        self._end = bytearray()
        self._reading = -1

    def __enter__(self) -> Self:
        self._reading, writing = os.pipe()
        os.set_blocking(self._reading, False)
        self.writer: TextIO = os.fdopen(writing, "w", encoding="utf-8")
        asyncio.get_running_loop().add_reader(self._reading, self._pass_on)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        self.writer.close()
        while self._pass_on():
            pass
        self._stop()
        os.close(self._reading)

    @property
    def last_line(self) -> str:
        """The last line that is more than spaces; empty where there is none."""
        while self._pass_on():
            pass
        lines = self._end.decode("utf-8", "replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return clean_text(last)[-_SHOWN_CHARS:]

    def _pass_on(self) -> bool:
        try:
            chunk = os.read(self._reading, _CHUNK_BYTES)
        except BlockingIOError:
            return False
        if not chunk:
            self._stop()
            return False
        self._end += chunk[-KEPT_BYTES:]
        del self._end[:-KEPT_BYTES]
        with suppress(OSError):  # nobody reads this process's; it is kept all the same
            os.write(2, chunk)
        return True

    def _stop(self) -> None:
        asyncio.get_running_loop().remove_reader(self._reading)
