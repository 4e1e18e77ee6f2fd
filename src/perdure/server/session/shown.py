"""A look as JSON: the elided parts of messages that wait have the address where they are whole."""

from __future__ import annotations

from urllib.parse import quote

from msgspec.structs import replace

from perdure.codec import encode
from perdure.entry import Json
from perdure.server.session.look import QueuedLook, SessionLook


def look_json(look: SessionLook, root: str = "") -> bytes:
    """The look; `root` is where the server is mounted, percent-encoded."""
    if any(_is_elided(part) for queued in look.queued for part in queued.parts):
        base = f"{root}/v1/sessions/{quote(look.session_id, safe='')}/entries"
        look = replace(look, queued=tuple(_addressed(each, base) for each in look.queued))
    return encode(look)


def _is_elided(part: Json) -> bool:
    return isinstance(part, dict) and part.get("elided") is True


def _addressed(queued: QueuedLook, base: str) -> QueuedLook:
    parts: list[Json] = []
    for n, part in enumerate(queued.parts):
        if isinstance(part, dict) and _is_elided(part):
            part = {**part, "href": f"{base}/{queued.seq}/parts/{n}"}
        parts.append(part)
    return replace(queued, parts=tuple(parts))
