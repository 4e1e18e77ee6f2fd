"""Entry <-> one JSON object. Whatever is not known keeps its bytes.

An `Entry` is a header (id, type, created_at, parent_id), its raw bytes, encoded once, and a typed
view that is decoded when asked for (typed.py). Stores see header and raw only. Nothing outside of
these two modules knows how an entry is spelled in JSON.
"""

from __future__ import annotations

import hashlib
import json
from codecs import utf_8_decode
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, get_args

import msgspec
from msgspec import UNSET, Struct, UnsetType

from perdure.encoding import MAX_DEPTH, is_too_deep, spelled_fields
from perdure.encoding import clean_text as clean_text
from perdure.encoding import encode as encode
from perdure.entry import (
    Compaction,
    Custom,
    Ending,
    Ephemeral,
    Message,
    OpaquePart,
    Role,
    Text,
    TreeEntry,
    _Entry,
    custom_kinds,
)
from perdure.errors import AppendRejectedError
from perdure.fact import Fact, KnownFact
from perdure.typed import (
    BROKEN,
    decode_message_with_opaque_parts,
    decode_object,
    decode_view,
    typed,
)
from perdure.typed import View as View

RESERVED = ("seq", "session_id", "batch", "sum")
"""Names that stores and streams add to an entry; one that brings its own is refused."""

MAX_ID_BYTES = 512

SPACE = b" \t\r\n"
"""White space in JSON."""

_TEXT_STEP_BYTES = 65536

Draft = TreeEntry | Fact | object
"""What can be made into an entry: a typed entry, or an instance of a registered custom class."""


_encode_plain = msgspec.json.Encoder().encode
_replace = msgspec.structs.replace
_ROLES, _ENDINGS = get_args(Role), get_args(Ending)


class Entry(Struct, eq=False, gc=False, rename={"raw": "(raw)", "_view": "(view)"}):
    """One entry as stores see it: its header and its bytes. Immutable.

    `parent_id` is UNSET on a fact (`in_tree` says which). Two entries are equal when their bytes
    are. The garbage collector does not look at it: a session has many, and none is in a cycle.
    """

    # Decoded from its bytes in one step; what has no place in them is set after that.
    id: str
    type: str
    created_at: datetime
    parent_id: str | UnsetType | None = UNSET
    raw: bytes = b""
    _view: Any = None

    @property
    def in_tree(self) -> bool:
        """Whether it is a tree entry; a fact otherwise."""
        return self.parent_id is not UNSET

    @property
    def view(self) -> View:
        """The typed entry; `Opaque` where this version cannot type it. Decoded once."""
        view: View | None = self._view
        if view is None:
            self._view = view = typed(self.raw, self.id, self.type, self.created_at, self.parent_id)
        return view

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Entry) and self.raw == other.raw

    def __ne__(self, other: object) -> bool:  # a Struct has one of its own
        return not self == other

    def __hash__(self) -> int:
        return hash(self.raw)

    def __repr__(self) -> str:
        return f"<Entry {self.type} {self.id}>"


_Absent = Annotated[int, msgspec.Meta(gt=0, lt=0)]
"""No value is of this type, so the field cannot be there."""


class _PlainEntry(Entry, eq=False, gc=False):
    """An entry whose bytes have no reserved field: decoding others fails."""

    seq: _Absent | UnsetType = UNSET
    session_id: _Absent | UnsetType = UNSET
    batch: _Absent | UnsetType = UNSET
    sum: _Absent | UnsetType = UNSET


_decode_entry = msgspec.json.Decoder(Entry).decode
_decode_plain: Callable[[bytes], Entry] = msgspec.json.Decoder(_PlainEntry).decode


class StoredEntry(Struct, frozen=True, gc=False):
    """An entry and its `seq`."""

    seq: int
    entry: Entry

    @property
    def id(self) -> str:
        """The entry's id."""
        return self.entry.id

    @property
    def type(self) -> str:
        """The entry's type."""
        return self.entry.type

    @property
    def created_at(self) -> datetime:
        """When the entry was made, by the clock of whoever made it."""
        return self.entry.created_at

    @property
    def parent_id(self) -> str | UnsetType | None:
        """The entry's place; UNSET on a fact."""
        return self.entry.parent_id

    @property
    def raw(self) -> bytes:
        """The entry's bytes."""
        return self.entry.raw

    @property
    def view(self) -> View:
        """The typed entry."""
        return self.entry.view


AnyEntry = StoredEntry | Entry | View
"""An entry with its `seq`, as it is sealed, or as a typed value: all have a `view`."""


def seal(draft: Draft | Entry, parent_id: str | UnsetType | None = UNSET) -> Entry:
    """Makes the entry of a draft, placed under `parent_id`; its bytes are final.

    `parent_id` UNSET keeps the draft's own place, and makes an unplaced one a root. An entry that
    is sealed already comes back as it is.

    Raises:
        AppendRejectedError: the draft is not an entry, is ephemeral, or is not valid. Nothing is
            stored.
    """
    if type(draft) is Message:  # most are
        if parent_id is not UNSET and (entry := _seal_plain(draft, parent_id)) is not None:
            return entry
        view: _Entry = draft
    elif isinstance(draft, Entry):
        return draft
    else:
        view = _view_of(draft)
    if parent_id is UNSET:
        if isinstance(view, TreeEntry) and view.parent_id is UNSET:
            view = msgspec.structs.replace(view, parent_id=None)
    elif isinstance(view, TreeEntry):
        view = msgspec.structs.replace(view, parent_id=parent_id)
    if isinstance(view.created_at, datetime) and view.created_at.tzinfo is not UTC:
        view = msgspec.structs.replace(view, created_at=_in_utc(view.created_at))
    raw = encode(view)
    try:
        if isinstance(view, Message) and OpaquePart in map(type, view.parts):
            checked: Message | Compaction | Custom | KnownFact
            checked = _decode_with_opaque_parts(view, raw)
        else:
            checked = decode_view(raw)
    except BROKEN as error:
        raise AppendRejectedError(f"not a valid {view.type} entry: {error}") from error
    _check_id(checked.id)
    place = checked.parent_id if isinstance(checked, TreeEntry) else UNSET
    # a custom entry's view holds an instance of the registered class: decoded when asked for
    kept = None if type(checked) is Custom else checked
    return Entry(checked.id, checked.type, checked.created_at, place, raw, kept)


def _seal_plain(draft: Message, parent_id: str | None) -> Entry | None:
    """The entry of a message of plain text: what is asked of it here is all that decoding asks."""
    stamp, end = draft.created_at, draft.end
    if not (
        type(draft.role) is str
        and draft.role in _ROLES
        and (end is None or (type(end) is str and end in _ENDINGS))
        and (parent_id is None or type(parent_id) is str)
        and draft.provider is None
        and type(draft.meta) is bool
        and type(draft.id) is str
        and 1 <= len(draft.id) <= MAX_ID_BYTES // 4
        and type(stamp) is datetime
        and stamp.tzinfo is UTC
        and type(draft.parts) is tuple
    ):
        return None
    for part in draft.parts:
        if type(part) is not Text or part.provider is not None or type(part.text) is not str:
            return None
    view = _replace(draft, parent_id=parent_id)
    try:
        return Entry(draft.id, "message", stamp, parent_id, _encode_plain(view), view)
    except UnicodeEncodeError:
        return None


def _view_of(draft: object) -> _Entry:
    """The typed entry that a draft is; an instance of a registered class becomes a custom entry."""
    if isinstance(draft, Ephemeral):
        raise AppendRejectedError("an ephemeral message is never stored; pass it to run()")
    kind = custom_kinds.get(type(draft))
    view = Custom(kind=kind, data=draft) if kind is not None else draft
    if isinstance(view, _Entry):
        return view
    raise AppendRejectedError(
        f"{type(draft).__name__} is not an entry; make one with perdure.text(), Message(), "
        "Custom() or a class registered with @perdure.custom(kind)"
    )


def _in_utc(stamp: datetime) -> datetime:
    try:
        if stamp.tzinfo is not None:
            return stamp.astimezone(UTC)
    except OverflowError:
        pass
    raise AppendRejectedError(f"created_at {stamp} is no time in UTC; give it with its time zone")


def _decode_with_opaque_parts(view: Message, raw: bytes) -> Message:
    """Decodes what was just encoded: parts that were read as opaque stay so, if they are sound."""
    raw.decode()
    for part in view.parts:
        if isinstance(part, OpaquePart):
            decode_object(part.raw)
    known = tuple(part for part in view.parts if not isinstance(part, OpaquePart))
    decode_view(encode(msgspec.structs.replace(view, parts=known)))
    if (message := decode_message_with_opaque_parts(raw)) is None:
        raise msgspec.DecodeError("an opaque part is not a JSON object with a type")
    if read_framed(raw)[1] or b"\n" in raw:
        raise msgspec.DecodeError("an opaque part is not one line of JSON")
    return message


def _check_id(entry_id: str) -> None:
    length = len(entry_id)
    if not 1 <= length <= MAX_ID_BYTES // 4 and not 1 <= len(entry_id.encode()) <= MAX_ID_BYTES:
        raise AppendRejectedError(f"an entry's id has 1 to {MAX_ID_BYTES} bytes")


def read_entry(raw: bytes) -> Entry:
    """The entry of its stored bytes; decodes the header only.

    Raises:
        ValueError: these bytes are no entry: not JSON, not UTF-8, no object, or a header field is
            missing or of the wrong type.
    """
    _check_utf8(raw)
    try:
        entry = _decode_entry(raw)
    except BROKEN:
        return _read_foreign(raw)[0]
    entry.raw, entry._view = raw, None
    return entry


def read_entries(raws: Sequence[bytes], *, plain: bool = False) -> list[Entry]:
    """`read_entry` of each, in less time; `plain` entries have no reserved fields in their bytes.

    Raises:
        ValueError: one of them is no entry, or no plain one, or not as this program writes it.
            It does not say which.
    """
    decode = _decode_plain if plain else _decode_entry
    try:
        entries = [decode(raw) for raw in raws]
    except BROKEN as error:
        raise ValueError("not as this program writes it") from error
    for entry, raw in zip(entries, raws, strict=True):
        if not raw.isascii():
            _check_utf8(raw)
        entry.raw, entry._view = raw, None
    return entries


class DamagedRow(ValueError):
    """A row that is not what it has to be: its position, its `seq`, and why."""

    def __init__(self, pos: int, seq: int, detail: str) -> None:
        super().__init__(detail)
        self.pos = pos
        self.seq = seq


def read_rows(rows: Iterable[tuple[int, int, str, bytes]]) -> list[StoredEntry]:
    """`read_entry` of many: each row has a position, a `seq`, and an entry's id and bytes.

    Raises:
        DamagedRow: bytes are no entry, or that of another id.
    """
    decode, stored = _decode_entry, list[StoredEntry]()  # a call for each would cost a tenth
    for pos, seq, entry_id, raw in rows:
        try:
            if not raw.isascii():
                _check_utf8(raw)
            try:
                entry = decode(raw)
            except BROKEN:
                entry = _read_foreign(raw)[0]
        except ValueError as error:
            raise DamagedRow(pos, seq, str(error)) from error
        entry.raw = raw
        entry._view = None
        if entry.id != entry_id:
            raise DamagedRow(pos, seq, f"entry {entry.id!r} is not in place")
        stored.append(StoredEntry(seq, entry))
    return stored


def read_framed(raw: bytes) -> tuple[Entry, bool]:
    """The entry, and whether its bytes have reserved fields; ValueError as `read_entry`."""
    _check_utf8(raw)
    try:
        entry = _decode_plain(raw)
    except BROKEN:
        return _read_framed(raw)
    entry.raw, entry._view = raw, None
    return entry, False


def _read_framed(raw: bytes) -> tuple[Entry, bool]:
    try:
        entry = _decode_entry(raw)
    except BROKEN:
        return _read_foreign(raw)
    entry.raw, entry._view = raw, None
    return entry, True


def _check_utf8(raw: bytes) -> None:
    """Decoding a header does not look into the fields that it skips; this does, without a copy."""
    if raw.isascii():
        return
    view, start, size = memoryview(raw), 0, len(raw)
    while start < size:
        stop = start + _TEXT_STEP_BYTES
        start += utf_8_decode(view[start:stop], "strict", stop >= size)[1]


def import_entry(raw: bytes) -> Entry:
    """The entry of bytes that come from elsewhere, checked whole.

    Its bytes stay as they are, white space around the object apart.

    Raises:
        AppendRejectedError: these bytes are no entry, are more than one line, are nested too
            deeply, or use a reserved name. Nothing is stored.
    """
    raw = raw.strip(SPACE)
    try:
        entry = read_entry(raw)
        fields = json.loads(raw.decode(), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise AppendRejectedError(f"these bytes are no entry: {error}") from error
    if b"\n" in raw:
        raise AppendRejectedError("an entry is one line of JSON; this one has line breaks")
    if is_too_deep(raw):
        raise AppendRejectedError(f"this entry is nested more than {MAX_DEPTH} levels deep")
    if taken := [name for name in RESERVED if name in fields]:
        raise AppendRejectedError(f"an entry cannot bring the reserved field {taken[0]!r}")
    _check_id(entry.id)
    return entry


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a field is there twice")
    return fields


def _read_foreign(raw: bytes) -> tuple[Entry, bool]:
    """A line that msgspec cannot decode (NaN, 1e400, an escaped lone surrogate) may be sound."""
    try:
        fields = json.loads(raw.decode(), parse_int=float)  # of however many digits
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(fields, dict):
        raise ValueError("not an object")
    try:
        stamp = msgspec.convert(fields["created_at"], datetime)
    except (KeyError, msgspec.ValidationError):
        stamp = datetime.fromtimestamp(0, UTC)
    try:
        entry_id, entry_type, parent_id = fields["id"], fields["type"], fields.get("parent_id")
    except KeyError as error:
        raise ValueError(f"the field {error} is missing") from error
    if not (isinstance(entry_id, str) and isinstance(entry_type, str)):
        raise ValueError("id and type are strings")
    if not isinstance(parent_id, str | None):
        raise ValueError("parent_id is a string or null")
    place: str | UnsetType | None = None if parent_id is None else clean_text(parent_id)
    if "parent_id" not in fields:
        place = UNSET
    entry = Entry(clean_text(entry_id), clean_text(entry_type), stamp, place, raw)
    return entry, any(name in fields for name in RESERVED)


def with_reference(entry: Entry, name: str, entry_id: str | None) -> Entry:
    """The entry with another entry id in its field `name`; its other fields keep their spelling.

    It is what a salvage does to a reference that leads nowhere (`parent_id`, `leaf_id`); an entry
    without that field comes back as it is.
    """
    value = f'"{name}":{encode(entry_id).decode()}'
    fields = list(spelled_fields(entry.raw.decode()))
    if all(field != name for field, _, _ in fields):
        return entry
    spelled = [value if field == name else text for field, text, _ in fields]
    return read_entry(("{" + ",".join(spelled) + "}").encode())


def next_sum(previous: bytes, raw: bytes) -> bytes:
    """The running sum after `raw`: the first 16 bytes of SHA-256 over the sum before and it."""
    return hashlib.sha256(previous + raw).digest()[:16]


def first_sum(header: bytes) -> bytes:
    """The running sum of a session without entries: over its header's bytes."""
    return hashlib.sha256(header).digest()[:16]


def splice(prefix: bytes, raw: bytes) -> bytes:
    """An object with `prefix` (`b'"seq":1,'`) put in front of the fields of `raw`."""
    return b"{" + prefix + raw[1:]


def seal_all(drafts: Iterable[Draft | Entry]) -> tuple[Entry, ...]:
    """Seals a batch as it is placed already; ids in it are unique.

    Raises:
        AppendRejectedError: one of them is not an entry, or two share an id. Nothing is stored.
    """
    entries = tuple([each if type(each) is Entry else seal(each) for each in drafts])
    check_unique(entries)
    return entries


def check_unique(batch: Sequence[Entry]) -> None:
    """Raises AppendRejectedError if two entries of the batch have the same id."""
    if len(batch) > 1 and len({entry.id for entry in batch}) < len(batch):
        raise AppendRejectedError("two entries of one batch have the same id")
