"""The durable agent: one session's transcript, and whatever loop runs on it.

The agent owns the transcript and nothing else. Every verb appends before it advances, in one step
that cancellation cannot split, so what the agent says is in the store. Opening a session that is
there and going on after a crash are the same replay.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Generator, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from inspect import iscoroutinefunction
from types import TracebackType
from typing import Any, Self

from perdure import clock
from perdure.around import Remembering
from perdure.codec import Draft, Entry, StoredEntry, seal
from perdure.compaction import (
    DEFAULT_PROMPT,
    CompactionPlan,
    fill_of,
    plan_compaction,
    plan_relief,
)
from perdure.completion import complete
from perdure.context import RunContext
from perdure.entry import Compaction, Ephemeral, Message, text
from perdure.errors import (
    ConfigurationError,
    LoopError,
    NoLoopError,
    SessionBusyError,
    SessionClosedError,
)
from perdure.events import (
    AgentEnd,
    AgentStart,
    LifecycleEvent,
    Publish,
    Publisher,
    SessionBranched,
    SessionCompacted,
    SessionForked,
    SessionInit,
)
from perdure.fact import Fact
from perdure.handle import Run
from perdure.loop import LoopFactory, as_factory
from perdure.run import Driver, Emit, summarise
from perdure.store import Receipt, Session, Store
from perdure.transcript import Transcript, load_or_create
from perdure.view import model_view, transcript_view

_log = logging.getLogger("perdure")

_inside: ContextVar[frozenset[Run]] = ContextVar("perdure_runs", default=frozenset())
"""The runs that the code which is running is a part of: it cannot wait for their end."""


async def open_agent(
    session_id: str | None = None,
    loop: LoopFactory | None = None,
    *,
    store: Store | None = None,
    publisher: Publisher | Publish | None = None,
    compact_at: float | None = None,
) -> DurableAgent:
    """Opens a session: one that exists is resumed where it stands, an unknown id is created.

    `session_id=None` makes an id; `store=None` makes a memory store; with `loop=None` the agent
    records, branches, forks and reads, and cannot run. Both ways publish `session_init`.
    With `compact_at` (0.8, say) a run that begins with a new message compacts first where the last
    answer took up more than that share of its model's context window, if its loop says so.
    O(the session's entries).

    Raises:
        InvalidSessionIdError: not a session id; nothing was attempted.
        ConfigurationError: a loop where a loop factory belongs, a URL where a store does, or a
            publisher that would have to be awaited.
        JournalCorruptError: the session's log is damaged.
        StoreUnavailableError: the store cannot be reached.
    """
    if loop is not None:
        loop = as_factory(loop, repr(loop))
    if isinstance(store, str):
        raise ConfigurationError(f"{store!r} is a URL: give store=perdure.open_store({store!r})")
    if iscoroutinefunction(getattr(publisher, "publish", publisher)):
        raise ConfigurationError("a publisher is called and not awaited: give a plain function")
    if store is None:
        from perdure.stores.memory import MemoryStore

        store = MemoryStore()
    session_id = clock.new_id() if session_id is None else session_id
    session, entries = await load_or_create(store, session_id)
    agent = DurableAgent(
        store, session_id, entries, session=session, loop=loop, publisher=publisher
    )
    agent._compact_at = compact_at
    agent._publish(SessionInit(session_id, agent.leaf_id))
    return agent


class DurableAgent:
    """A session, open: made by `perdure.open`. Its verbs may be called from many tasks at once.

    `session` is the identity of what is open, None where the store has no `load_session` and the
    session was there; `leaf_id` the tree entry that the next one grows from, None in an empty
    session.
    """

    def __init__(
        self,
        store: Store,
        session_id: str,
        entries: Sequence[StoredEntry],
        *,
        session: Session | None,
        loop: LoopFactory | None,
        publisher: Publisher | Publish | None,
    ) -> None:
        self.session = session
        self._session_id = session_id
        self._store = store
        self._loop = loop
        self._publisher = publisher
        incarnation = None if session is None else session.incarnation
        self._transcript = Transcript(store, session_id, entries, incarnation=incarnation)
        self._run: Run | None = None
        self._compact_at: float | None = None
        self._moves: list[str | None] = []
        self._closed = False

    @property
    def session_id(self) -> str:
        """The session's id."""
        return self._session_id

    @property
    def leaf_id(self) -> str | None:
        """The tree entry that the next one will grow from; None in an empty session."""
        return self._transcript.leaf_id

    def run(self, *entries: str | Draft) -> Run:
        """A run of the loop on these messages; nothing happens until it is awaited or iterated.

        The loop is built first, then the input is stored (after repairs of what an earlier run
        left open), then the loop runs. Without an entry it goes on from the leaf.

        Raises:
            NoLoopError, SessionClosedError: at once; nothing stored.
            SessionBusyError: when it starts, if another run is active; nothing stored.
        """
        self._check_open()
        if self._loop is None:
            raise NoLoopError(self.session_id)
        factory = self._loop

        async def start(emit: Emit) -> Sequence[Message]:
            return await self._run_loop(handle, factory, entries, emit)

        handle = Run(start)
        return handle

    async def _run_loop(
        self, handle: Run, factory: LoopFactory, entries: Sequence[str | Draft], emit: Emit
    ) -> Sequence[Message]:
        await self._ready()
        with self._running(handle):
            loop = factory()
            given = [text(entry) if isinstance(entry, str) else entry for entry in entries]
            drafts = [entry for entry in given if not isinstance(entry, Ephemeral)]
            if drafts:
                await self._relieve()
            receipt = await self._transcript.append(drafts, repair="always")
            path, length = self._transcript.path, len(self._transcript.path)

            async def messages() -> Sequence[Message]:
                return model_view(_with_ephemerals(path[:length], given))

            context = RunContext(
                self.session_id,
                input=_messages_of(given, receipt),
                messages=messages,
                around=Remembering(self._transcript.entries),
            )
            await emit(AgentStart(context.turn_id, receipt, self.leaf_id))
            driver = Driver(context, self._transcript, emit)
            self._transcript.in_flight = lambda: driver.in_flight
            added = await driver.run(loop)
            await emit(AgentEnd(added, self.leaf_id))
            return added

    @contextmanager
    def _running(self, handle: Run) -> Iterator[None]:
        """Makes `handle` the one active run; a run that is ending has to be waited for first."""
        self._check_open()
        self._check_idle()
        self._run = handle
        _inside.set(_inside.get() | {handle})
        try:
            yield
        finally:
            self._rest(handle)

    def _rest(self, handle: Run) -> None:
        """The run is over; what waited for that happens now."""
        if self._run is not handle:
            return
        self._run = None
        self._transcript.in_flight = frozenset
        moves, self._moves = self._moves, []
        for entry_id in moves:
            self._branch(entry_id)

    async def append(self, *entries: str | Draft) -> Receipt:
        """Stores entries at the leaf, in one batch, without running; a string is a user's message.

        With a message that is no tool's, the repair of open calls is stored first, in that batch.

        Raises:
            AppendRejectedError: an entry is not valid, ephemeral, or appended already; not stored.
            AppendUncertainError: may be stored; the next verb finds out. To retry, append the
                same entries again: they are stored once (a string would be a new message).
            SessionClosedError, SessionDeletedError, StoreUnavailableError: not stored.
        """
        if self._closed or self._run is not None or not self._transcript.is_settled:
            await self._ready()
        drafts = [text(entry) if isinstance(entry, str) else entry for entry in entries]
        return await self._transcript.append(drafts, repair="before messages")

    async def repair(self) -> Receipt | None:
        """Stores an interrupted result for each call on the path without one; None for none.

        Calls of a run in progress are not orphans.
        """
        await self._ready()
        receipt = await self._transcript.append((), repair="always")
        return receipt if receipt.entries else None

    def branch(self, entry_id: str | None) -> Awaitable[None]:
        """Moves the leaf to `entry_id`, in memory; None is before the first entry.

        It takes effect at once; where a run was left just before, as soon as that has ended, and
        awaiting this waits for it. A reopened session resumes at its last appended tree entry.

        Raises:
            EntryNotFoundError: no such tree entry; the leaf stays.
            SessionBusyError: a run is active; the leaf stays.
        """
        self._check_open()
        if self._run is not None and self._run._left:
            self._transcript.tree.path(entry_id)
            self._moves.append(entry_id)
            return _Settled(self._run)
        self._check_idle()
        self._branch(entry_id)
        return _Settled(None)

    def _branch(self, entry_id: str | None) -> None:
        before = self.leaf_id
        self._transcript.move(entry_id)
        self._publish(SessionBranched(before, entry_id))

    async def fork(self, new_id: str, *, entry_id: str | None = None) -> DurableAgent:
        """A child session with the path to the leaf, or to `entry_id`: same bytes, same ids.

        One atomic step: a crash leaves no half-made child. The child is valid at once, also while
        a call is in flight here. It has this agent's store, loop and publisher.

        Raises:
            SessionExistsError: `new_id` is taken; nothing stored.
            InvalidSessionIdError, EntryNotFoundError: nothing stored.
        """
        await self._ready()
        transcript = self._transcript
        path = transcript.path if entry_id is None else transcript.tree.path(entry_id)
        return await complete(self._fork(new_id, list(path)))

    async def _fork(self, new_id: str, path: list[Entry]) -> DurableAgent:
        session = await self._store.create_session(new_id, parent_id=self.session_id, entries=path)
        stored = [StoredEntry(seq, entry) for seq, entry in enumerate(path, 1)]
        child = DurableAgent(
            self._store,
            new_id,
            stored,
            session=session,
            loop=self._loop,
            publisher=self._publisher,
        )
        self._publish(SessionForked(new_id, self.session_id))
        child._compact_at = self._compact_at
        child._publish(SessionInit(new_id, child.leaf_id))
        return child

    async def compact(
        self, *, keep_turns: int = 4, prompt: str | None = None, summary: str | None = None
    ) -> Receipt | None:
        """Appends a summary of all but the last `keep_turns` turns; None if there is no more.

        The summary is given, or comes from a throw-away run of the loop. Nothing is removed:
        branch to an entry before it to get the whole conversation back.

        Raises:
            SessionBusyError: a run is active, or the leaf was moved meanwhile; nothing stored.
            NoLoopError, LoopError: no summary and no loop, or the loop gave none; nothing stored.
            RunEndedError: the agent was closed meanwhile.
        """
        self._check_open()
        receipts: list[Receipt | None] = []

        async def start(emit: Emit) -> Sequence[Message]:
            receipts.append(await self._compact(handle, keep_turns, prompt, summary))
            return ()

        handle = Run(start)
        await handle
        return receipts[0]

    async def _compact(
        self, handle: Run, keep_turns: int, prompt: str | None, summary: str | None
    ) -> Receipt | None:
        await self._ready()
        with self._running(handle):
            path, length = self._transcript.path, len(self._transcript.path)
            plan = plan_compaction(path, keep_turns)
            if plan is None:
                return None
            if summary is None:
                summary = await self._summary(plan.messages, text(prompt or DEFAULT_PROMPT))
            return await complete(self._store_summary(handle, plan, summary, path, length))

    async def _relieve(self) -> None:
        """Compacts, before the turn, where the context is nearly full; a failure is no obstacle."""
        if self._compact_at is None or self._transcript.has_open_calls:
            return
        path, length = self._transcript.path, len(self._transcript.path)
        fill = fill_of(path)
        if fill is None or fill.share < self._compact_at:
            return
        plan = plan_relief(path, fill)
        if plan is None:
            return
        try:
            summary = await self._summary(plan.messages, text(DEFAULT_PROMPT))
        except LoopError as error:
            _log.warning(
                "session %r is nearly full, and has no summary: %s", self.session_id, error
            )
            return
        await complete(self._store_summary(None, plan, summary, path, length))

    async def _store_summary(
        self,
        handle: Run | None,
        plan: CompactionPlan,
        summary: str,
        path: list[Entry],
        length: int,
    ) -> Receipt:
        """Appends the summary of the first `length` entries of the path; keeps what came since.

        It ends the run `handle`, if one is given.
        """

        def drafts() -> Sequence[Draft]:
            if self._transcript.path is not path:
                raise SessionBusyError(self.session_id)
            first_kept_id = plan.first_kept_id
            if first_kept_id is None and len(path) > length:
                first_kept_id = path[length].id
            return [Compaction(summary=summary, first_kept_id=first_kept_id)]

        receipt = await self._transcript.append(drafts)
        if handle is not None:
            self._rest(handle)
        entry = receipt.entries[-1].entry
        self._publish(SessionCompacted(entry, entry.id))
        return receipt

    async def _summary(self, messages: Sequence[Message], prompt: Message) -> str:
        if self._loop is None:
            raise NoLoopError(self.session_id)

        async def view() -> Sequence[Message]:
            return [*messages, prompt]

        context = RunContext(self.session_id, input=(prompt,), messages=view, purpose="summary")
        return await summarise(self._loop(), context)

    def entries(self) -> Sequence[StoredEntry]:
        """The whole log as this instance knows it: what it found on opening and what it stored."""
        self._check_open()
        return tuple(self._transcript.entries)

    def transcript(self) -> list[Entry]:
        """The path to the leaf as a person reads it."""
        self._check_open()
        return transcript_view(self._transcript.path)

    def messages(self) -> list[Message]:
        """The path to the leaf as a model is given it, repaired; writes nothing."""
        self._check_open()
        return model_view(self._transcript.path)

    async def close(self) -> None:
        """Ends a run in progress cleanly; afterwards every verb raises SessionClosedError.

        Idempotent. The store stays open: it is whoever's made it.
        """
        self._closed = True
        run = self._run
        if run is not None:
            run._leave()
            if run in _inside.get():
                return
            await complete(run._settled())

    async def __aenter__(self) -> Self:
        self._check_open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise SessionClosedError(self.session_id)

    def _check_idle(self) -> None:
        if self._run is not None:
            raise SessionBusyError(self.session_id)

    async def _ready(self) -> None:
        """Returns when a run that was left has ended and every append's fate is known."""
        self._check_open()
        while (run := self._run) is not None and run._left and run not in _inside.get():
            await run._settled()
        await self._transcript.settled()
        self._check_open()

    def _publish(self, event: LifecycleEvent) -> None:
        publisher = self._publisher
        if publisher is None:
            return
        try:
            if isinstance(publisher, Publisher):
                publisher.publish(event)
            else:
                publisher(event)
        except Exception:  # the application's own code: what it raises harms nothing here
            _log.exception("the publisher raised on %s", event.type)


def _messages_of(given: Sequence[Draft], receipt: Receipt) -> list[Message]:
    """The input as messages, in order: the stored ones as they were stored."""
    views = (stored.view for stored in receipt.entries)
    stored = {view.id: view for view in views if isinstance(view, Message)}
    found = (
        entry.message
        if isinstance(entry, Ephemeral)
        else stored.get(entry.id)
        if isinstance(entry, Message | Entry)
        else None
        for entry in given
    )
    return [message for message in found if message is not None]


def _with_ephemerals(path: list[Entry], given: Sequence[Draft]) -> list[Entry]:
    """The path, which ends in the input, with each ephemeral message where it was given."""
    at = len(path)
    for entry in reversed(given):
        if isinstance(entry, Ephemeral):
            path.insert(at, seal(entry.message))
        elif not (isinstance(entry, Fact) or (isinstance(entry, Entry) and not entry.in_tree)):
            at = max(at - 1, 0)
    return path


class _Settled:
    """An awaitable: over at once, or when the run is."""

    def __init__(self, run: Run | None) -> None:
        self._run = run

    def __await__(self) -> Generator[Any, None, None]:
        if self._run is not None and self._run not in _inside.get():
            yield from self._run._settled().__await__()
