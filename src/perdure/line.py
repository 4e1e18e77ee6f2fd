"""Entry <-> one line of a JSON-lines journal: the entry's own JSON and what the file adds to it."""

from __future__ import annotations

import re

import msgspec
from msgspec import Struct

from perdure.codec import RESERVED, SPACE, Entry, read_entry, read_framed
from perdure.encoding import spelled_fields

_decode_int = msgspec.json.Decoder(int).decode
_decode_pair = msgspec.json.Decoder(tuple[int, int]).decode
_SUFFIX = re.compile(
    rb',"seq":([1-9][0-9]*),"sum":"([0-9a-f]{32})"(?:,"batch":\[([1-9][0-9]*),([1-9][0-9]*)\])?\}\Z'
)
_MAX_SUFFIX_BYTES = 160

_SUM = re.compile(r'"[0-9a-f]{32}"')


class Line(Struct, frozen=True, gc=False):
    """One line of a JSON-lines journal: an entry and what the file adds to it."""

    entry: Entry
    seq: int | None
    sum: bytes | None
    batch: tuple[int, int] | None


def write_line(entry: Entry, seq: int, running_sum: bytes, batch: tuple[int, int]) -> bytes:
    """The line of an entry, newline included; `batch` is (k, n), left out where n is 1."""
    frame = b',"batch":[%d,%d]' % batch if batch[1] > 1 else b""
    tail = b',"seq":%d,"sum":"%s"%s}\n' % (seq, running_sum.hex().encode(), frame)
    return entry.raw[:-1] + tail


def read_line(line: bytes) -> Line:
    """The entry of a line without its newline, and what the file had added to it.

    A line that this program wrote gives back the entry's bytes exactly. In a foreign line the
    reserved fields may stand anywhere and are cut out; the other fields keep their bytes, white
    space between them apart.

    Raises:
        ValueError: the line is no entry.
    """
    found = _SUFFIX.search(line, max(len(line) - _MAX_SUFFIX_BYTES, 0))
    if found is not None and line.startswith(b"{"):
        entry, framed = read_framed(line[: found.start()] + b"}")
        if not framed:
            seq, running_sum, k, n = found.groups()
            batch = (int(k), int(n)) if k else None
            return Line(entry, int(seq), bytes.fromhex(running_sum.decode()), batch)
    line = line.strip(SPACE)
    entry, framed = read_framed(line)
    return _read_framed(line) if framed else Line(entry, None, None, None)


def _read_framed(line: bytes) -> Line:
    kept: list[str] = []
    added: dict[str, str] = {}
    try:
        for name, spelled, value in spelled_fields(line.decode()):
            if name in RESERVED:
                added[name] = value
            else:
                kept.append(spelled)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    return Line(
        read_entry(("{" + ",".join(kept) + "}").encode()),
        _decode_int(added["seq"]) if "seq" in added else None,
        _decode_sum(added["sum"]) if "sum" in added else None,
        _decode_pair(added["batch"]) if "batch" in added else None,
    )


def _decode_sum(value: str) -> bytes:
    if _SUM.fullmatch(value) is None:
        raise ValueError("its sum is not one of 32 lowercase hexadecimal digits")
    return bytes.fromhex(value[1:-1])
