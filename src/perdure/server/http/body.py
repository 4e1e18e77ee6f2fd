"""Bodies of requests: bounded while they are read, and typed strictly.

Not JSON is 400; JSON of another shape is 422 and says which field; too large is 413, and what
comes after the bound is not kept; too slow is 408.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import aclosing
from typing import Annotated, Any, NoReturn, TypeVar

import msgspec
from msgspec import Meta, Struct
from starlette.requests import ClientDisconnect, Request

from perdure.codec import clean_text
from perdure.entry import File, Text
from perdure.fact import Policy
from perdure.server.problem import Refused

WAIT_S = 30.0
"""How long a body may take, and a second more for each `BYTES_PER_S` that came of it."""

BYTES_PER_S = 8 * 1024

_RECEIVED = "perdure.body"
_T = TypeVar("_T", bound=Struct)


class Body(Struct, frozen=True, forbid_unknown_fields=True):
    """The root of all bodies."""


class CreateBody(Body, frozen=True):
    """Creates a session; without an id it gets one."""

    session_id: str | None = None
    loop: str | None = None
    runtime: str | None = None


class SendBody(Body, frozen=True):
    """A message: `text`, or `parts`, and what to do if a turn runs."""

    text: str | None = None
    parts: tuple[Text | File, ...] | None = None
    if_running: Policy = "queue"

    def content(self) -> tuple[Text | File, ...]:
        """The parts of the message.

        Raises:
            Refused: 422, there is nothing to send, or it is said twice.

        """
        if (self.text is None) == (self.parts is None):
            raise Refused(422, "invalid_body", 'a message has either "text" or "parts"')
        parts = (Text(self.text),) if self.text is not None else self.parts or ()
        for n, part in enumerate(parts):
            if isinstance(part, File) and (part.data is None) == (part.url is None):
                detail = f'a file has either "data" (base64) or "url" - at `$.parts[{n}]`'
                raise Refused(422, "invalid_body", detail)
        if not any(isinstance(part, File) or part.text for part in parts):
            raise Refused(422, "empty_message", "a message has text or a file")
        return parts


class EditBody(Body, frozen=True):
    """What a message that waits says instead."""

    text: str | None = None
    parts: tuple[Text | File, ...] | None = None

    def content(self) -> tuple[Text | File, ...]:
        """The parts; as for `SendBody`."""
        return SendBody(self.text, self.parts).content()


class StopBody(Body, frozen=True):
    """Which turn to stop (None: the one that runs), and whether the queue goes with it."""

    turn_id: str | None = None
    discard_queued: bool = False


class ResendBody(Body, frozen=True):
    """The turn to send again (None: the last one); it has to be the last one."""

    turn_id: str | None = None


class BranchBody(Body, frozen=True):
    """The tree entry to go on from; null is before the first one."""

    entry_id: str | None


class ForkBody(Body, frozen=True):
    """The child's id, and the tree entry to end its path with (None: the leaf)."""

    session_id: str | None = None
    entry_id: str | None = None


class CompactBody(Body, frozen=True):
    """How many of the newest turns stay as they are."""

    keep_turns: Annotated[int, Meta(ge=0, le=2**53)] = 4


class AnswerBody(Body, frozen=True):
    """The answer to a call that waits; `arguments` replace its own where they are given."""

    approve: bool
    reason: str | None = None
    arguments: Any = None


class EmptyBody(Body, frozen=True):
    """Nothing to say."""


async def read_body(request: Request, kind: type[_T], max_bytes: int) -> _T:
    """The request's body as `kind`; an empty one is `{}`.

    Raises:
        Refused: 413, 408, 400 or 422; nothing was done.

    """
    raw = await _read(request, max_bytes) or b"{}"
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return _read_again(raw, kind, error)


def _read_again(raw: bytes, kind: type[_T], error: Exception) -> _T:
    """Tells not JSON from another shape; a lone surrogate, which is JSON, becomes U+FFFD."""
    try:
        value = json.loads(raw.decode(), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as broken:
        raise Refused(400, "invalid_json", f"the body is not JSON: {broken}") from error
    cleaned = _clean(value)
    if isinstance(value, dict) and isinstance(value.get("session_id"), str):
        cleaned["session_id"] = value["session_id"]  # what is none is refused, and made into none
    try:
        return msgspec.convert(cleaned, kind)
    except (msgspec.ValidationError, RecursionError) as wrong:
        raise Refused(422, "invalid_body", str(wrong)) from error


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _clean(value: Any) -> Any:
    match value:
        case str():
            return clean_text(value)
        case dict():
            return {clean_text(key): _clean(item) for key, item in value.items()}
        case list():
            return [_clean(item) for item in value]
        case _:
            return value


async def read_text(request: Request, max_bytes: int) -> str:
    """The request's body as text.

    Raises:
        Refused: 413, 408, or 400: it was cut off, or is not UTF-8; nothing was done.

    """
    try:
        return (await _read(request, max_bytes)).decode()
    except UnicodeDecodeError as error:
        detail = f"the body is not UTF-8: byte {error.start} is none"
        raise Refused(400, "invalid_text", detail) from error


async def receive_body(request: Request, max_bytes: int, take: Callable[[int], None]) -> None:
    """Has the whole body here, so that nothing is waited for when `read_body` reads it.

    `take` is told how much came, as it comes, and may raise.

    Raises:
        Refused: 413, 408, or 400 if it was cut off.

    """
    request.scope[_RECEIVED] = await _read(request, max_bytes, take)


async def _read(
    request: Request, max_bytes: int, take: Callable[[int], None] | None = None
) -> bytes:
    received: bytes | None = request.scope.get(_RECEIVED)
    if received is not None:
        return received
    declared = request.headers.get("content-length", "0")
    if declared.isdecimal() and int(declared) > max_bytes:
        raise _too_large(max_bytes)
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(WAIT_S) as limit, aclosing(request.stream()) as body:
            end = limit.when() or 0.0
            async for chunk in body:
                size += len(chunk)
                if size > max_bytes:
                    raise _too_large(max_bytes)
                if take is not None:
                    take(len(chunk))
                chunks.append(chunk)
                limit.reschedule(end + size / BYTES_PER_S)
    except ClientDisconnect as error:
        raise Refused(400, "cut_off", "the connection ended in the middle of the body") from error
    except TimeoutError as error:
        raise Refused(
            408,
            "too_slow",
            f"the body did not come: {size} bytes of it were here, at less than {BYTES_PER_S} a "
            f"second after the first {WAIT_S:g} s; nothing was done",
            headers={"connection": "close"},
        ) from error
    return b"".join(chunks)


def _too_large(max_bytes: int) -> Refused:
    return Refused(
        413,
        "body_too_large",
        f"a body has at most {max_bytes} bytes; the setting max_body_bytes raises that",
        headers={"connection": "close"},
        max_bytes=max_bytes,
    )
