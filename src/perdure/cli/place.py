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

from perdure.errors import ConfigurationError, StoreUnavailableError
from perdure.server.config import Settings, load_settings
from perdure.store import Store
from perdure.stores import open_store

DEFAULT_STORE = Settings().store_url


class ListingStore(Store, Protocol):
    """What the reading verbs need of a store beyond `Store`; every store of Perdure has it."""

    async def session_ids(self) -> Sequence[str]:
        """The ids of all sessions, exactly as they were given."""
        ...

    async def verify_session(self, session_id: str) -> None:
        """Checks every byte and sum of the session; raises JournalCorruptError on damage."""
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


def open_for_reading(options: argparse.Namespace) -> ListingStore:
    """The store that is meant, which is there already.

    Raises:
        StoreUnavailableError: there is none at that place; none was made.
        ConfigurationError: a memory store, which nobody else can have written.
    """
    url = load_settings({"store": options.store}).store_url
    store = open_store(url)
    scheme, _, path = url.partition(":///")
    if url.startswith("memory:"):
        raise ConfigurationError(
            "a memory store lives and ends with its process, so there is nothing in it to read; "
            "name another with --store"
        )
    if scheme in {"sqlite", "jsonl"} and not Path(unquote(path)).exists():
        raise StoreUnavailableError(
            f"there is no store at {url}: nothing was made. Name another with --store or "
            "PERDURE_STORE; perdure chat and perdure serve make one for their first session"
        )
    for verb in ("session_ids", "verify_session"):
        if not hasattr(store, verb):
            raise ConfigurationError(f"the store {url} cannot be listed: it has no {verb}()")
    return store  # type: ignore[return-value]  # checked just above
