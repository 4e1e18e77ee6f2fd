"""`perdure serve`: the server and its page; its settings are those of `perdure.server.config`."""

from __future__ import annotations

import argparse
from typing import Any

from perdure.cli.terminal import Terminal
from perdure.errors import MissingExtraError
from perdure.server.config import EXPLAINED, FILE_NAME, PREFIX, Settings, load_settings

_OPTIONAL = {"starlette", "uvicorn", "uvloop", "httptools"}
_SECRET = "token"

_EPILOG = f"""\
Every setting can also be given as {PREFIX}NAME in the environment (--idle-after-s is
{PREFIX}IDLE_AFTER_S) and as a key of {FILE_NAME} in this folder (idle_after_s); the command line
wins over the environment, and that over the file. The token is a secret, and so no option:
{PREFIX}TOKEN, or token in {FILE_NAME}: {EXPLAINED[_SECRET]}."""


def add_to(verbs: Any) -> None:
    """Adds the verb to the command line."""
    verb = verbs.add_parser(
        "serve", help="start the server and print the address of its page", epilog=_EPILOG
    )
    default = Settings()
    for name, explained in EXPLAINED.items():
        if name == _SECRET:
            continue
        value = getattr(default, name)
        shown = default.store_url if name == "store" else value
        shown = str(shown).lower() if isinstance(shown, bool) else shown
        verb.add_argument(
            f"--{name.replace('_', '-')}",
            metavar=_metavar(name, value),
            help=explained + (f" ({shown})" if shown not in (None, ()) else ""),
        )
    verb.set_defaults(run=run)


def _metavar(name: str, value: object) -> str:
    known = {"store": "URL", "data": "FOLDER", "workspace": "FOLDER", "loop": "NAME"}
    known["tokens"] = "FILE"
    known |= {"requests_per_s": "NUMBER", "retain_days": "DAYS", "compact_at": "SHARE"}
    if isinstance(value, bool):
        return "TRUE|FALSE"
    if name not in known and name.endswith("_s"):
        return "SECONDS"
    return known.get(name, "NUMBER" if isinstance(value, int) else "TEXT")


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Serves until it is told to stop.

    Raises:
        MissingExtraError: what the server is built on is not installed.

    """
    names = [name for name in EXPLAINED if name != _SECRET]
    settings = load_settings({name: getattr(options, name) for name in names})
    try:
        from perdure.server import serve
    except ModuleNotFoundError as error:
        if error.name not in _OPTIONAL:
            raise
        raise MissingExtraError("perdure serve", "server") from error
    serve.run(settings)
    return 0
