"""The quick way through plain lines finds what the close look finds, whatever the bytes are."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

import pytest

from perdure import codec
from perdure.codec import Entry
from perdure.errors import JournalCorruptError
from perdure.store import new_session
from perdure.stores import jsonl_plain, jsonl_scan, jsonl_stream
from perdure.stores.disk import Disk
from perdure.stores.jsonl_file import Append, Folder, JournalFile
from perdure.stores.jsonl_plain import Plain
from perdure.stores.jsonl_scan import read_on
from perdure.stores.jsonl_sound import Sound, read_header
from perdure.stores.jsonl_stream import LineStream
from perdure.testing.store_cases import messages

BATCHES = (1, 3, 1, 1, 2)
FOREIGN = b'{"type":"x","id":"foreign","created_at":"2026-12-01T09:30:00Z","seq":4}\n'


def journal(tmp_path: Path, batches: Sequence[Sequence[Entry]]) -> bytes:
    """The bytes of a journal with these batches."""
    file = JournalFile(Folder(str(tmp_path), durable=False), "s")
    file.create(new_session("s"), ())
    for batch in batches:
        file.write([Append(batch, None, None)])
    file.close()
    return (tmp_path / "s.jsonl").read_bytes()


def small(tmp_path: Path) -> bytes:
    """A journal with batches of one line and of several."""
    return journal(tmp_path, [messages(n, f"b{k}_") for k, n in enumerate(BATCHES)])


def changes(data: bytes) -> Iterator[bytes]:
    """Everything that can happen to one byte, and to one line, after the header."""
    start = data.index(b"\n") + 1
    for at in range(start, len(data)):
        for byte in (0x00, 0x0A, 0x20, 0x22, 0x37, 0x7B, 0x7D, 0xFF):
            yield data[:at] + bytes([byte]) + data[at + 1 :]
        yield data[:at] + data[at + 1 :]
        yield data[:at]
    for entry_id in (b'"id":"b1_1"', b'"id":"b4_0"'):
        yield data.replace(entry_id, b'"id":"b0_0"')
    lines = data.splitlines(keepends=True)
    for n in range(1, len(lines)):
        yield b"".join([*lines[:n], *lines[n + 1 :]])
        yield b"".join([*lines[:n], lines[n], *lines[n:]])
        yield b"".join([*lines[:n], FOREIGN, *lines[n:]])
        yield b"".join([*lines[:n], b" " + lines[n], *lines[n + 1 :]])
        yield b"".join([*lines[:n], lines[n].replace(b'{"', b'{"seq":9,"', 1), *lines[n + 1 :]])


def outcome(data: bytes) -> tuple[object, ...]:
    """What reading it in two steps comes to: entries and what is remembered, or the damage."""
    sound = read_header(data, "s", "s.jsonl")
    middle = data.find(b"\n", len(data) // 2) + 1
    try:
        found = read_on(sound, data[sound.size : middle], is_end=False)
        found += read_on(sound, data[sound.size :])
    except JournalCorruptError as error:
        return (str(error),)
    return ([(each.seq, each.raw, each.id) for each in found], *_remembered(sound))


def _remembered(sound: Sound) -> tuple[object, ...]:
    state = (sound.size, sound.last_seq, sound.last_sum, sound.ids, list(sound.offsets))
    return (*state, sound.has_sums, sound.unproven, sound.lacks_newline)


def test_it_takes_all_of_a_journal_that_this_program_wrote(tmp_path: Path) -> None:
    data = small(tmp_path)
    sound = read_header(data, "s", "s.jsonl")
    plain = jsonl_plain.take_plain(sound, data[sound.size :], is_end=True)
    assert len(plain.found) == sum(BATCHES)
    assert sound.size == len(data)


def test_whatever_happened_to_the_bytes_the_close_look_says_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = list(changes(small(tmp_path)))
    quick = [outcome(data) for data in changed]
    monkeypatch.setattr(jsonl_scan, "take_plain", lambda *_, **__: Plain())
    for data, found in zip(changed, quick, strict=True):
        assert found == outcome(data), data


@pytest.mark.parametrize("length", [1, 7, 700])
def test_a_stream_decodes_each_line_once_however_long_its_batches_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    entries = messages(700)
    journal(tmp_path, [entries[n : n + length] for n in range(0, len(entries), length)])
    decoded: list[bytes] = []

    def read_entries(raws: Sequence[bytes], *, plain: bool) -> list[Entry]:
        decoded.extend(raws)
        return codec.read_entries(raws, plain=plain)

    def read_line(line: bytes) -> NoReturn:
        raise AssertionError(f"a plain line is looked at closely: {line!r}")

    monkeypatch.setattr(jsonl_plain, "read_entries", read_entries)
    monkeypatch.setattr(jsonl_scan, "read_line", read_line)
    monkeypatch.setattr(jsonl_stream, "CHUNK_BYTES", 20_000)
    stream = LineStream(Disk(), os.path.join(tmp_path, "s.jsonl"), "s")
    found = []
    while more := stream.next():
        found += more
    assert [stored.entry for stored in found] == entries
    assert decoded == [entry.raw for entry in entries]
