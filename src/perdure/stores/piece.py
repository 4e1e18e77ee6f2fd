"""What of a damaged log is sound, told from the pieces that a store could still read.

A running sum proves an entry's bytes and its place after the entry before it, whatever the piece
says of its `seq`. An entry is kept if its sum proves it, or if nothing is left to hold it against
(the sum before it is lost, or another program wrote it without one); it is lost if its sum speaks
against it, and then it is a gap. Pure; O(pieces).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from perdure.codec import Entry, StoredEntry, next_sum
from perdure.fact import Gap

_CHANGED = "its bytes, or those before them, do not have its sum"


@dataclass(slots=True)
class Piece:
    """Something that a store found where an entry should be; `detail` says why it is none."""

    place: str
    size_bytes: int
    entry: Entry | None = None
    seq: int | None = None
    sum: bytes | None = None
    detail: str = ""


def sound_pieces(
    pieces: Sequence[Piece], first_sum: bytes | None, last_seq: int | None
) -> Iterator[StoredEntry | Gap]:
    """The sound entries in their order, and a gap for each stretch that is not there.

    `pieces` stand as they were found; `first_sum` is None where the header is lost, `last_seq`
    where the store does not say how far the log goes.
    """
    judge = _Judge(first_sum)
    for seq, piece in _in_order(pieces, first_sum):
        yield from judge.take(seq, piece)
    yield from judge.end(last_seq)


def _in_order(pieces: Sequence[Piece], first_sum: bytes | None) -> list[tuple[int, Piece]]:
    """Each piece with its `seq`: what the sum before proves, else what it says, else the next."""
    placed = []
    seq, before, before_seq = 0, first_sum, 0
    for piece in pieces:
        follows = (
            piece.entry is not None
            and piece.sum is not None
            and before is not None
            and next_sum(before, piece.entry.raw) == piece.sum
        )
        said = seq + 1 if piece.seq is None else piece.seq
        seq = before_seq + 1 if follows else said
        placed.append((seq, piece))
        if piece.entry is not None or piece.sum is not None:
            before, before_seq = piece.sum, seq
    return sorted(placed, key=lambda each: each[0])


@dataclass(frozen=True, slots=True)
class _Doubt:
    """An entry that its sum speaks against, until the next one tells which of the two is wrong."""

    seq: int
    piece: Piece
    sums_before: list[bytes]


class _Judge:
    def __init__(self, first_sum: bytes | None) -> None:
        self.seq = 0
        self.sums_seq = 0
        self.sums = [first_sum] if first_sum is not None else []
        self.doubt: _Doubt | None = None
        self.kept: dict[str, Entry] = {}

    def take(self, seq: int, piece: Piece) -> Iterator[StoredEntry | Gap]:
        """What is known once this piece is there."""
        entry = piece.entry
        if entry is not None and (first := self.kept.get(entry.id)) is not None:
            detail = f"entry {entry.id!r} is there twice; the first one is kept"
            yield Gap(piece.place, detail, 0 if entry == first else piece.size_bytes)
            return
        if seq > self.seq + 1:
            yield from self._settle_doubt()
            yield _missing(self.seq + 1, seq - 1)
        self.seq = max(seq, self.seq)
        if entry is None:
            yield from self._settle_doubt()
            yield Gap(piece.place, piece.detail, piece.size_bytes)
            if piece.sum is not None:
                self.sums_seq, self.sums = seq, [piece.sum]
            return
        is_again = self.doubt is not None and self.doubt.seq == seq
        before = self.doubt.sums_before if self.doubt is not None and is_again else self.sums
        computed = [next_sum(each, entry.raw) for each in before]
        if piece.sum in computed:
            if self.doubt is not None and not is_again and computed.index(piece.sum) > 0:
                yield from self._keep(self.doubt.seq, self.doubt.piece)  # its sum alone was changed
                self.doubt = None
            yield from self._settle_doubt()
            self.sums_seq, self.sums = seq, [piece.sum]
            yield from self._keep(seq, piece)
            return
        yield from self._settle_doubt()
        if piece.sum is not None and before and seq in (self.sums_seq, self.sums_seq + 1):
            self.doubt = _Doubt(seq, piece, before)
            self.sums_seq, self.sums = seq, [piece.sum, *computed[:1]]
            return
        if piece.sum is not None:
            computed = [piece.sum]
        elif seq != self.sums_seq + 1:
            computed = []
        self.sums_seq, self.sums = seq, computed
        yield from self._keep(seq, piece)

    def _keep(self, seq: int, piece: Piece) -> Iterator[StoredEntry | Gap]:
        assert piece.entry is not None
        self.kept[piece.entry.id] = piece.entry
        yield StoredEntry(seq, piece.entry)
        if piece.seq is not None and piece.seq != seq:
            yield Gap(piece.place, f"its seq said {piece.seq}, its sum proves {seq}", 0)

    def _settle_doubt(self) -> Iterator[Gap]:
        if self.doubt is not None:
            piece, self.doubt = self.doubt.piece, None
            yield Gap(piece.place, _CHANGED, piece.size_bytes)

    def end(self, last_seq: int | None) -> Iterator[Gap]:
        """What is known at the end of the log."""
        yield from self._settle_doubt()
        if last_seq is not None and last_seq > self.seq:
            yield _missing(self.seq + 1, last_seq)


def _missing(first: int, last: int) -> Gap:
    which = f"seq {first}" if first == last else f"seq {first} to {last}"
    return Gap(which, f"{last - first + 1} of its entries are not there", None)
