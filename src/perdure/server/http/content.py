"""The bytes of one part as a response: safe to open, and by range.

Source: RFC 9110, section 14 (range requests).
"""

from __future__ import annotations

import re
from urllib.parse import quote

from starlette.responses import Response

from perdure.server.feed.wire import JSON_TYPE, TEXT_TYPE, Content
from perdure.server.problem import Refused

SAFE_INLINE = frozenset(
    {TEXT_TYPE, JSON_TYPE, "image/png", "image/jpeg", "image/gif", "image/webp"}
)
_RANGE = re.compile(r"bytes\s*=\s*([0-9]{0,18})\s*-\s*([0-9]{0,18})\s*", re.IGNORECASE)


def content_response(content: Content, wanted_range: str | None) -> Response:
    """The content, or the one range of it that was asked for.

    What a browser could run is given as a download, whatever its type claims.

    Raises:
        Refused: 416, the range lies behind the end.

    """
    headers = {
        "accept-ranges": "bytes",
        "cache-control": "no-store",
        "content-disposition": _disposition(content),
    }
    size = len(content.data)
    bounds = _bounds(wanted_range, size)
    if bounds is None:
        return Response(content.data, media_type=content.media_type, headers=headers)
    first, last = bounds
    headers["content-range"] = f"bytes {first}-{last}/{size}"
    data = content.data[first : last + 1]
    return Response(data, 206, media_type=content.media_type, headers=headers)


def _disposition(content: Content) -> str:
    kind = "inline" if content.media_type in SAFE_INLINE else "attachment"
    return kind if content.name is None else f"{kind}; filename*=UTF-8''{_quoted(content.name)}"


def _quoted(name: str) -> str:
    return quote(name.replace("/", "_").replace("\\", "_"), safe="")


def _bounds(wanted: str | None, size: int) -> tuple[int, int] | None:
    """The first and last byte asked for; None for all, also where it is no single range."""
    found = _RANGE.fullmatch(wanted) if wanted is not None else None
    if found is None or (not found[1] and not found[2]):
        return None
    if not found[1]:
        first, last = max(size - int(found[2]), 0), size - 1
        unsatisfiable = int(found[2]) == 0 or size == 0
    else:
        first, last = int(found[1]), min(int(found[2] or size), size - 1)
        if found[2] and int(found[2]) < first:
            return None
        unsatisfiable = first >= size
    if unsatisfiable:
        raise Refused(
            416,
            "range_not_satisfiable",
            f"there are {size} bytes",
            headers={"content-range": f"bytes */{size}"},
            bytes=size,
        )
    return first, last
