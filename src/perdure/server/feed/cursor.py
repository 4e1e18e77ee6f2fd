"""Wire cursors: `seq.incarnation`, and `0` for the start of whatever is there.

A stream has one for each of its sessions. They come as `after` parameters, paired with the
`session` parameters by position, or joined by commas in a `Last-Event-ID`, which wins.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from perdure.errors import CursorVoidError

_CURSOR = re.compile(r"(0|[1-9][0-9]{0,17})(?:\.([0-9A-Za-z_-]{1,64}))?")


class Cursor(Struct, frozen=True):
    """The `seq` last seen, and of which incarnation; None only at the start."""

    seq: int
    incarnation: str | None = None

    def __str__(self) -> str:
        return str(self.seq) if self.incarnation is None else f"{self.seq}.{self.incarnation}"

    def fits(self, incarnation: str, last_seq: int) -> bool:
        """Whether it is a place in the log of this incarnation, which stands at `last_seq`."""
        return self.seq <= last_seq and self.incarnation in {None, incarnation}


START = Cursor(0)


def parse_cursor(text: str) -> Cursor:
    """Reads a wire cursor.

    Raises:
        CursorVoidError: it is none.

    """
    found = _CURSOR.fullmatch(text)
    if found is None:
        raise CursorVoidError(text, "a cursor is 'seq.incarnation', or '0' for the start")
    seq, incarnation = int(found[1]), found[2]
    if seq > 0 and incarnation is None:
        raise CursorVoidError(text, "only '0' stands without an incarnation")
    return Cursor(seq, incarnation)


def pair_cursors(
    count: int, after: Sequence[str], last_event_id: str | None
) -> list[Cursor | None]:
    """One cursor for each of `count` sessions; None where reading starts from now on.

    Raises:
        CursorVoidError: one of them is no cursor, or there are not as many as sessions.

    """
    if last_event_id:
        cursors = last_event_id.split(",")
        if len(cursors) != count:
            raise CursorVoidError(
                last_event_id, f"Last-Event-ID has one cursor for each of the {count} sessions"
            )
    elif after:
        cursors = list(after)
        if len(cursors) != count:
            raise CursorVoidError(
                ",".join(cursors),
                f"give one 'after' for each of the {count} sessions, in the same order, or none",
            )
    else:
        return [None] * count
    return [parse_cursor(cursor) for cursor in cursors]
