"""Writing what others wrote: on a terminal nothing in it is a command, elsewhere it stays itself.

What a model or a tool said can hold escape sequences that retitle a window, move the cursor or
hide text. On a terminal every control character but newline and tab becomes visible, and so do
the characters that reorder text; a pipe or a file gets the text as it is.
"""

from __future__ import annotations

import re
from typing import TextIO

_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]"
)


def inert(text: str) -> str:
    """The text with every character that could command a terminal made visible."""
    return _UNSAFE.sub(_visible, text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    """The text as one inert line."""
    return inert(" ".join(text.split()))


def cut(text: str, limit: int) -> str:
    """At most `limit` characters of the text, on one line, with an ellipsis where it was cut."""
    line = " ".join(text[: limit * 4].split())
    return line if len(line) <= limit and len(text) <= limit * 4 else line[: limit - 1] + "…"


def _visible(found: re.Match[str]) -> str:
    code = ord(found[0])
    return chr(0x2400 + code) if code < 0x20 else "␡" if code == 0x7F else f"<U+{code:04X}>"


class Terminal:
    """Standard output, whatever it is connected to; `is_lost` once it takes no more."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.is_terminal = stream.isatty()
        self.is_lost = False
        self._at_line_start = True

    def say(self, line: str = "") -> None:
        """Writes a line, on a line of its own."""
        self.end_line()
        self.write(line + "\n")

    def write(self, text: str) -> None:
        """Writes text as it comes; it is on the screen when this returns."""
        if text:
            try:
                self._stream.write(inert(text) if self.is_terminal else text)
                self._stream.flush()
            except OSError:
                self.is_lost = True
                raise
            self._at_line_start = text.endswith("\n")

    def end_line(self) -> None:
        """Goes to the start of a line, if it is not there."""
        if not self._at_line_start:
            self.write("\n")

    def answered(self) -> None:
        """A person pressed return: the cursor is at the start of a line."""
        self._at_line_start = True
