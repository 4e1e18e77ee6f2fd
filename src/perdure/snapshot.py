"""Snapshots: serialised state as of a `seq`, so that waking need not start at the beginning.

A snapshot only ever saves time: one that is of another incarnation, beyond the journal's end, of a
schema that this version does not know (the future's), or whose bytes are not those that were
sealed *counts as absent*, and an older one or the whole journal is read in its place. Every schema
that was released is read for ever: an upcast makes each of them the next one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

_T = TypeVar("_T")

KEPT = 2
"""How many snapshots pruning leaves: the newest, and one in case that it cannot be read."""

Upcast = Callable[[dict[str, Any]], dict[str, Any]]
"""Makes the serialised form of one schema that of the next; its `schema` is set by who calls."""

_DIGITS = 32
_UNSEALED_SCHEMA = 1
"""Was written without a digest."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """State as of `seq` of one incarnation's journal; `data` is opaque to a store."""

    seq: int
    schema: int
    incarnation: str
    data: bytes

    def fits(self, incarnation: str, last_seq: int) -> bool:
        """Whether it is of this incarnation, and not beyond a journal that ends at `last_seq`."""
        return self.incarnation == incarnation and 0 <= self.seq <= last_seq


class _Numbered(Struct):
    schema: int


def seal(data: bytes) -> bytes:
    """The bytes with their digest, so that any change to them is noticed; `data` is one line."""
    return b"%b\n%b" % (data, _digest(data))


def unseal(sealed: bytes) -> bytes | None:
    """The bytes that were sealed; None if they are not what was sealed."""
    data, newline, digest = sealed.rpartition(b"\n")
    if not newline:
        return sealed if _schema_of(sealed) == _UNSEALED_SCHEMA else None
    return data if digest == _digest(data) else None


def read_sealed(
    sealed: bytes, kind: type[_T], *, schema: int, upcasts: Mapping[int, Upcast]
) -> _T | None:
    """What was sealed, upcast to `schema` step by step; None where it counts as absent."""
    data = unseal(sealed)
    found = None if data is None else _schema_of(data)
    if data is None or found is None or found > schema:
        return None
    try:
        if found == schema:
            return msgspec.json.decode(data, type=kind)
        value: dict[str, Any] = msgspec.json.decode(data)
        for number in range(found, schema):
            if number not in upcasts:
                return None
            value = upcasts[number](value) | {"schema": number + 1}
        return msgspec.convert(value, kind)
    except (msgspec.DecodeError, RecursionError):
        return None


def _schema_of(data: bytes) -> int | None:
    try:
        return msgspec.json.decode(data, type=_Numbered).schema
    except (msgspec.DecodeError, RecursionError):
        return None


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).hexdigest()[:_DIGITS].encode()
