"""Entries as the server sends them: their own bytes with `session_id` and `seq` put in front.

A part over `MAX_INLINE_BYTES` is *elided* in pages and streams: its small fields stay, its content
is replaced by its size and the address where it is whole; and so is any other field of an entry.
An entry below that size is spliced and never decoded.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Sequence
from contextlib import suppress
from urllib.parse import quote

import msgspec
from msgspec import Raw, Struct

from perdure.codec import StoredEntry, encode, splice

MAX_INLINE_BYTES = 64 * 1024
"""A part or a field whose JSON is above this is elided in pages and streams; of text, the text."""

_NEVER_ELIDED = frozenset({"id", "type", "created_at", "parent_id"})

_MAX_KEPT_FIELD_BYTES = 1024

_decode_object = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_list = msgspec.json.Decoder(list[Raw]).decode
_decode_text = msgspec.json.Decoder(str).decode
_BROKEN = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_MEDIA_TYPE = re.compile(r"[A-Za-z0-9!#$&^_.+-]{1,64}/[A-Za-z0-9!#$&^_.+-]{1,64}")
TEXT_TYPE = "text/plain; charset=utf-8"
JSON_TYPE = "application/json"


class Content(Struct, frozen=True):
    """What a part's address gives."""

    data: bytes
    media_type: str
    name: str | None = None


class EntryWriter:
    """Writes the entries of one session for the wire.

    `root` is where the server is mounted, percent-encoded: what addresses begin with.
    """

    def __init__(self, session_id: str, root: str = "") -> None:
        self.session_json = encode(session_id)
        self._prefix = b'"session_id":' + self.session_json + b',"seq":'
        self._base = f"{root}/v1/sessions/{quote(session_id, safe='')}/entries"

    def whole(self, stored: StoredEntry) -> bytes:
        """The entry with nothing elided, as one line of JSON."""
        return self._spliced(stored.seq, b"", plain_json(stored.raw))

    def elided(self, stored: StoredEntry, siblings: Sequence[str] | None = None) -> bytes:
        """The entry with its big parts and fields elided, as one line of JSON."""
        raw = plain_json(stored.raw)
        if len(raw) > MAX_INLINE_BYTES:
            raw = _elide_entry(raw, f"{self._base}/{stored.seq}")
        extra = b"" if siblings is None else b'"siblings":' + encode(siblings) + b","
        return self._spliced(stored.seq, extra, raw)

    def _spliced(self, seq: int, extra: bytes, raw: bytes) -> bytes:
        return splice(self._prefix + b"%d," % seq + extra, raw)


def plain_json(raw: bytes) -> bytes:
    """The same JSON on one line, and without the numbers that are not JSON (NaN is null).

    Bytes that Perdure wrote come back as they are; only imported ones can need this.
    """
    if b"\n" in raw or b"\r" in raw:  # white space: inside a string it would be escaped
        raw = raw.replace(b"\n", b" ").replace(b"\r", b" ")
    if raw[:1] != b"{":
        raw = raw.strip()
    if b"NaN" in raw or b"Infinity" in raw:
        try:
            _decode_object(raw)
        except _BROKEN:
            return encode(json.loads(raw, parse_constant=lambda _: None))
    return raw


def _elide_entry(raw: bytes, base: str) -> bytes:
    """The entry `raw` with each of its parts, and each other field, above the bound elided."""
    try:
        fields = _decode_object(raw)
    except _BROKEN:
        return raw
    kept = set(_NEVER_ELIDED)
    with suppress(KeyError, *_BROKEN):
        parts = _decode_list(fields["parts"])
        shown = [_elide(part, f"{base}/parts/{n}") for n, part in enumerate(parts)]
        fields["parts"] = _join_list(shown)
        kept.add("parts")
        del parts, shown
    for name, value in fields.items():
        if len(value) > MAX_INLINE_BYTES and name not in kept:
            size, href = _field_size(value), f"{base}/fields/{quote(name, safe='')}"
            fields[name] = Raw(encode({"elided": True, "bytes": size, "href": href}))
    return msgspec.json.encode(fields)


def _field_size(value: Raw) -> int:
    """The length of what `find_field` gives."""
    with suppress(*_BROKEN):
        return _utf8_size(_decode_text(value))
    return len(value)


def _join_list(items: Sequence[bytes | Raw]) -> Raw:
    return Raw(b"[" + b",".join(items) + b"]")


def _elide(part: Raw, href: str) -> bytes | Raw:
    if len(part) <= MAX_INLINE_BYTES:
        return part
    try:
        fields = _decode_object(part)
    except _BROKEN:
        return part
    if _is_small_text(part, fields):
        return part
    shown = {name: raw for name, raw in fields.items() if len(raw) <= _MAX_KEPT_FIELD_BYTES}
    shown |= {
        "type": fields.get("type", Raw(b"null")),
        "elided": Raw(b"true"),
        "bytes": Raw(b"%d" % _content_size(part, fields)),
        "href": Raw(encode(href)),
    }
    if _type_of(fields) == "tool_result" and "parts" not in shown and "parts" in fields:
        inner = _decode_list(fields["parts"])
        nested = _join_list([_elide(raw, f"{href}/{n}") for n, raw in enumerate(inner)])
        if len(nested) <= MAX_INLINE_BYTES:
            shown["parts"] = nested
    return msgspec.json.encode(shown)


def _is_small_text(part: Raw, fields: dict[str, Raw]) -> bool:
    """Whether only what stands around its text makes it exceed the bound."""
    if _type_of(fields) not in {"text", "reasoning"}:
        return False
    text = fields.get("text", b"")
    return len(text) - 2 <= MAX_INLINE_BYTES and len(part) - len(text) <= _MAX_KEPT_FIELD_BYTES


def _content_size(part: Raw, fields: dict[str, Raw]) -> int:
    """The length of what `part_content` gives, with no more than one copy of it at a time."""
    try:
        match _type_of(fields):
            case "text" | "reasoning":
                return _utf8_size(_decode_text(fields["text"]))
            case "tool_result":
                parts = [
                    _decode_object(inner) for inner in _decode_list(fields.get("parts", b"[]"))
                ]
                if all(_type_of(inner) == "text" for inner in parts):
                    return sum(_utf8_size(_decode_text(inner["text"])) for inner in parts)
    except (*_BROKEN, KeyError):
        pass
    return len(part_content(bytes(part)).data)


def _utf8_size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _type_of(fields: dict[str, Raw]) -> str:
    try:
        return _decode_text(fields["type"])
    except (*_BROKEN, KeyError):
        return ""


def find_part(raw: bytes, place: Sequence[int]) -> bytes | None:
    """The JSON of an entry's part `place[0]`, or of the part `place[1]` inside it; None: no such.

    `raw` is the entry's JSON.
    """
    found = plain_json(raw)
    for n in place:
        try:
            parts = _decode_list(_decode_object(found)["parts"])
        except (*_BROKEN, KeyError):
            return None
        if n >= len(parts):
            return None
        found = bytes(parts[n])
    return found


def find_field(raw: bytes, name: str) -> Content | None:
    """What a field of an entry holds: text as UTF-8, otherwise JSON; None: no such field."""
    try:
        value = _decode_object(plain_json(raw)).get(name)
    except _BROKEN:
        return None
    if value is None:
        return None
    with suppress(*_BROKEN):
        return Content(_decode_text(value).encode(), TEXT_TYPE)
    return Content(bytes(value), JSON_TYPE)


def part_content(part: bytes) -> Content:
    """What a part holds: text as UTF-8, a file's own bytes, otherwise JSON."""
    try:
        fields = _decode_object(part)
        match _type_of(fields):
            case "text" | "reasoning":
                return Content(_decode_text(fields["text"]).encode(), TEXT_TYPE)
            case "file" if "data" in fields:
                return _file_content(fields)
            case "tool_call":
                return Content(bytes(fields.get("arguments", Raw(b"null"))), JSON_TYPE)
            case "tool_result":
                return _result_content(fields)
    except (*_BROKEN, KeyError, binascii.Error):
        pass
    return Content(part, JSON_TYPE)


def _file_content(fields: dict[str, Raw]) -> Content:
    media_type = _decode_text(fields["media_type"])
    if not _MEDIA_TYPE.fullmatch(media_type):
        media_type = "application/octet-stream"
    name = _decode_text(fields["name"]) if fields.get("name", b"null") != b"null" else None
    return Content(base64.b64decode(_decode_text(fields["data"])), media_type, name)


def _result_content(fields: dict[str, Raw]) -> Content:
    raw = fields.get("parts", Raw(b"[]"))
    parts = [_decode_object(part) for part in _decode_list(raw)]
    if all(_type_of(part) == "text" for part in parts):
        return Content("".join(_decode_text(part["text"]) for part in parts).encode(), TEXT_TYPE)
    return Content(bytes(raw), JSON_TYPE)
