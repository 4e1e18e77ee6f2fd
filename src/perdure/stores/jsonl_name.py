"""The name of a session's file: the id itself where it is plain, else `%` and a hash of it.

A plain name cannot begin with `%`, so two ids never share a file, whatever a file system makes of
case, Unicode forms or length.
"""

from __future__ import annotations

import hashlib
import re

SUFFIX = ".jsonl"

_PLAIN = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,98}[a-z0-9])?")
_DRAFT = re.compile(r"\..+\.[0-9a-f]{32}\.tmp")
_HASHED = re.compile(r"%[0-9a-f]{64}")


def name_of(session_id: str) -> str:
    """The name, without its ending, of the file of a valid session id."""
    if is_plain(session_id):
        return session_id
    return "%" + hashlib.sha256(session_id.encode()).hexdigest()


def is_plain(session_id: str) -> bool:
    """Whether the id is its own name: lowercase letters, digits, inner `-` `_` `.`; ≤ 100 bytes."""
    return _PLAIN.fullmatch(session_id) is not None


def is_hashed(name: str) -> bool:
    """Whether the name stands for an id that only the file's first line tells."""
    return _HASHED.fullmatch(name) is not None


def draft_name(name: str, unique: str) -> str:
    """The name of a file that is to become the one of this name."""
    return f".{name}.{unique}.tmp"


def is_draft(file_name: str) -> bool:
    """Whether it is the name of a file in the making, or of one whose maker died."""
    return _DRAFT.fullmatch(file_name) is not None
