"""What requests say in their address: path segments, numbers, cursors.

A path is matched as it was sent, so a parameter is one segment that is decoded here.
"""

from __future__ import annotations

import re
from urllib.parse import unquote_to_bytes

from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import Request

from perdure.errors import CursorVoidError, InvalidSessionIdError
from perdure.server.feed.cursor import Cursor, parse_cursor
from perdure.server.problem import Refused
from perdure.store import check_session_id

MAX_LIMIT = 500
_NUMBER = re.compile(r"[0-9]{1,18}")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


class _Segment(Convertor[str]):
    """One path segment, still encoded; it may be empty, so that an empty id is refused as one."""

    regex = "[^/]*"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("segment", _Segment())


def session_id_of(request: Request) -> str:
    """The session id in the path.

    Raises:
        InvalidSessionIdError: it is none; the same on every verb.

    """
    encoded: str = request.path_params["session_id"]
    if _BAD_ESCAPE.search(encoded):
        raise InvalidSessionIdError(encoded, "a % is not followed by two hexadecimal digits")
    try:
        return check_session_id(unquote_to_bytes(encoded.encode("latin-1")).decode())
    except UnicodeDecodeError:
        raise InvalidSessionIdError(encoded, "it is not UTF-8") from None


def root_of(request: Request) -> str:
    """Where the server is mounted, percent-encoded; what its addresses begin with."""
    root: str = request.scope.get("root_path", "")
    return root


def text_of(request: Request, name: str) -> str:
    """A path parameter that is an opaque id."""
    encoded: str = request.path_params[name]
    return unquote_to_bytes(encoded.encode("latin-1")).decode(errors="replace")


def number_of(request: Request, name: str) -> int:
    """A path parameter that is a number.

    Raises:
        Refused: 422, it is none.

    """
    text: str = request.path_params[name]
    if not _NUMBER.fullmatch(text):
        raise Refused(422, "invalid_number", f"{name} is a whole number, not {text!r}")
    return int(text)


def limit_of(request: Request, default: int = 50) -> int:
    """The query's `limit`; above `MAX_LIMIT` it is that.

    Raises:
        Refused: 422, it is no number or below 1.

    """
    text = request.query_params.get("limit")
    if text is None:
        return default
    if not _NUMBER.fullmatch(text) or int(text) < 1:
        raise Refused(
            422, "invalid_limit", f"limit is a whole number from 1 to {MAX_LIMIT}, not {text!r}"
        )
    return min(int(text), MAX_LIMIT)


def bound_of(request: Request, name: str) -> Cursor | None:
    """The query's `before` or `after`: a `seq`, or a wire cursor.

    Raises:
        CursorVoidError: it is neither.

    """
    text = request.query_params.get(name)
    if text is None:
        return None
    if _NUMBER.fullmatch(text):
        return Cursor(int(text))
    try:
        return parse_cursor(text)
    except CursorVoidError:
        raise CursorVoidError(text, f"{name} is a seq, or 'seq.incarnation'") from None
