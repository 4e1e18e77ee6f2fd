"""The durable agent: one session's transcript, and whatever loop runs on it.

The agent owns the transcript and nothing else. Every verb appends before it advances, in one step
that cancellation cannot split, so what the agent says is in the store. Opening a session that is
there and going on after a crash are the same replay.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Literal, Self

from perdure import clock
from perdure.codec import Draft, Entry, StoredEntry, seal
from perdure.compaction import DEFAULT_PROMPT, plan_compaction
from perdure.entry import Compaction, Ephemeral, Message, text
from perdure.errors import (
    AppendRejectedError,
    AppendUncertainError,
    NoLoopError,
    SessionBusyError,
    SessionClosedError,
    SessionExistsError,
    SessionNotFoundError,
)
from perdure.events import (
    AgentEnd,
    AgentStart,
    LifecycleEvent,
    Publisher,
    PublishesEvents,
    SessionBranched,
    SessionCompacted,
    SessionForked,
    SessionInit,
)
from perdure.fact import LeafMoved
from perdure.handle import Run
from perdure.loop import LoopFactory
from perdure.run import Driver, Emit, RunContext, complete, summarise
from perdure.store import Receipt, Session, Store, receipt_of
from perdure.tree import Tree
from perdure.view import OpenCalls, model_view, repairs, transcript_view

_log = logging.getLogger("perdure")

Repair = Literal["never", "before messages", "always"]


async def open_agent(
    session_id: str | None = None,
    loop: LoopFactory | None = None,
    *,
    store: Store | None = None,
    publisher: Publisher | None = None,
) -> DurableAgent:
    """Opens a session: one that exists is resumed where it stands, an unknown id is created.

    `session_id=None` makes an id; `store=None` makes a memory store; with `loop=None` the agent
    records, branches, forks and reads, and cannot run. Both ways publish `session_init`.
    O(the session's entries).

    Raises:
        InvalidSessionIdError: not a session id; nothing was attempted.
        JournalCorruptError: the session's log is damaged.
        StoreUnavailableError: the store cannot be reached.
    """
    if store is None:
        from perdure.stores.memory import MemoryStore

        store = MemoryStore()
    session_id = clock.new_id() if session_id is None else session_id
    session = await _load_or_create(store, session_id)
    entries = await store.load_entries(session_id)
    agent = DurableAgent(store, session, entries, loop=loop, publisher=publisher)
    agent._publish(SessionInit(session_id, agent.leaf_id))
    return agent


async def _load_or_create(store: Store, session_id: str) -> Session:
    try:
        return await store.load_session(session_id)
    except SessionNotFoundError:
        pass
    try:
        return await store.create_session(session_id)
    except SessionExistsError:
        return await store.load_session(session_id)


class DurableAgent:
    """A session, open: made by `perdure.open`. Its verbs may be called from many tasks at once.

    `session` is the identity of what is open; `leaf_id` the tree entry that the next one grows
    from, None in an empty session.
    """

    def __init__(
        self,
        store: Store,
        session: Session,
        entries: Sequence[StoredEntry],
        *,
        loop: LoopFactory | None,
        publisher: Publisher | None,
    ) -> None:
        self.session = session
        self._store = store
        self._loop = loop
        self._publisher = publisher
        self._entries = list(entries)
        self._tree = Tree(entries, session_id=session.id)
        self._lock = asyncio.Lock()
        self._run: Run | None = None
        self._driver: Driver | None = None
        self._compacting = False
        self._closed = False
        self._doubtful: Sequence[Entry] = ()
        self._leaf_id = self._tree.leaf_id
        self._path = self._tree.path(self._leaf_id)
        self._open_calls = OpenCalls(self._path)

    @property
    def session_id(self) -> str:
        """The session's id."""
        return self.session.id

    @property
    def leaf_id(self) -> str | None:
        """The tree entry that the next one will grow from; None in an empty session."""
        return self._leaf_id

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
            receipt = await complete(self._append(drafts, repair="always"))
            path = list(self._path)
            context = RunContext(
                self.session_id,
                input=_messages_of(given, receipt),
                messages=lambda: _view_with_ephemerals(path, given),
            )
            driver = self._driver = Driver(context, _Transcript(self), emit)
            await emit(AgentStart(context.turn_id, receipt, self.leaf_id))
            messages = await driver.run(loop)
            await emit(AgentEnd(messages, self.leaf_id))
            return messages

    @contextmanager
    def _running(self, handle: Run) -> Iterator[None]:
        """Makes `handle` the one active run; a run that is ending has to be waited for first."""
        self._check_open()
        self._check_idle()
        self._run = handle
        try:
            yield
        finally:
            self._run = self._driver = None

    async def append(self, *entries: str | Draft) -> Receipt:
        """Stores entries at the leaf, in one batch, without running; a string is a user's message.

        With a message that is no tool's, the repair of open calls is stored first, in that batch.

        Raises:
            AppendRejectedError: an entry is not valid, ephemeral, or appended already; not stored.
            AppendUncertainError: may be stored; the next verb finds out.
            SessionClosedError, SessionDeletedError, StoreUnavailableError: not stored.
        """
        await self._ready()
        drafts = [text(entry) if isinstance(entry, str) else entry for entry in entries]
        return await complete(self._append(drafts, repair="before messages"))

    async def repair(self) -> Receipt | None:
        """Stores an interrupted result for each call on the path without one; None for none.

        Calls of a run in progress are not orphans.
        """
        await self._ready()
        receipt = await complete(self._append((), repair="always"))
        return receipt if receipt.entries else None

    def branch(self, entry_id: str | None) -> Awaitable[None]:
        """Moves the leaf to `entry_id`, in memory; None is before the first entry.

        It takes effect at once. Await it where a run was left just before: the leaf moves when
        that run has ended. A reopened session resumes at its last appended tree entry.

        Raises:
            EntryNotFoundError: no such tree entry; the leaf stays.
            SessionBusyError: a run is active; the leaf stays.
        """
        self._check_open()
        if self._run is not None and self._run._left:
            return self._branch_when_ended(entry_id)
        self._branch(entry_id)
        return _done()

    async def _branch_when_ended(self, entry_id: str | None) -> None:
        await self._ready()
        self._branch(entry_id)

    def _branch(self, entry_id: str | None) -> None:
        self._check_idle()
        before = self._leaf_id
        self._move(entry_id)
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
        path = self._path if entry_id is None else self._tree.path(entry_id)
        return await complete(self._fork(new_id, list(path)))

    async def _fork(self, new_id: str, path: list[Entry]) -> DurableAgent:
        session = await self._store.create_session(new_id, parent_id=self.session_id, entries=path)
        stored = [StoredEntry(seq, entry) for seq, entry in enumerate(path, 1)]
        child = DurableAgent(
            self._store, session, stored, loop=self._loop, publisher=self._publisher
        )
        self._publish(SessionForked(new_id, self.session_id))
        child._publish(SessionInit(new_id, child.leaf_id))
        return child

    async def compact(
        self, *, keep_turns: int = 4, prompt: str | None = None, summary: str | None = None
    ) -> Receipt | None:
        """Appends a summary of all but the last `keep_turns` turns; None if there is no more.

        The summary is given, or comes from a throw-away run of the loop. Nothing is removed:
        branch to an entry before it to get the whole conversation back.

        Raises:
            SessionBusyError: a run is active. NoLoopError: no summary and no loop.
            LoopError: the loop gave no summary. Nothing is stored in any of them.
        """
        await self._ready()
        self._check_idle()
        self._compacting = True
        try:
            plan = plan_compaction(self._path, keep_turns)
            if plan is None:
                return None
            if summary is None:
                summary = await self._summary(plan.messages, text(prompt or DEFAULT_PROMPT))
            receipt = await complete(
                self._append([Compaction(summary=summary, first_kept_id=plan.first_kept_id)])
            )
        finally:
            self._compacting = False
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
        return tuple(self._entries)

    def transcript(self) -> list[Entry]:
        """The path to the leaf as a person reads it."""
        self._check_open()
        return transcript_view(self._path)

    def messages(self) -> list[Message]:
        """The path to the leaf as a model is given it, repaired; writes nothing."""
        self._check_open()
        return model_view(self._path)

    async def close(self) -> None:
        """Ends a run in progress cleanly; afterwards every verb raises SessionClosedError.

        Idempotent. The store stays open: it is whoever's made it.
        """
        self._closed = True
        if self._run is not None:
            self._run._leave()
            await complete(self._run._settled())

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
        if self._compacting or self._run is not None:
            raise SessionBusyError(self.session_id)

    async def _ready(self) -> None:
        """Returns when a run that was left has ended and every append's fate is known."""
        self._check_open()
        while self._run is not None and self._run._left:
            await self._run._settled()
        await self._settle_doubt()
        self._check_open()

    def _repairs(self, drafts: Sequence[Draft], when: Repair) -> list[Message]:
        spoken = any(isinstance(draft, Message) and draft.role != "tool" for draft in drafts)
        if when == "never" or (when == "before messages" and not spoken):
            return []
        answered = {
            result.call_id
            for draft in drafts
            if isinstance(draft, Message)
            for result in draft.tool_results
        }
        in_flight = self._driver.in_flight if self._driver is not None else frozenset[str]()
        return repairs(self._open_calls, in_flight | answered)

    async def _append(self, drafts: Sequence[Draft], *, repair: Repair = "never") -> Receipt:
        async with self._lock:
            drafts = [*self._repairs(drafts, repair), *drafts]
            if not drafts:
                return receipt_of((), self._entries[-1].seq if self._entries else 0)
            batch = self._place(drafts)
            try:
                receipt = await self._append_batch(batch)
            except AppendUncertainError:
                self._doubtful = batch
                raise
            self._take(receipt)
            return receipt

    def _place(self, drafts: Sequence[Draft]) -> list[Entry]:
        """Seals the drafts as a chain from the leaf."""
        batch: list[Entry] = []
        parent_id = self._leaf_id
        for draft in drafts:
            entry = seal(draft, parent_id)
            if entry.in_tree:
                if entry.parent_id != parent_id:
                    raise AppendRejectedError(
                        f"entry {entry.id!r} has its place under {entry.parent_id!r} already and "
                        f"cannot be appended at the leaf {parent_id!r}; make a new entry"
                    )
                parent_id = entry.id
            batch.append(entry)
        return batch

    async def _append_batch(self, batch: Sequence[Entry]) -> Receipt:
        return await self._store.append_entries(
            self.session_id, batch, incarnation=self.session.incarnation
        )

    def _take(self, receipt: Receipt) -> None:
        known = self._entries[-1].seq if self._entries else 0
        for stored in receipt.entries:
            if stored.seq <= known:
                continue
            self._entries.append(stored)
            self._tree.add(stored)
            if stored.entry.in_tree:
                self._path.append(stored.entry)
                self._open_calls.add(stored.entry)
                self._leaf_id = stored.entry.id
            elif isinstance(view := stored.view, LeafMoved):
                self._move(view.leaf_id)

    def _move(self, leaf_id: str | None) -> None:
        self._path = self._tree.path(leaf_id)
        self._leaf_id = leaf_id
        self._open_calls = OpenCalls(self._path)

    async def _settle_doubt(self) -> None:
        """After an uncertain append: looks what the store has, and takes it or forgets it."""
        if not self._doubtful:
            return
        async with self._lock:
            batch, known = self._doubtful, self._entries[-1].seq if self._entries else 0
            stored = await self._store.load_entries(self.session_id, after=known)
            ids = {entry.id for entry in batch}
            found = [entry for entry in stored if entry.id in ids]
            self._doubtful = ()
            self._take(receipt_of(found))

    def _publish(self, event: LifecycleEvent) -> None:
        publisher = self._publisher
        if publisher is None:
            return
        try:
            if isinstance(publisher, PublishesEvents):
                publisher.publish(event)
            else:
                publisher(event)
        except Exception:  # the application's own code: what it raises harms nothing here
            _log.exception("the publisher raised on %s", event.type)


class _Transcript:
    """What a run sees of its agent."""

    def __init__(self, agent: DurableAgent) -> None:
        self._agent = agent

    @property
    def leaf_id(self) -> str | None:
        return self._agent.leaf_id

    async def append(self, drafts: Sequence[Draft]) -> Receipt:
        return await self._agent._append(drafts)


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


async def _view_with_ephemerals(path: Sequence[Entry], given: Sequence[Draft]) -> list[Message]:
    """The model view, with each ephemeral message where it stood in the input."""
    view = model_view(path)
    following = 0
    for entry in reversed(given):
        if isinstance(entry, Ephemeral):
            view.insert(len(view) - following, entry.message)
        elif isinstance(entry, Message) and entry.role != "tool":
            following += 1
    return view


class _Done:
    """An awaitable that is over already."""

    def __await__(self) -> Iterator[None]:
        return iter(())


def _done() -> Awaitable[None]:
    return _Done()  # type: ignore[return-value]  # an iterator serves as the awaitable's generator
