"""What one server is made of: its store, its feed and its sessions, opened and closed in order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from importlib import metadata
from typing import cast

from perdure.errors import (
    ConfigurationError,
    MissingExtraError,
    StoreError,
    UnrecoverableError,
)
from perdure.runtimes.late import LateCall
from perdure.server.config import Settings
from perdure.server.feed.feed import Feed
from perdure.server.hook.hooks import Hooks
from perdure.server.journal import JournalStore
from perdure.server.plugin_tool import PluginTools
from perdure.server.problem import Refused
from perdure.server.routine.registry import RoutineRegistry
from perdure.server.routine.table import apply_table, read_table
from perdure.server.runtime.runtimes import Runtimes, make_runtimes
from perdure.server.session.expiry import Expiry
from perdure.server.session.port import Loops
from perdure.server.session.registry import Registry
from perdure.server.session.retention import retaining
from perdure.server.surroundings import ServerSurroundings
from perdure.server.telemetry.appends import (
    AppendListener,
    DiskWatch,
    GoneWatch,
    observe_appends,
)
from perdure.server.telemetry.metrics import Metrics
from perdure.server.telemetry.observed_loop import Enter, observe_loops
from perdure.server.telemetry.observer import Observer, TurnListener, TurnLog
from perdure.server.telemetry.told import RunNotes
from perdure.server.telemetry.tracing import Tracing
from perdure.server.workflow.check import TABLE as CHECKS
from perdure.server.workflow.check import CheckTable, Functions
from perdure.server.workflow.registry import WorkflowRegistry
from perdure.server.workflow.workspace import Workspaces
from perdure.store import Store
from perdure.stores import shown_url

log = logging.getLogger(__name__)

READY_S = 2


@dataclass(frozen=True)
class Service:
    """A running server's parts."""

    settings: Settings
    store: JournalStore
    loops: Loops
    feed: Feed
    registry: Registry
    routines: RoutineRegistry
    workflows: WorkflowRegistry
    runtimes: Runtimes
    observer: Observer
    metrics: Metrics | None
    disk: DiskWatch = field(default_factory=DiskWatch)

    async def check_ready(self) -> None:
        """Returns if it can take commands, and its store can be read and was appended to last.

        Only where the last append failed is it tried whether the store can be written again.

        Raises:
            Refused: 503, with the reason.

        """
        if self.registry.is_closing:
            raise Refused(503, "not_ready", "the server is shutting down")
        try:
            async with asyncio.timeout(READY_S):
                with suppress(UnrecoverableError):  # a session's damage is that session's
                    await self.store.list_sessions(limit=1)
                if self.disk.refusal is not None:
                    await self.disk.try_again(self.store)
        except (StoreError, TimeoutError) as error:
            why = str(error) or f"it does not answer within {READY_S} seconds"
            raise Refused(503, "not_ready", f"the store refuses: {why}") from error

    async def drain(self) -> None:
        """Takes no more commands, and gives running turns their time to end; then ends streams."""
        self.registry.refuse_commands()
        try:
            if self.settings.grace_s and self.observer.running:
                async with asyncio.timeout(self.settings.grace_s):
                    await self.observer.until_rest()
            await self.feed.settle()
        except TimeoutError:
            log.warning("%d turns are interrupted: the server stops", self.observer.running)
        finally:
            self.feed.end_streams()


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


@asynccontextmanager
async def open_service(
    settings: Settings,
    store: JournalStore,
    loops: Loops,
    *,
    hooks: Hooks | None = None,
    plugin_tools: PluginTools | None = None,
) -> AsyncIterator[Service]:
    """The service inside the block; on leaving, streams and turns end. The store stays open."""
    disk = DiskWatch()
    hearing: list[AppendListener] = [disk]
    notes = RunNotes()
    entering: list[Enter] = [notes.enter]
    feed = Feed(store, heartbeat_s=settings.heartbeat_s, backlog_bytes=settings.backlog_bytes)
    listeners: list[TurnListener] = [TurnLog(), notes]
    observer = Observer(feed, listeners)
    hearing.append(GoneWatch(observer))
    expiry = Expiry(observer)
    runtimes = make_runtimes(settings)
    registry = Registry(
        observe_appends(store, hearing),
        observe_loops(loops, entering),
        expiry,
        limits=settings.limits,
        surroundings=ServerSurroundings(
            hooks, approve=settings.approve, plugin_tools=plugin_tools, runtimes=runtimes
        ),
    )

    async def keep_late(late: LateCall) -> None:
        await registry.note_late(late.origin.session_id, late.origin.key, late.result)

    runtimes.on_late = keep_late
    runtimes.on_change = lambda name, owner, all_see: feed.changed(
        "runtime", name, owner, all_see=all_see
    )
    routines = RoutineRegistry(store, registry, loops.prepare)
    routines.keeper.on_change = lambda one: feed.changed(
        "routine", one.name, one.owner, all_see=False
    )
    checks = settings.read_table(CHECKS, CheckTable).checks
    workflows = WorkflowRegistry(
        store,
        registry,
        Workspaces(runtimes),
        check_loop=loops.prepare,
        check_runtime=runtimes.check,
        functions=Functions(checks),
    )
    workflows.keeper.on_change = lambda one: feed.changed(
        "workflow", one.name, one.owner, all_see=False
    )
    wanted = read_table(settings.tables)
    metrics = None
    with suppress(MissingExtraError):  # nobody has to count
        metrics = Metrics(
            {
                "turns_running": ("Turns that run.", lambda: observer.running),
                "viewers": ("Streams that are open.", lambda: feed.viewer_count),
                "watched_sessions": ("Sessions that are watched.", lambda: len(feed.watched)),
                "live_actors": ("Sessions in memory.", lambda: registry.live_actors),
                "routines": ("Routines.", lambda: len(routines.keeper)),
                "workflows": ("Workflows that are not over.", lambda: len(workflows.keeper)),
                "appends_refused": (
                    "Whether the last append failed: 1, the store takes none.",
                    lambda: disk.refusal is not None,
                ),
            },
            {
                "stream_writes": ("Writes to viewers.", lambda: feed.writes),
                "stream_bytes": ("Bytes of writes to viewers.", lambda: feed.written_bytes),
                "viewers_cut": ("Viewers cut off, as they did not read.", lambda: feed.cuts),
            },
        )
        listeners.append(metrics)
        hearing.append(metrics)
        if (observe_commits := getattr(store, "observe_commits", None)) is not None:
            observe_commits(metrics.committed)
    with suppress(MissingExtraError):
        tracing = Tracing(loops.default)
        listeners.append(tracing)
        hearing.append(tracing)
        entering.append(tracing.enter)
    keeping = retaining(registry, settings.retain_days, dry_run=settings.retain_dry_run)
    try:
        await routines.keeper.load()
        await apply_table(routines, wanted)
        await workflows.keeper.load()
        async with (
            keeping,
            expiry.running(registry),
            routines.keeper.keeping(),
            workflows.keeper.keeping(),
        ):
            yield Service(
                settings,
                store,
                loops,
                feed,
                registry,
                routines,
                workflows,
                runtimes,
                observer,
                metrics,
                disk,
            )
    finally:
        feed.end_streams()
        await registry.close()
        await runtimes.close()
        await feed.close()
