"""What one server is made of: its store, its feed and its sessions, opened and closed in order."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from importlib import metadata
from typing import cast

from perdure.errors import ConfigurationError, UnrecoverableError
from perdure.server.config import Settings
from perdure.server.feed import Feed
from perdure.server.journal import JournalStore
from perdure.server.port import Loops
from perdure.server.registry import Registry
from perdure.server.retention import retaining
from perdure.store import Store


@dataclass(frozen=True)
class Service:
    """A running server's parts."""

    settings: Settings
    store: JournalStore
    loops: Loops
    feed: Feed
    registry: Registry


def version() -> str:
    """The version of the package that runs."""
    try:
        return metadata.version("perdure")
    except metadata.PackageNotFoundError:
        return "0"


def as_journal_store(store: Store, url: str) -> JournalStore:
    """The store, if it can be served.

    Raises:
        ConfigurationError: it keeps sessions, but cannot be looked into.

    """
    if not hasattr(store, "page_entries"):
        raise ConfigurationError(
            f"{url!r} cannot be served: JSON lines is the library's and the interchange format, "
            "without listings, pages or hints, so every look would read whole files. Serve a "
            "SQLite file (sqlite:///file.db)"
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


@asynccontextmanager
async def open_service(
    settings: Settings, store: JournalStore, loops: Loops
) -> AsyncIterator[Service]:
    """The service inside the block; on leaving, streams and turns end. The store stays open."""
    feed = Feed(store, heartbeat_s=settings.heartbeat_s, backlog_bytes=settings.backlog_bytes)
    registry = Registry(store, loops, feed, limits=settings.limits)
    keeping = retaining(registry, settings.retain_days, dry_run=settings.retain_dry_run)
    try:
        async with keeping:
            yield Service(settings, store, loops, feed, registry)
    finally:
        feed.end_streams()
        await registry.close()
        await feed.close()
