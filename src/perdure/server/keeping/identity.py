"""What ids of routines and workflows can be, and numbers that follow from them."""

from __future__ import annotations

import hashlib

from perdure.errors import InvalidSessionIdError
from perdure.store import check_session_id

MAX_ID_BYTES = 200
"""Of a routine's or workflow's id: ids of sessions are made of it."""


def id_problem(name: str) -> str | None:
    """Why this cannot be an id; None where it can.

    The rules are those of session ids, and it has at most 200 bytes.
    """
    try:
        check_session_id(name)
    except InvalidSessionIdError as error:
        return error.reason
    return f"it has more than {MAX_ID_BYTES} bytes" if len(name.encode()) > MAX_ID_BYTES else None


def fraction_of(text: str) -> float:
    """A number from 0 to 1 that is this text's own, after a restart too."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big") / 2**48
