"""Frames of the event stream, as bytes.

Source: HTML standard, section "Server-sent events": a frame is lines up to an empty one; carriage
return and newline end a line. JSON has neither, and everything variable here is JSON, apart from
cursors, whose letters are known.
"""

from __future__ import annotations

from typing import Literal

from perdure.codec import encode
from perdure.server.session.look import SessionLook
from perdure.server.session.shown import look_json

HEARTBEAT = b":\n\n"

Changing = Literal["routine", "runtime", "workflow"]
"""What around the sessions changes, and is told of."""


def retry(after_ms: int) -> bytes:
    """Tells when to come back after this stream has ended."""
    return b"retry: %d\n\n" % after_ms


def event(name: bytes, data: bytes) -> bytes:
    """A frame without an id."""
    return b"event: " + name + b"\ndata: " + data + b"\n\n"


def identified(cursors: str, frame: bytes) -> bytes:
    """The frame with the cursors to resume from after it."""
    return b"id: " + cursors.encode("ascii") + b"\n" + frame


def bookmark(cursors: str) -> bytes:
    """Sets where a reconnecting client resumes, and dispatches no event."""
    return identified(cursors, b":\n\n")


def void(session_json: bytes) -> bytes:
    """Tells that the session's cursor is void and that it starts again from 0."""
    return event(b"void", b'{"session_id":' + session_json + b"}")


def status(look: SessionLook, root: str = "") -> bytes:
    """Tells a session's status, by its look."""
    return event(b"status", look_json(look, root))


def changed(kind: Changing, name: str) -> bytes:
    """Tells that a routine, a runtime or a workflow is not what it was: look at it again."""
    return event(b"changed", b'{"kind":%b,"id":%b}' % (encode(kind), encode(name)))


def ended(session_json: bytes, status_name: str, cause: str | None = None) -> bytes:
    """The last status of a session on this stream, where no look can be had."""
    because = b"" if cause is None else b',"cause":' + encode(cause)
    said = b'{"session_id":%b,"status":%b%b}' % (session_json, encode(status_name), because)
    return event(b"status", said)


def notice(session_json: bytes, turn_id: str, content: str) -> bytes:
    """Tells what the loop of a turn wants its watchers to know now."""
    said = b'{"session_id":%b,"turn_id":%b,"text":%b}'
    return event(b"notice", said % (session_json, encode(turn_id), encode(content)))


def text(
    name: bytes,
    session_json: bytes,
    turn_id: str,
    message_id: str,
    part: int,
    offset: int,
    content: str,
    kind: str,
    call_id: str | None,
) -> bytes:
    """A `delta`, or a `partial`: text of a message in the making from `offset` on."""
    of_call = b"" if call_id is None else b',"call_id":' + encode(call_id)
    return event(
        name,
        b'{"session_id":%b,"turn_id":%b,"message_id":%b,"part":%d,"offset":%d,"text":%b,"kind":%b%b}'
        % (
            session_json,
            encode(turn_id),
            encode(message_id),
            part,
            offset,
            encode(content),
            encode(kind),
            of_call,
        ),
    )
