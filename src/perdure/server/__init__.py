"""Sessions as actors over a journal, one event stream, and the page as a view of it.

`create_app(config)` is the server as an ASGI application, to mount elsewhere. What it is built on
is imported when it is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perdure.server.http.app import create_app

__all__ = ["create_app"]


def __getattr__(name: str) -> object:
    if name != "create_app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from perdure.server.http.app import create_app

    return create_app
