"""Texts for people who need not know where on its disk a server keeps its files.

What a store says of damage names the file with its folder. Who operates the server gets that, from
a problem's text and from the log; what is kept, or shown to others, has the file's own name.
"""

from __future__ import annotations

import re

_QUOTED = re.compile(r"(['\"])/(?:(?!\1)[^\n])*/((?:(?!\1)[^/\n])*)\1")
_BARE = re.compile(r"(?<![\w:/.'\"])/(?:[^\s/'\":;,]+/)+")


def without_folders(text: str) -> str:
    """The text, in which each absolute path is the last name of it only."""
    return _BARE.sub("", _QUOTED.sub(r"\1\2\1", text))
