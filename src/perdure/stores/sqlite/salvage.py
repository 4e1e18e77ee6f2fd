"""What of a damaged session is sound in a SQLite file: each row is read for itself, by position.

The index is not asked: it says nothing that the rows do not say. A page that cannot be read costs
the rows on it, which are then missing, and no other. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterator

import apsw

from perdure.codec import StoredEntry, read_entry
from perdure.errors import SessionNotFoundError
from perdure.fact import Gap
from perdure.store import read_session
from perdure.stores.piece import Piece, sound_pieces
from perdure.stores.sqlite.reader import Reader

_WINDOW = 4096
_UNREADABLE = (apsw.CorruptError, apsw.IOError)


def salvage(reader: Reader, session_id: str) -> list[StoredEntry | Gap]:
    """The sound entries of the session, and its gaps; O(the file) in time, O(session) in memory.

    Raises:
        SessionNotFoundError: no living session has this id.

    """
    found: list[StoredEntry | Gap] = []
    rows = reader.run(
        "SELECT number, header, last_seq FROM sessions "
        "WHERE kind = ? AND session_id = ? AND deleted = 0",
        (reader.kind, session_id),
    ).fetchall()
    if not rows:
        raise SessionNotFoundError(session_id)
    number, header, last_seq = rows[0]
    first_sum: bytes | None = None
    try:
        session = read_session(header)
        if session.id != session_id:
            raise ValueError(f"this is the header of session {session.id!r}")
        first_sum = session.first_sum
    except ValueError as error:
        found.append(Gap(f"{reader.place}, its header", str(error), len(header)))
    pieces = [_piece(reader, pos) for pos in _positions(reader, number)]
    found += sound_pieces(pieces, first_sum, last_seq)
    return found


def _positions(reader: Reader, number: int) -> Iterator[int]:
    """The positions of this session's rows that can be read."""
    first, last = 1, _last_position(reader)
    query = "SELECT pos FROM entries WHERE pos BETWEEN ? AND ? AND session = ? ORDER BY pos"
    while first <= last:
        stop = min(first + _WINDOW - 1, last)
        try:
            found = reader.run(query, (first, stop, number)).fetchall()
        except _UNREADABLE:
            found = [(pos,) for pos in range(first, stop + 1) if _is_of(reader, pos, number)]
        yield from (pos for (pos,) in found)
        first = stop + 1


def _last_position(reader: Reader) -> int:
    last = 0
    for query in (
        "SELECT max(pos) FROM entries",
        "SELECT max(last_pos) FROM sessions",
        "SELECT value FROM meta WHERE name = 'last_pos'",
    ):
        try:
            rows = reader.run(query).fetchall()
        except _UNREADABLE:
            continue
        if rows and isinstance(rows[0][0], int):
            last = max(last, rows[0][0])
            if query.endswith("entries"):
                break  # exact
    return last


def _is_of(reader: Reader, pos: int, number: int) -> bool:
    try:
        rows = reader.run("SELECT session FROM entries WHERE pos = ?", (pos,)).fetchall()
    except _UNREADABLE:
        return False
    return bool(rows) and rows[0][0] == number


def _piece(reader: Reader, pos: int) -> Piece:
    piece = Piece(f"{reader.place}, position {pos}", 0)
    try:
        ((piece.seq, piece.sum, piece.size_bytes),) = reader.run(
            "SELECT seq, sum, length(raw) FROM entries WHERE pos = ?", (pos,)
        ).fetchall()
        ((raw,),) = reader.run("SELECT raw FROM entries WHERE pos = ?", (pos,)).fetchall()
        piece.entry = read_entry(raw)
    except (*_UNREADABLE, ValueError) as error:
        piece.detail = str(error)
    return piece
