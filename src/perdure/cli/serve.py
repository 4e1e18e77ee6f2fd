"""`perdure serve`: the server and its page; its settings are those of `perdure.server.config`."""

from __future__ import annotations

import argparse
from typing import Any

from perdure.cli.place import add_loop_to, add_store_to
from perdure.cli.terminal import Terminal
from perdure.errors import MissingExtraError
from perdure.server.config import Settings, load_settings

_OPTIONAL = {"starlette", "uvicorn", "uvloop", "httptools"}


def add_to(verbs: Any) -> None:
    """Adds the verb to the command line."""
    default = Settings()
    verb = verbs.add_parser("serve", help="start the server and print the address of its page")
    add_store_to(verb)
    verb.add_argument("--host", help=f"the address to listen on ({default.host})")
    verb.add_argument("--port", type=int, help=f"the port; 0: any free one ({default.port})")
    add_loop_to(verb)
    verb.add_argument("--data", metavar="FOLDER", help=f"the server's own files ({default.data})")
    verb.set_defaults(run=run)


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Serves until it is told to stop.

    Raises:
        MissingExtraError: what the server is built on is not installed.

    """
    names = ("store", "host", "port", "loop", "workspace", "data")
    settings = load_settings({name: getattr(options, name) for name in names})
    try:
        from perdure.server import serve
    except ModuleNotFoundError as error:
        if error.name not in _OPTIONAL:
            raise
        raise MissingExtraError("perdure serve", "server") from error
    serve.run(settings)
    return 0
