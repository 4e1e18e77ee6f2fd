"""An entry's bytes -> its typed value; what this version does not know is kept as it is written.

A part of an unknown type is opaque, an entry of one is `Opaque`; a result with such a part says so
in its text. The other half of codec.py, which makes the bytes and reads their header.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import msgspec
from msgspec import UNSET, Struct, UnsetType

from perdure.entry import (
    Compaction,
    Custom,
    File,
    Message,
    Opaque,
    OpaquePart,
    Part,
    Text,
    ToolResult,
    custom_types,
)
from perdure.fact import Fact, KnownFact

View = Message | Compaction | Custom | Fact | Opaque


class _LooseMessage(Struct):
    parts: list[msgspec.Raw]


class _Tag(Struct):
    type: str


_view_decoder: msgspec.json.Decoder[Message | Compaction | Custom | KnownFact] = (
    msgspec.json.Decoder(Message | Compaction | Custom | KnownFact)
)
decode_view = _view_decoder.decode
_decode_part = msgspec.json.Decoder(Part).decode
_decode_loose = msgspec.json.Decoder(_LooseMessage).decode
_decode_tag = msgspec.json.Decoder(_Tag).decode
decode_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
BROKEN = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding raises."""


def typed(
    raw: bytes,
    entry_id: str,
    entry_type: str,
    created_at: datetime,
    parent_id: str | UnsetType | None,
) -> View:
    """The typed entry of these bytes, whose header says this; `Opaque` where it cannot be typed."""
    try:
        view: View | None = decode_view(raw)
    except BROKEN:
        view = decode_message_with_opaque_parts(raw) if entry_type == "message" else None
    if view is None or isinstance(view, Fact) is (parent_id is not UNSET):
        return Opaque(id=entry_id, type=entry_type, created_at=created_at, parent_id=parent_id)
    if view.id != entry_id or view.created_at != created_at:  # a header that was mended
        view = msgspec.structs.replace(view, id=entry_id, created_at=created_at)
    if isinstance(view, Custom) and (cls := custom_types.get(view.kind)) is not None:
        try:
            return msgspec.structs.replace(view, data=msgspec.convert(view.data, cls))
        except Exception:  # the application's own class may raise anything: its data stays plain
            return view
    return view


def decode_message_with_opaque_parts(raw: bytes) -> Message | None:
    """The message of these bytes, its unknown parts as they are written; None: it is none."""
    message, parts = _apart(raw, decode_view)
    return msgspec.structs.replace(message, parts=parts) if isinstance(message, Message) else None


def _apart(raw: bytes, decode: Callable[[bytes], object]) -> tuple[object, tuple[Part, ...]]:
    """What these bytes are without their parts, None if nothing; and the parts."""
    try:
        parts = tuple([_decode_any_part(bytes(part)) for part in _decode_loose(raw).parts])
        fields = decode_object(raw)
        fields["parts"] = msgspec.Raw(b"[]")
        return decode(msgspec.json.encode(fields)), parts
    except BROKEN:
        return None, ()


def _decode_any_part(raw: bytes) -> Part:
    try:
        return _decode_part(raw)
    except BROKEN:
        part_type = _decode_tag(raw).type
        result = _decode_result_with_unknown_parts(raw) if part_type == "tool_result" else None
        return result or OpaquePart(part_type, raw)


def _decode_result_with_unknown_parts(raw: bytes) -> ToolResult | None:
    """A result answers its call whatever it is made of: a part that is not known is named."""
    result, parts = _apart(raw, _decode_part)
    if not isinstance(result, ToolResult):
        return None
    known = (part if isinstance(part, Text | File) else _name_of(part) for part in parts)
    return msgspec.structs.replace(result, parts=tuple(known))


def _name_of(part: Part) -> Text:
    kind = part.type if isinstance(part, OpaquePart) else type(part).__name__
    return Text(f"[a part of the type {kind}, which this version cannot show]")
