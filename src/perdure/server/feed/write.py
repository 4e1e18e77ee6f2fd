"""One write to a viewer: whole frames, and no more of them than one write may carry."""

from __future__ import annotations

MAX_WRITE_BYTES = 256 * 1024
"""One write carries at most this, over all its sessions, or one frame that is larger."""


class Write:
    """The frames of the next write, in order."""

    __slots__ = ("_frames", "is_full", "size")

    def __init__(self) -> None:
        self._frames: list[bytes] = []
        self.size = 0
        self.is_full = False
        """Whether a frame was refused: there is more than goes into this write."""

    def __bool__(self) -> bool:
        return bool(self._frames)

    def add(self, frame: bytes) -> bool:
        """Takes a frame, unless it is too much for this write; whether it was taken."""
        if self._frames and self.size + len(frame) > MAX_WRITE_BYTES:
            self.is_full = True
        if self.is_full:
            return False
        self._frames.append(frame)
        self.size += len(frame)
        return True

    @property
    def data(self) -> bytes:
        """The bytes to send."""
        return self._frames[0] if len(self._frames) == 1 else b"".join(self._frames)
