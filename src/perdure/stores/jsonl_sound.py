"""What is remembered of a file of lines: where its sound part ends, and what is in it."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

from perdure.codec import StoredEntry
from perdure.errors import JournalCorruptError
from perdure.store import Session, read_session

Taken = tuple[StoredEntry, int, bytes]
"""An entry, the byte at which its line starts, and the running sum after it."""


@dataclass(slots=True)
class Sound:
    """What is known of a file's sound part: enough to append to it, and to read on after it."""

    path: str
    session: Session
    size: int
    last_sum: bytes
    last_seq: int = 0
    lacks_newline: bool = False
    has_sums: bool = False
    unproven: int = 0
    ids: dict[str, int] = field(default_factory=dict)
    offsets: array[int] = field(default_factory=lambda: array("Q"))

    def add(self, stored: StoredEntry, offset: int, running_sum: bytes) -> None:
        """Takes in the next entry; `size` is the caller's business."""
        self.ids[stored.id] = stored.seq
        self.offsets.append(offset)
        self.last_seq = stored.seq
        self.last_sum = running_sum

    def damage(self, offset: int, detail: str) -> JournalCorruptError:
        """The error for the line at `offset`, which is due to be the next entry's."""
        place = f"{self.path}, line {self.last_seq + 2}, byte {offset}"
        return JournalCorruptError(self.session.id, self.last_seq + 1, place, detail)


def read_header(data: bytes, session_id: str, path: str) -> Sound:
    """What is known from the first line of a file alone.

    Raises:
        JournalCorruptError: it is not the header of this session.

    """
    end = data.find(b"\n")
    line = data if end < 0 else data[:end]
    place = f"{path}, line 1, byte 0"
    try:
        session = read_session(line)
    except ValueError as error:
        raise JournalCorruptError(session_id, None, place, str(error)) from error
    if session.id != session_id:
        raise JournalCorruptError(
            session_id, None, place, f"this is the journal of session {session.id!r}"
        )
    size = len(line) + (end >= 0)
    return Sound(path, session, size, session.first_sum, lacks_newline=end < 0)
