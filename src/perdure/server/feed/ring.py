"""The newest frames of one followed session (or of the listing), shared by all its viewers.

A position is a count of frames since the start. Frames older than the bounds are let go; a viewer
that stands before them reads the store instead.
"""

from __future__ import annotations

from msgspec import Struct

from perdure.server.feed import write


class Item(Struct, frozen=True):
    """One frame. `seq` is 0 for what is not an entry.

    `frame` is whole for a viewer of this session alone; `body` lacks the id, which a viewer of
    several sessions makes itself.
    """

    seq: int
    frame: bytes
    body: bytes
    session_id: str = ""


class Ring:
    """A bounded list of the newest items; joins for viewers at the same place are made once."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._items: list[Item] = []
        self._bytes = 0
        self._joined: tuple[int, int, int, bytes] | None = None
        self.start = 0
        """The position of the oldest item kept."""

    @property
    def end(self) -> int:
        """The position after the newest item."""
        return self.start + len(self._items)

    def push(self, item: Item) -> None:
        """Adds the newest item."""
        self._items.append(item)
        self._bytes += len(item.frame)

    def trim(self) -> list[Item]:
        """Lets the oldest items go, once there are twice as many bytes as the bound.

        Returns those that went; the newest item always stays.
        """
        if self._bytes <= 2 * self._max_bytes or len(self._items) < 2:
            return []
        count = 0
        while self._bytes > self._max_bytes and count < len(self._items) - 1:
            self._bytes -= len(self._items[count].frame)
            count += 1
        gone = self._items[:count]
        del self._items[:count]
        self.start += count
        return gone

    def items_from(self, position: int) -> list[Item]:
        """The items from a position on that is not before `start`."""
        return self._items[position - self.start :]

    def frames_from(self, position: int) -> tuple[bytes, int, int]:
        """At most `MAX_WRITE_BYTES` of whole frames, or one, from a position that is not the end.

        Also the position after them, and the `seq` of the last entry among them, or 0.
        """
        joined = self._joined
        if joined is not None and joined[0] == position:
            return joined[3], joined[1], joined[2]
        frames: list[bytes] = []
        size = seq = 0
        index = position - self.start
        while index < len(self._items):
            item = self._items[index]
            size += len(item.frame)
            if frames and size > write.MAX_WRITE_BYTES:
                break
            frames.append(item.frame)
            seq = item.seq or seq
            index += 1
        data = frames[0] if len(frames) == 1 else b"".join(frames)
        self._joined = (position, self.start + index, seq, data)
        return data, self.start + index, seq
