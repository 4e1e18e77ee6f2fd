"""A value -> JSON bytes, as entries are spelled: the same text and numbers on every store.

A lone surrogate becomes U+FFFD, NaN and infinities become null, U+0000 is kept. Nesting is bounded
so that what could be written can be read on any stack.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import accumulate
from json import JSONDecoder
from typing import Any

import msgspec

from perdure.entry import Message, OpaquePart, Text
from perdure.errors import AppendRejectedError

MAX_DEPTH = 200
"""How deeply an entry's JSON may be nested; far below what any reader's stack can take."""


def _enc_hook(value: object) -> object:
    if isinstance(value, OpaquePart):
        return msgspec.Raw(value.raw)
    raise TypeError(f"{type(value).__name__} is not JSON")


_encoder = msgspec.json.Encoder(enc_hook=_enc_hook)


def encode(value: object) -> bytes:
    """JSON of a value as entries are spelled: NaN is null, a lone surrogate is U+FFFD.

    Raises:
        AppendRejectedError: it is not JSON, or is nested too deeply. Nothing is stored.
    """
    try:
        try:
            raw = _encoder.encode(value)
        except UnicodeEncodeError:
            raw = _encoder.encode(_clean(msgspec.to_builtins(value, enc_hook=_to_builtins)))
    except (TypeError, ValueError, OverflowError) as error:
        raise AppendRejectedError(f"this cannot be written as JSON: {error}") from error
    except RecursionError as error:
        raise _too_deep() from error
    if not _is_plain(value) and is_too_deep(raw):
        raise _too_deep()
    return raw


def _too_deep() -> AppendRejectedError:
    return AppendRejectedError(f"this is nested more than {MAX_DEPTH} levels deep")


def kept(value: Any) -> Any:
    """The value, or, where it cannot be written as JSON, a text that says why."""
    try:
        encode(value)
    except AppendRejectedError as error:
        return f"not kept: {error}"
    return value


def _is_plain(value: object) -> bool:
    """Whether it is a message of plain text, which nests nothing; most are."""
    if type(value) is not Message or value.provider is not None:
        return False
    return not [part for part in value.parts if type(part) is not Text or part.provider is not None]


_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_NO_BRACKET = bytes(set(range(256)) - set(b"[]{}"))
_STEP = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


def is_too_deep(raw: bytes) -> bool:
    """Whether sound JSON is nested deeper than MAX_DEPTH; O(its length)."""
    if raw.count(b"[") + raw.count(b"{") <= MAX_DEPTH:
        return False
    brackets = _STRING.sub(b"", raw).translate(None, _NO_BRACKET)
    return max(accumulate(map(_STEP.__getitem__, brackets)), default=0) > MAX_DEPTH


def _to_builtins(value: object) -> object:
    if isinstance(value, OpaquePart):
        return json.loads(value.raw)
    raise TypeError(f"{type(value).__name__} is not JSON")


def _clean(value: Any) -> Any:
    match value:
        case str():
            return clean_text(value)
        case dict():
            return {_clean(key): _clean(item) for key, item in value.items()}
        case list() | tuple():
            return [_clean(item) for item in value]
        case _:
            return value


def clean_text(value: str) -> str:
    """The text with each lone surrogate as U+FFFD; the same object where there is none."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return value


_scan = JSONDecoder(parse_int=str, parse_float=str).raw_decode
_gap = re.compile(r"[ \t\r\n]*").match


def spelled_fields(line: str) -> Iterator[tuple[str, str, str]]:
    """Each field of a sound JSON object: its name, how it is spelled, how its value is."""
    at = _skip(line, 1)
    while line[at] != "}":
        start = at
        name, at = _scan(line, at)
        value_at = _skip(line, _skip(line, at) + 1)
        _, at = _scan(line, value_at)
        yield name, line[start:at], line[value_at:at]
        at = _skip(line, at)
        if line[at] == ",":
            at = _skip(line, at + 1)


def _skip(line: str, at: int) -> int:
    gap = _gap(line, at)
    assert gap is not None
    return gap.end()
