"""What is told sound of the pieces of a log, whatever became of some of them."""

from __future__ import annotations

from itertools import pairwise

import pytest

from perdure.codec import Entry, StoredEntry, next_sum
from perdure.fact import Gap
from perdure.stores.piece import Piece, sound_pieces
from perdure.testing.store_cases import messages

FIRST = bytes(16)
ENTRIES = messages(6)


def pieces() -> list[Piece]:
    found, running = [], FIRST
    for seq, entry in enumerate(ENTRIES, 1):
        running = next_sum(running, entry.raw)
        found.append(Piece(f"line {seq}", len(entry.raw), entry, seq, running))
    return found


def told(
    found: list[Piece], first: bytes | None = FIRST, last: int | None = 6
) -> tuple[list[str], list[str]]:
    """The ids that are kept, and the places of the gaps."""
    result = list(sound_pieces(found, first, last))
    kept = [each for each in result if isinstance(each, StoredEntry)]
    assert all(one.seq < other.seq for one, other in pairwise(kept))
    assert all(each.entry in ENTRIES for each in kept)
    ids = [each.id for each in kept]
    return ids, [each.place for each in result if isinstance(each, Gap)]


def without(*numbers: int) -> list[str]:
    return [entry.id for seq, entry in enumerate(ENTRIES, 1) if seq not in numbers]


def changed(entry: Entry | None) -> Entry:
    assert entry is not None
    raw = entry.raw.replace(b"says", b"lies")
    return Entry(entry.id, entry.type, entry.created_at, entry.parent_id, raw)


def test_a_healthy_log_has_no_gap() -> None:
    assert told(pieces()) == (without(), [])


@pytest.mark.parametrize("at", range(6))
class TestOnePiece:
    def test_with_other_bytes_is_lost_and_no_other(self, at: int) -> None:
        found = pieces()
        found[at].entry = changed(found[at].entry)
        assert told(found) == (without(at + 1), [f"line {at + 1}"])

    def test_that_cannot_be_read_is_lost_and_no_other(self, at: int) -> None:
        found = pieces()
        found[at] = Piece(f"line {at + 1}", 9, detail="no JSON")
        assert told(found) == (without(at + 1), [f"line {at + 1}"])

    def test_that_is_missing_is_lost_and_no_other(self, at: int) -> None:
        found = pieces()
        del found[at]
        assert told(found) == (without(at + 1), [f"seq {at + 1}"])

    def test_whose_sum_was_changed_is_proven_by_the_next(self, at: int) -> None:
        found = pieces()
        found[at].sum = b"x" * 16
        expected = (without(), []) if at < 5 else (without(6), ["line 6"])
        assert told(found) == expected

    def test_whose_seq_was_changed_is_proven_by_its_sum(self, at: int) -> None:
        for seq in (at, at + 2, 900):
            found = pieces()
            found[at].seq = seq
            assert told(found) == (without(), [f"line {at + 1}"])

    def test_that_is_there_twice_is_kept_once(self, at: int) -> None:
        found = pieces()
        found.insert(at, found[at])
        assert told(found) == (without(), [f"line {at + 1}"])

    def test_whose_damaged_double_comes_first_is_kept(self, at: int) -> None:
        found = pieces()
        sound = found[at]
        found.insert(at, Piece("bad", 9, changed(sound.entry), sound.seq, sound.sum))
        assert told(found) == (without(), ["bad"])

    def test_that_moved_is_kept_in_its_place(self, at: int) -> None:
        found = pieces()
        found.insert((at + 3) % 6, found.pop(at))
        assert told(found) == (without(), [])

    def test_after_garbage_is_kept(self, at: int) -> None:
        found = pieces()
        found.insert(at, Piece("garbage", 9, detail="no JSON"))
        assert told(found) == (without(), ["garbage"])


def test_a_lost_header_costs_no_entry() -> None:
    assert told(pieces(), first=None) == (without(), [])


def test_entries_without_sums_are_kept() -> None:
    found = pieces()
    for piece in found:
        piece.sum = piece.seq = None
    del found[2]
    assert told(found, last=None) == (without(3), [])


def test_a_stretch_with_other_bytes_is_lost_and_no_more() -> None:
    found = pieces()
    for piece in found[1:4]:
        piece.entry = changed(piece.entry)
    assert told(found) == (without(2, 3, 4), ["line 2", "line 3", "line 4"])
