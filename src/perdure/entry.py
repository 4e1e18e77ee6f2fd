"""Entries: the immutable things that a session's log is made of, as typed values.

An entry has its identity (`id`, `created_at`) from the moment it is made, so appending the same
value again is recognised as a retry. A *tree entry* has a `parent_id` once it is placed (None at a
root); a *fact* (fact.py) never has one. Bytes are the business of codec.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from msgspec import UNSET, Struct, UnsetType, field

from perdure.clock import new_id, now

Role = Literal["system", "user", "assistant", "tool"]
Ending = Literal["stopped", "interrupted", "failed"]
Json = Any
"""A JSON value as Python builtins: what `json.loads` returns."""


class _Part(Struct, frozen=True, omit_defaults=True, tag_field="type", gc=False):
    """What all parts share: nothing but the tag."""


class Text(_Part, tag="text", frozen=True, omit_defaults=True):
    """Text as a person or a model wrote it."""

    text: str
    provider: Json = None


class Reasoning(_Part, tag="reasoning", frozen=True, omit_defaults=True):
    """A model's reasoning; its signature, where there is one, is in `provider`."""

    text: str
    provider: Json = None


class ToolCall(_Part, tag="tool_call", frozen=True, omit_defaults=True):
    """A model asks for a tool. `arguments` is any JSON; a string where the model wrote no JSON."""

    call_id: str
    name: str
    arguments: Json = None
    provider: Json = None


class File(_Part, tag="file", frozen=True, omit_defaults=True):
    """A file or image: `data` (base64 in JSON) or, instead, a `url`."""

    media_type: str
    data: bytes | None = None
    url: str | None = None
    name: str | None = None
    provider: Json = None


class OpaquePart:
    """A part that this version does not know, kept as it was written: `raw` is its JSON."""

    __slots__ = ("raw", "type")

    def __init__(self, part_type: str, raw: bytes) -> None:
        self.type = part_type
        self.raw = raw

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OpaquePart) and self.raw == other.raw

    def __hash__(self) -> int:
        return hash(self.raw)

    def __repr__(self) -> str:
        return f"<OpaquePart {self.type}>"


ResultPart = Text | File
if TYPE_CHECKING:
    ResultParts = Sequence[ResultPart]
else:  # any sequence can be given; what is read is immutable
    ResultParts = tuple[ResultPart, ...]


class ToolResult(_Part, tag="tool_result", frozen=True, omit_defaults=True):
    """What a call came to, whole.

    `interrupted` marks a result that nobody's tool gave: the call was cut off. `limit_chars` is
    the most code points of its text that a model is shown (view.py makes the excerpt).
    """

    call_id: str
    parts: ResultParts = ()
    name: str | None = None
    is_error: bool = False
    interrupted: bool = False
    limit_chars: int | None = None
    provider: Json = None

    @property
    def text(self) -> str:
        """The text of its parts, joined."""
        return "".join(part.text for part in self.parts if isinstance(part, Text))


KnownPart = Text | Reasoning | ToolCall | ToolResult | File
if TYPE_CHECKING:
    Part = KnownPart | OpaquePart
    Parts = Sequence[Part]
else:  # what is read is immutable; and the codec adds opaque parts: msgspec has no "anything else"
    Part = KnownPart
    Parts = tuple[Part, ...]


class _Entry(Struct, frozen=True, omit_defaults=True, tag_field="type", kw_only=True, gc=False):
    id: str = field(default_factory=new_id)
    created_at: datetime = field(default_factory=now)

    @property
    def type(self) -> str:
        """The entry's type, as it is written."""
        tag: str = self.__struct_config__.tag  # type: ignore[assignment]  # all have one, as text
        return tag

    @property
    def view(self) -> Self:
        """The typed entry: this one. So a list of them can be read as a path is."""
        return self


class TreeEntry(_Entry, frozen=True, omit_defaults=True, kw_only=True):
    """An entry with a place in the transcript tree.

    `parent_id` is UNSET until an agent or a caller places it; stores take an unplaced one as a
    root.
    """

    parent_id: str | UnsetType | None = UNSET


class Message(TreeEntry, tag="message", frozen=True, omit_defaults=True):
    """One message of the conversation. `meta`: the model sees it, the transcript hides it.

    `end` is set on a message that was cut off: what had been shown of it was kept.
    """

    role: Role
    parts: Parts
    meta: bool = False
    end: Ending | None = None
    provider: Json = None

    @property
    def text(self) -> str:
        """The text of its text parts, joined."""
        return "".join(part.text for part in self.parts if isinstance(part, Text))

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """Its tool calls, in order."""
        return tuple(part for part in self.parts if isinstance(part, ToolCall))

    @property
    def tool_results(self) -> tuple[ToolResult, ...]:
        """Its tool results, in order."""
        return tuple(part for part in self.parts if isinstance(part, ToolResult))


class Compaction(TreeEntry, tag="compaction", frozen=True, omit_defaults=True):
    """From here on the model sees `summary`, then everything from `first_kept_id`.

    `first_kept_id` names an entry earlier on the path; None keeps nothing from before.
    """

    summary: str
    first_kept_id: str | None


class Custom(TreeEntry, tag="custom", frozen=True, omit_defaults=True):
    """An application's own entry: stored, shown, never sent to a model.

    On reading, `data` is an instance of the class registered for `kind` with `@custom(kind)`, or
    plain JSON where none is registered or the data does not fit it.
    """

    kind: str
    data: Json = None


class Opaque(Struct, frozen=True, kw_only=True):
    """An entry that this version cannot type: kept whole, it can be a parent, and is copied."""

    id: str
    type: str
    created_at: datetime
    parent_id: str | UnsetType | None = UNSET

    @property
    def view(self) -> Self:
        """The entry itself, as of those that have a type."""
        return self


@dataclass(frozen=True, slots=True)
class Ephemeral:
    """A message that the model sees for one run and that is never stored."""

    message: Message


_T = TypeVar("_T")
custom_types: dict[str, type] = {}
custom_kinds: dict[type, str] = {}


def custom(kind: str) -> Callable[[type[_T]], type[_T]]:
    """Registers a class (dataclass or msgspec Struct) as the type of a custom entry's `data`.

    Instances can be appended as they are; on reading, `Custom.data` is an instance again.
    Registering another class for a taken kind replaces it.
    """

    def register(cls: type[_T]) -> type[_T]:
        old = custom_types.get(kind)
        if old is not None and custom_kinds.get(old) == kind:
            del custom_kinds[old]
        custom_types[kind] = cls
        custom_kinds[cls] = kind
        return cls

    return register


def text(content: str, *, meta: bool = False) -> Message:
    """Makes a user message of one text part."""
    return Message("user", (Text(content),), meta=meta)


def file(
    data: bytes | None = None,
    media_type: str = "application/octet-stream",
    *,
    url: str | None = None,
    name: str | None = None,
    text: str | None = None,
    meta: bool = False,
) -> Message:
    """Makes a user message with a file, given as bytes or by URL, after an optional text."""
    if (data is None) == (url is None):
        raise ValueError("a file has either data or a url: give exactly one")
    part = File(media_type, data=data, url=url, name=name)
    return Message("user", (part,) if text is None else (Text(text), part), meta=meta)


def image(
    data: bytes | None = None,
    media_type: str = "image/png",
    *,
    url: str | None = None,
    name: str | None = None,
    text: str | None = None,
    meta: bool = False,
) -> Message:
    """Makes a user message with an image, given as bytes or by URL, after an optional text."""
    return file(data, media_type, url=url, name=name, text=text, meta=meta)


def ephemeral(entry: Message | str) -> Ephemeral:
    """Marks a message for one run: the model sees it, nothing of it is stored."""
    return Ephemeral(text(entry) if isinstance(entry, str) else entry)
