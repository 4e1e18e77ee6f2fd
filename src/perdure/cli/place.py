"""Which store and which loop a command works with, and that reading never makes a store.

The store is the one that `perdure serve` would use in this folder: `--store`, else `PERDURE_STORE`,
else what `perdure.toml` says, else a file in `perdure-data`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote

from perdure.errors import ConfigurationError, JournalCorruptError, StoreUnavailableError
from perdure.salvage import SalvagingStore
from perdure.server.config import Settings, load_settings
from perdure.server.plugin_setting import installed_plugins
from perdure.store import SessionStore
from perdure.stores import open_store, shown_url

DEFAULT_STORE = Settings().store_url

_READING = (
    "session_ids",
    "verify_session",
    "verify_store",
    "stream_entries",
    "salvage_entries",
)


class ReadingStore(SalvagingStore, Protocol):
    """What the verbs need of a store beyond `Store`; every store of Perdure has it."""

    async def session_ids(self) -> Sequence[str]:
        """The ids of all sessions that can be told, exactly as they were given."""
        ...

    async def verify_store(self) -> Sequence[JournalCorruptError]:
        """The damage that belongs to no session of `session_ids`."""
        ...


def add_store_to(verb: argparse.ArgumentParser) -> None:
    """Gives a verb the option `--store`."""
    verb.add_argument(
        "--store",
        metavar="URL",
        default=None,
        help=f"where the sessions are (PERDURE_STORE, else perdure.toml, else {DEFAULT_STORE})",
    )


def add_loop_to(verb: argparse.ArgumentParser) -> None:
    """Gives a verb the options `--loop` and `--workspace`."""
    names = "shell, provider:model or module:attribute"
    verb.add_argument("--loop", metavar="NAME", help=f"what answers: {names}")
    verb.add_argument("--workspace", metavar="FOLDER", help="where tools run (this folder)")


def open_for_reading(options: argparse.Namespace) -> ReadingStore:
    """The store that is meant, which is there already.

    Raises:
        StoreUnavailableError: there is none at that place, or an empty file; none was made.
        ConfigurationError: a memory store, which nobody else can have written.
    """
    url, store = _open(options.store)
    scheme, _, path = url.partition(":///")
    file = Path(unquote(path))
    if scheme in {"sqlite", "jsonl"} and not file.exists():
        raise StoreUnavailableError(
            f"there is no store at {shown_url(url)}: nothing was made. Name another with --store "
            "or PERDURE_STORE; perdure chat and perdure serve make one for their first session"
        )
    if scheme == "sqlite" and file.is_file() and file.stat().st_size == 0:
        raise StoreUnavailableError(
            f"the file of {shown_url(url)} is empty (0 bytes), which no store is: it was emptied, "
            "or whoever made it stored nothing. It was left as it is; restore a copy, if there was "
            "a store. perdure chat and perdure serve make a new one of it"
        )
    return reading_store(store, url)


def reading_store(store: SessionStore, url: str) -> ReadingStore:
    """The store, if it has what the verbs need; ConfigurationError else."""
    for verb in _READING:
        if not hasattr(store, verb):
            raise ConfigurationError(
                f"the store {shown_url(url)} cannot be listed: it has no {verb}()"
            )
    return store  # type: ignore[return-value]  # checked just above


def open_for_writing(named: str | None) -> SessionStore:
    """The store that is meant; the first session makes it.

    Raises:
        ConfigurationError: a memory store, which ends with this command.
    """
    return _open(named)[1]


def _open(named: str | None) -> tuple[str, SessionStore]:
    settings = load_settings({"store": named})
    url = settings.store_url
    store = open_store(url, plugins=installed_plugins(settings))
    if url.startswith("memory:"):
        raise ConfigurationError(
            "a memory store lives and ends with its process, so there is nothing in it to read; "
            "name another with --store"
        )
    return url, store
