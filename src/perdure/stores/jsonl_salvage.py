"""What of a damaged file of lines is sound: each line is looked at for itself. It blocks."""

from __future__ import annotations

from collections.abc import Iterator

from perdure.codec import StoredEntry
from perdure.fact import Gap
from perdure.store import read_session
from perdure.stores.disk import Disk
from perdure.stores.jsonl_name import is_hashed
from perdure.stores.jsonl_scan import read_sound_line
from perdure.stores.piece import Piece, sound_pieces


def salvage_file(disk: Disk, path: str, session_id: str) -> list[StoredEntry | Gap]:
    """The sound entries of the file, and its gaps; O(file) in time and memory.

    Raises:
        SessionNotFoundError, StoreUnavailableError.

    """
    with disk.reading(path, session_id) as fd:
        data = disk.read_bytes(fd, 0, disk.size(fd))
    found: list[StoredEntry | Gap] = []
    first, _, _ = data.partition(b"\n")
    first_sum: bytes | None = None
    start = len(first) + 1
    try:
        session = read_session(first)
    except ValueError as error:
        found.append(Gap(f"{path}, line 1, byte 0", str(error), len(first)))
        if _piece(first, path, 1, 0).sum is not None:  # the header's line is not there at all
            start = 0
    else:
        if session.id == session_id or is_hashed(session_id):
            first_sum = session.first_sum
        else:
            detail = f"this is the header of session {session.id!r}"
            found.append(Gap(f"{path}, line 1, byte 0", detail, len(first)))
    pieces = list(_pieces(data, start, path))
    found += sound_pieces(pieces, first_sum, None)
    found += _open_batch(data, path)
    return found


def _pieces(data: bytes, start: int, path: str) -> Iterator[Piece]:
    number = data.count(b"\n", 0, start) + 1
    while start < len(data):
        end = data.find(b"\n", start)
        stop = len(data) if end < 0 else end
        yield _piece(data[start:stop], path, number, start)
        start, number = stop + 1, number + 1


def _piece(line: bytes, path: str, number: int, start: int) -> Piece:
    piece = Piece(f"{path}, line {number}, byte {start}", len(line))
    try:
        found = read_sound_line(line)
        found.entry.raw.decode()
    except ValueError as error:
        piece.detail = str(error)
    else:
        piece.entry, piece.seq, piece.sum = found.entry, found.seq, found.sum
    return piece


def _open_batch(data: bytes, path: str) -> Iterator[Gap]:
    """A gap if the last line is sound and its batch goes on after it."""
    last = data.removesuffix(b"\n").rpartition(b"\n")[2]
    try:
        batch = read_sound_line(last).batch
    except ValueError:
        return
    if batch is not None and batch[0] < batch[1]:
        detail = f"its last batch has {batch[1]} lines, and {batch[0]} are there"
        yield Gap(f"{path}, byte {len(data)}", detail, None)
