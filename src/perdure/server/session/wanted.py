"""Which sessions of a listing are asked for."""

from __future__ import annotations

from msgspec import Struct

from perdure.server.session.look import SessionLook

MOST_SEARCHED = 2_000
"""After so many sessions a page of a listing ends, however few of them were asked for."""


class Wanted(Struct, frozen=True):
    """Sessions with `match` in their id or title, whatever its case, and of this status."""

    match: str = ""
    status: str | None = None

    def fits(self, look: SessionLook) -> bool:
        """Whether the session is asked for."""
        if self.status is not None and look.status != self.status:
            return False
        words = f"{look.session_id}\n{look.title or ''}".casefold()
        return self.match.casefold() in words


EVERY_SESSION = Wanted()
