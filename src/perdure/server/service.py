"""What one server is made of: its store, its feed and its sessions, opened and closed in order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path

from perdure.errors import (
    StoreError,
    UnrecoverableError,
)
from perdure.runtimes.late import LateCall
from perdure.server.config import Settings
from perdure.server.feed.feed import Feed
from perdure.server.folder import without_folders
from perdure.server.hook.hooks import Hooks
from perdure.server.hook.transcript import Transcripts
from perdure.server.journal import JournalStore
from perdure.server.plugin_tool import PluginTools
from perdure.server.problem import Refused
from perdure.server.routine.registry import RoutineRegistry
from perdure.server.routine.table import apply_table, read_table
from perdure.server.runtime.runtimes import Runtimes, make_runtimes
from perdure.server.session.expiry import Expiry
from perdure.server.session.port import Loops, takes_commands
from perdure.server.session.registry import Registry
from perdure.server.session.retention import retaining
from perdure.server.surroundings import ServerSurroundings
from perdure.server.telemetry.metrics import Metrics
from perdure.server.telemetry.observer import Observer
from perdure.server.telemetry.telemetry import Telemetry
from perdure.server.workflow.check import TABLE as CHECKS
from perdure.server.workflow.check import CheckTable, Functions
from perdure.server.workflow.registry import WorkflowRegistry
from perdure.server.workflow.workspace import Workspaces

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
    expiry: Expiry
    telemetry: Telemetry

    @property
    def observer(self) -> Observer:
        """Knows of the turns that run."""
        return self.telemetry.observer

    @property
    def metrics(self) -> Metrics | None:
        """What is counted; None where the extra `metrics` is missing."""
        return self.telemetry.metrics

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
                if self.telemetry.disk.refusal is not None:
                    await self.telemetry.disk.try_again(self.store)
        except (StoreError, TimeoutError) as error:
            why = without_folders(str(error)) or f"it does not answer within {READY_S} seconds"
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


@asynccontextmanager
async def open_service(
    settings: Settings,
    store: JournalStore,
    loops: Loops,
    *,
    hooks: Hooks | None = None,
    plugin_tools: PluginTools | None = None,
) -> AsyncIterator[Service]:
    """The service inside the block; on leaving, streams and turns end. The store stays open.

    What is closed is closed in the order streams, turns, runtimes, feed, each whatever became of
    the one before.

    Raises:
        ConfigurationError: a table of the settings is not valid; nothing was started.
        StoreError: the store cannot be read.

    """
    service = _make_service(settings, store, loops, hooks, plugin_tools)
    routines, workflows = service.routines, service.workflows
    wanted = read_table(settings.tables)
    async with AsyncExitStack() as opened:
        opened.enter_context(service.telemetry.counting_commits(store))
        opened.push_async_callback(service.feed.close)
        opened.push_async_callback(service.runtimes.close)
        opened.push_async_callback(service.registry.close)
        if hooks is not None:
            opened.push_async_callback(hooks.close)
        opened.callback(service.feed.end_streams)
        await routines.keeper.load()
        await apply_table(routines, wanted)
        await workflows.keeper.load()
        days, dry_run = settings.retain_days, settings.retain_dry_run
        await opened.enter_async_context(retaining(service.registry, days, dry_run=dry_run))
        await opened.enter_async_context(service.expiry.running(service.registry))
        await opened.enter_async_context(routines.keeper.keeping())
        await opened.enter_async_context(workflows.keeper.keeping())
        yield service


def _transcripts(
    settings: Settings, store: JournalStore, hooks: Hooks | None
) -> Transcripts | None:
    if hooks is None or not hooks.read_files:
        return None
    return Transcripts(store, Path(settings.data) / "transcripts", hooks.folder)


def _make_service(
    settings: Settings,
    store: JournalStore,
    loops: Loops,
    hooks: Hooks | None,
    plugin_tools: PluginTools | None,
) -> Service:
    """The parts, each told of those that it needs; nothing runs, and nothing was read."""
    feed = Feed(store, heartbeat_s=settings.heartbeat_s, backlog_bytes=settings.backlog_bytes)
    # The numbers are of parts that are made below, and read when somebody asks for them.
    telemetry = Telemetry(
        feed,
        loops,
        gauges={
            "viewers": ("Streams that are open.", lambda: feed.viewer_count),
            "watched_sessions": ("Sessions that are watched.", lambda: len(feed.watched)),
            "live_actors": ("Sessions in memory.", lambda: registry.live_actors),
            "routines": ("Routines.", lambda: len(routines.keeper)),
            "workflows": ("Workflows that are not over.", lambda: len(workflows.keeper)),
        },
        counters={
            "stream_writes": ("Writes to viewers.", lambda: feed.writes),
            "stream_bytes": ("Bytes of writes to viewers.", lambda: feed.written_bytes),
            "viewers_cut": ("Viewers cut off, as they did not read.", lambda: feed.cuts),
        },
    )
    expiry = Expiry(telemetry.observer)
    runtimes = make_runtimes(settings)
    registry = Registry(
        telemetry.observe_store(store),
        telemetry.observe_loops(loops),
        expiry,
        limits=settings.limits,
        surroundings=ServerSurroundings(
            hooks,
            approve=settings.approve,
            plugin_tools=plugin_tools,
            runtimes=runtimes,
            transcripts=_transcripts(settings, store, hooks),
        ),
    )
    routines = RoutineRegistry(store, registry, loops.prepare)
    workflows = WorkflowRegistry(
        store,
        registry,
        Workspaces(runtimes),
        check_loop=loops.prepare,
        takes_commands=partial(takes_commands, loops),
        check_runtime=runtimes.check,
        functions=Functions(settings.read_table(CHECKS, CheckTable).checks),
    )

    async def keep_late(late: LateCall) -> None:
        await registry.note_late(late.origin.session_id, late.origin.key, late.result)

    runtimes.on_late = keep_late
    runtimes.on_change = lambda name, owner, all_see: feed.changed(
        "runtime", name, owner, all_see=all_see
    )
    routines.keeper.on_change = lambda one: feed.changed(
        "routine", one.name, one.owner, all_see=False
    )
    workflows.keeper.on_change = lambda one: feed.changed(
        "workflow", one.name, one.owner, all_see=False
    )
    return Service(
        settings, store, loops, feed, registry, routines, workflows, runtimes, expiry, telemetry
    )
