"""The quick way through lines that are exactly as this program writes them.

What a line must end with is known before it is looked at, its `seq` being due; so it is compared
and not parsed, and the entries of many lines are decoded at once. It takes whole batches and leaves
at the first thing that is not as expected: whether that is a foreign line, a torn tail or damage
says the scan that looks closely.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from perdure.codec import StoredEntry, read_entries
from perdure.stores.jsonl_sound import Sound, Taken

_FIRST_OF_BATCH = re.compile(rb'","batch":\[1,([1-9][0-9]{0,8})\]\}')
_MAX_BATCH_BYTES = 40
_SUM_LENGTH = 32
_DIGITS = b"0123456789abcdef"
_LONG_BATCH = 256
_OPENING = ord("{")


@dataclass(slots=True)
class Plain:
    """What was taken. `last` is the last batch and `before` the sum before it.

    `is_clear`: nothing was met that has to be looked at closely; a batch may go on after the data.
    """

    found: list[StoredEntry] = field(default_factory=list)
    last: list[Taken] = field(default_factory=list)
    before: bytes = b""
    is_clear: bool = False


def take_plain(sound: Sound, data: bytes, *, is_end: bool) -> Plain:
    """Takes whole batches from the start of `data`, which follows the sound part, into `sound`.

    With `is_end` nothing follows `data`. Sums are compared with nothing; that is the caller's.
    """
    lines = _Lines(data, sound.last_seq + 1, is_end)
    is_clear = lines.read() and not is_end
    whole = lines.whole
    if not whole:
        return Plain(is_clear=is_clear)
    sums = lines.sums[:whole]
    if b"".join(sums).translate(None, _DIGITS):
        return Plain()
    try:
        entries = read_entries(lines.raws[:whole], plain=True)
    except ValueError:
        return Plain()
    seqs = range(sound.last_seq + 1, sound.last_seq + 1 + whole)
    ids = {entry.id: seq for entry, seq in zip(entries, seqs, strict=True)}
    if len(ids) < whole or not sound.ids.keys().isdisjoint(ids):
        return Plain()
    found = list(map(StoredEntry, seqs, entries))
    first = whole - lines.last_length
    before = _sum(sums[first - 1]) if first else sound.last_sum
    offsets = [sound.size + start for start in lines.starts[:whole]]
    last = [(found[n], offsets[n], _sum(sums[n])) for n in range(first, whole)]
    sound.ids.update(ids)
    sound.offsets.extend(offsets)
    sound.last_seq, sound.last_sum = seqs[-1], last[-1][2]
    sound.has_sums, sound.unproven = True, 0
    sound.size += lines.size
    return Plain(found, last, before, is_clear)


class _Lines:
    """Lines cut into entries and sums; the first `whole`, `size` bytes, are in whole batches."""

    def __init__(self, data: bytes, seq: int, is_end: bool) -> None:
        self.data = data
        self.seq = seq
        self.is_end = is_end
        self.raws: list[bytes] = []
        self.sums: list[bytes] = []
        self.starts: list[int] = []
        self.whole = 0
        self.size = 0
        self.last_length = 0

    def read(self) -> bool:
        """Reads on to the end; False where a line is not as expected."""
        data, seq, start = self.data, self.seq, 0
        raws, sums, starts = self.raws, self.sums, self.starts
        k = n = 1
        while (end := data.find(b"\n", start)) >= 0:
            if k == n:
                k, n = 0, self._batch_length(start, end)
                if n > _LONG_BATCH and not self.is_end and data.count(b"\n", start) < n:
                    return True
            k += 1
            tail = b'"}' if n == 1 else b'","batch":[%d,%d]}' % (k, n)
            head = b',"seq":%d,"sum":"' % seq
            sum_start = end - len(tail) - _SUM_LENGTH
            stop = sum_start - len(head)
            is_plain = (
                stop > start
                and data[start] == _OPENING
                and data.startswith(head, stop)
                and data.endswith(tail, start, end)
            )
            if not is_plain:
                return False
            raws.append(data[start:stop] + b"}")
            sums.append(data[sum_start : sum_start + _SUM_LENGTH])
            starts.append(start)
            seq += 1
            start = end + 1
            if k == n:
                self.whole, self.size, self.last_length = len(raws), start, n
        return True

    def _batch_length(self, start: int, end: int) -> int:
        """How many lines the batch has whose first line is there; of one line, it does not say."""
        if not self.data.endswith(b"]}", start, end):
            return 1
        found = _FIRST_OF_BATCH.search(self.data, max(start, end - _MAX_BATCH_BYTES), end)
        return int(found[1]) if found is not None else 1


def _sum(digits: bytes) -> bytes:
    return bytes.fromhex(digits.decode())
