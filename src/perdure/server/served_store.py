"""The store of a server: one that can be looked into, and that is this server's alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import cast

from perdure.errors import ConfigurationError, UnrecoverableError
from perdure.server.journal import JournalStore
from perdure.store import SessionStore
from perdure.stores import shown_url


def as_journal_store(store: SessionStore, url: str) -> JournalStore:
    """The store, if it can be served.

    Raises:
        ConfigurationError: it keeps sessions, but cannot be looked into.

    """
    if not hasattr(store, "page_entries"):
        raise ConfigurationError(
            f"{shown_url(url)!r} cannot be served: JSON lines is the library's and the "
            "interchange format, without listings, pages or hints, so every look would read whole "
            "files. Serve a SQLite file (sqlite:///file.db)"
        )
    return cast("JournalStore", store)


@asynccontextmanager
async def own_store(store: JournalStore, node: str) -> AsyncIterator[None]:
    """The store as its one server's, where it has such a lock; it opens now, not at first use.

    Raises:
        StoreUnavailableError: another server has the store, which the text names; or it is no
            store, or cannot be opened.

    """
    async with AsyncExitStack() as stack:
        if (acquire := getattr(store, "acquire_ownership", None)) is not None:
            await stack.enter_async_context(acquire(node))
        with suppress(UnrecoverableError):  # a session's damage is that session's, and shown there
            await store.list_sessions(limit=1)
        yield
