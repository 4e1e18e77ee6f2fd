"""Reading a journal's lines in order: where its sound part ends, and what is damage.

A line ends at byte 0x0A and nowhere else. An invalid or half-batch suffix with nothing valid after
it is a *torn tail*: it was never acknowledged, and is not part of the journal. A batch is torn as a
whole, since a disk writes the pages of one write in any order: lines of the batch that a tail began
with are not valid after it. A complete valid last line that misses only its newline is part of the
journal. Anything else that is not the next entry is damage. The sums of the last batch are checked
on every reading, since it is the one that a crash can have hurt; all others by `verify` alone.
"""

from __future__ import annotations

from typing import NoReturn

from perdure.codec import StoredEntry, next_sum
from perdure.errors import JournalCorruptError
from perdure.line import Line, read_line, write_line
from perdure.stores.jsonl_plain import take_plain
from perdure.stores.jsonl_sound import Sound, Taken

_NO_SUM = "it has no sum, and a line before it has one"
_OTHER_BYTES = "its bytes, or those before them, do not have its sum"


def read_on(
    sound: Sound,
    data: bytes,
    *,
    in_batch: bool = False,
    verify: bool = False,
    is_end: bool = True,
) -> list[StoredEntry]:
    """Reads `data`, which follows the sound part, and takes its whole batches in.

    What is left beyond `sound.size` is a torn tail, or, without `is_end`, a batch that goes on
    after `data`. `in_batch`: the first line may be in mid-batch. `verify` checks the running sums
    and every byte of the entries too.

    Raises:
        JournalCorruptError: there is something valid that is not the next entry.

    """
    if in_batch or verify or sound.lacks_newline:
        return _Scan(sound, data, verify).run(in_batch)
    base = sound.size
    plain = take_plain(sound, data, is_end=is_end)
    if not plain.is_clear and sound.size < base + len(data):
        rest = _Scan(sound, data[sound.size - base :], verify=False).run(in_batch=False)
        if rest:
            return plain.found + rest
    _check_sums(sound, plain.last, plain.before)
    return plain.found


def _check_sums(sound: Sound, last: list[Taken], last_sum: bytes) -> None:
    """A disk that lost its power may have whole lines of the last batch with other bytes."""
    for stored, offset, running_sum in last:
        last_sum = next_sum(last_sum, stored.raw)
        if running_sum != last_sum:
            raise _damage(sound, stored.seq, offset, _OTHER_BYTES)


def _damage(sound: Sound, seq: int, offset: int, detail: str) -> JournalCorruptError:
    place = f"{sound.path}, line {seq + 1}, byte {offset}"
    return JournalCorruptError(sound.session.id, seq, place, detail)


class _Scan:
    def __init__(self, sound: Sound, data: bytes, verify: bool) -> None:
        self.sound = sound
        self.data = data
        self.verify = verify
        self.base = sound.size
        self.batch: list[Taken] = []
        self.ids: set[str] = set()
        self.sumless: int | None = None

    def run(self, in_batch: bool) -> list[StoredEntry]:
        sound, data, found = self.sound, self.data, list[StoredEntry]()
        last, before = list[Taken](), b""
        start = 0
        if sound.lacks_newline and data:
            if data[:1] != b"\n":
                raise sound.damage(self.base, "the line before it does not end")
            start, sound.lacks_newline = 1, False
            sound.size += 1
        due, due_of = 1, 0
        while start < len(data):
            end = data.find(b"\n", start)
            stop = len(data) if end < 0 else end
            try:
                line = read_sound_line(data[start:stop])
            except ValueError as error:
                self._check_torn(start, stop + 1, str(error))
                break
            k, n = line.batch or (1, 1)
            if in_batch:
                due, due_of, in_batch = k, n, False
            if k != due or k > n or (due_of and due_of != n):
                self._damaged(start, f"batch {[k, n]} where {due} is due")
            self._take(line, start)
            due, due_of = k + 1, n
            if k == n:
                before = sound.last_sum
                for stored, offset, running_sum in self.batch:
                    sound.add(stored, offset, running_sum)
                    found.append(stored)
                last, self.batch = self.batch, []
                self.ids.clear()
                due, due_of = 1, 0
                sound.size = self.base + stop + (end >= 0)
                sound.lacks_newline = end < 0
            start = stop + 1
        if last and before and not self.verify:
            for stored, offset, _ in last:
                if self.sumless is not None and offset == self.base + self.sumless:
                    raise _damage(sound, stored.seq, offset, _NO_SUM)
            _check_sums(sound, last, before)
        return found

    def _take(self, line: Line, start: int) -> None:
        sound, batch, entry = self.sound, self.batch, line.entry
        seq = sound.last_seq + len(batch) + 1
        if line.seq != seq and line.seq is not None:
            self._damaged(start, f"seq {line.seq} where {seq} is due")
        if entry.id in sound.ids or entry.id in self.ids:
            self._damaged(start, f"entry id {entry.id!r} is there twice")
        running_sum = line.sum
        if running_sum is None or self.verify:
            previous = batch[-1][2] if batch else sound.last_sum
            running_sum = self._checked_sum(line, next_sum(previous, entry.raw), start)
        if line.sum is not None:
            sound.has_sums, sound.unproven = True, 0
        else:
            sound.unproven += 1
            self.sumless = start if sound.has_sums else None
        if line.batch is not None:
            self.ids.add(entry.id)
        batch.append((StoredEntry(seq, entry), self.base + start, running_sum))

    def _checked_sum(self, line: Line, right_sum: bytes, start: int) -> bytes:
        if self.verify:
            if line.sum is None and self.sound.has_sums:
                self._damaged(start, _NO_SUM)
            if line.sum not in (None, right_sum):
                self._damaged(start, _OTHER_BYTES)
        return line.sum or right_sum

    def _check_torn(self, bad: int, start: int, detail: str) -> None:
        """The line at `bad` is invalid: fine, if nothing valid follows it but its own batch."""
        size = len(self.data)
        while start < size:
            end = self.data.find(b"\n", start)
            stop = size if end < 0 else end
            try:
                line = read_sound_line(self.data[start:stop])
            except ValueError:
                pass
            else:
                k, n = line.batch or (1, 1)
                of_torn_batch = line.seq == self.sound.last_seq + k and len(self.batch) + 1 < k <= n
                if not of_torn_batch:
                    self._damaged(bad, detail)
            start = stop + 1

    def _damaged(self, start: int, detail: str) -> NoReturn:
        seq = self.sound.last_seq + len(self.batch) + 1
        raise _damage(self.sound, seq, self.base + start, detail)


def read_sound_line(line: bytes) -> Line:
    """The line's entry and what the file added; a ValueError says why it is none."""
    if 0 in line:
        raise ValueError("a zero byte")
    return read_line(line)


def frame(stored: list[StoredEntry], last_sum: bytes) -> tuple[list[bytes], list[bytes]]:
    """The lines of entries that are stored as one batch, and the running sum after each."""
    lines: list[bytes] = []
    sums: list[bytes] = []
    for k, new in enumerate(stored, 1):
        last_sum = next_sum(last_sum, new.raw)
        sums.append(last_sum)
        lines.append(write_line(new.entry, new.seq, last_sum, (k, len(stored))))
    return lines, sums
