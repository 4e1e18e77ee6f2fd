"""The event stream as a raw ASGI response: each write is the viewer's next bytes, as they are.

It ends when the viewer's connection ends, when all its sessions are deleted, when the server shuts
down, or when the viewer does not read; in each case the client resumes by cursor.
"""

from __future__ import annotations

import asyncio

from starlette.types import Receive, Scope, Send

from perdure.server.feed.feed import Feed
from perdure.server.feed.viewer import Viewer
from perdure.server.http.direct import direct_writer

ABORT = "perdure.abort"
"""The scope extension under which our own server hands out a connection's `abort`."""

DIRECT_SEND = "perdure.send"
"""The scope extension with the server's own `send`, under the layers that only see starts."""

HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store, no-transform"),
    (b"x-accel-buffering", b"no"),
]


async def send_stream(
    feed: Feed, viewer: Viewer, scope: Scope, receive: Receive, send: Send
) -> None:
    """Sends what the viewer is given until one of both ends; then lets the viewer go."""
    gone = asyncio.create_task(_wait_until_gone(receive))
    gone.add_done_callback(lambda _: viewer.close())
    task = asyncio.current_task()
    assert task is not None
    viewer.on_cut = task.cancel
    try:
        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        direct_send: Send = scope.get("extensions", {}).get(DIRECT_SEND, send)
        viewer.direct = direct_writer(direct_send)
        while (data := await viewer.next()) is not None:
            await direct_send({"type": "http.response.body", "body": data, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
    except asyncio.CancelledError:
        if not viewer.is_cut or task.uncancel() > 0:
            raise
        await _abort(scope, gone)
    finally:
        feed.leave(viewer)
        gone.cancel()
        await asyncio.wait([gone])


async def _wait_until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _abort(scope: Scope, gone: asyncio.Task[None]) -> None:
    """Closes the connection without waiting for a reader who does not read."""
    abort = scope.get("extensions", {}).get(ABORT)
    if abort is not None:
        abort()
        await asyncio.wait([gone], timeout=1)
