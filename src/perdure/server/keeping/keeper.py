"""What is kept in memory is attended to when something is due or has happened.

Everything that it does follows from its journal and its sessions', so a keeper that starts does
what one that never stopped would do next. Of several nodes each may try; the journals decide.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from enum import IntEnum
from typing import Any, Generic, TypeVar

from perdure import clock
from perdure.errors import PerdureError, SessionNotFoundError, StoreError, UnrecoverableError
from perdure.server.folder import without_folders
from perdure.server.journal import JournalStore
from perdure.server.keeping.ledger import Ledger, decide_anew
from perdure.server.keeping.port import Sessions
from perdure.server.keeping.timer import Timer
from perdure.store import Kind, Look, Session

PAGE = 200
AT_ONCE = 32
"""How many are attended to at the same time."""

MOST_RETRY_S = 300.0
FIND_AGAIN_S = 5.0
"""After how long one is looked for again that a store could not be asked for."""

_REFUSALS = (StoreError, UnrecoverableError)

K = TypeVar("K", bound=Ledger[Any])


class _Call(IntEnum):
    """What one is called for: to see whether others wrote to it, to look for ends, for all."""

    NEWS = 0
    ENDS = 1
    ALL = 2


class Keeper(ABC, Generic[K]):
    """Those in memory. Inside `keeping` what is due is started, and what ends is seen."""

    kind: Kind

    def __init__(self, store: JournalStore, sessions: Sessions) -> None:
        self.journals = store.of_kind(self.kind)
        self.timer = Timer(lambda name: self.call(name, thorough=True))
        self._log = logging.getLogger(f"perdure.{self.kind}")
        self._store = store
        self._sessions = sessions
        self._kept: dict[str, K] = {}
        self._watched: dict[str, set[str]] = {}
        self._watching: dict[str, frozenset[str]] = {}
        self._wanted: dict[str, _Call] = {}
        self._stale: set[str] = set()
        self._attending: dict[str, asyncio.Task[None]] = {}
        self._room = asyncio.Semaphore(AT_ONCE)
        self._is_keeping = False
        self._unsubscribe: Callable[[], None] | None = None
        self._context = contextvars.copy_context()
        self._told: dict[str, tuple[str, int, str | None]] = {}
        self.lost: dict[str, tuple[Session, str]] = {}
        """Those whose journal cannot be read, and why."""
        self.on_change: Callable[[K], object] | None = None
        """Hears of one that has changed, was added, or is gone."""

    @abstractmethod
    async def read(self, look: Look) -> K | None:
        """The one of this look; None where it is not to be kept.

        Raises:
            UnrecoverableError: its journal is damaged, or does not fold.
            PerdureError: `SessionNotFoundError`, or the reading's own: it is gone.
            StoreError: it cannot be read.

        """

    @abstractmethod
    async def advance(self, one: K, now: datetime, *, thorough: bool) -> None:
        """Does everything of this one that can be done now; the caller holds its lock.

        Unless it is `thorough`, of a turn that runs only its stored end is looked for. Where others
        are faster it is called again.
        """

    @abstractmethod
    def sessions_of(self, one: K) -> Iterable[str]:
        """The sessions whose growth may mean something to it."""

    @abstractmethod
    def wake_at(self, one: K) -> datetime | None:
        """When something of it is due."""

    def is_open(self, one: K) -> bool:
        """Whether something was left open that a start goes on with."""
        return any(True for _ in self.sessions_of(one))

    @asynccontextmanager
    async def keeping(self) -> AsyncIterator[None]:
        """Keeps them inside the block: what was left open goes on, what is due starts."""
        self._hear_of_journals()
        unsubscribe = self._store.subscribe(self._session_grew)
        self._is_keeping = True
        for name in tuple(self._stale):
            self._call(name, _Call.NEWS)
        for one in self.kept():
            self.settle(one)
            if self.is_open(one):
                self.call(one.name, thorough=True)
        keeping_time = asyncio.create_task(self.timer.run())
        try:
            yield
        finally:
            self._is_keeping = False
            unsubscribe()
            if self._unsubscribe is not None:
                self._unsubscribe()
                self._unsubscribe = None
            tasks = [keeping_time, *self._attending.values()]
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def load(self) -> None:
        """Reads which there are, by their summaries; O(those that were ever made).

        What others write from here on is noticed, and read when they are kept.

        Raises:
            StoreError: the store cannot be read.

        """
        self._hear_of_journals()
        after: str | None = None
        while True:
            page = await self.journals.list_sessions(limit=PAGE, after=after)
            for look in page.sessions:
                await self._load_one(look)
            after = page.next
            if after is None:
                return
            await asyncio.sleep(0)  # a page is enough at a time for an event loop that serves

    def _hear_of_journals(self) -> None:
        if self._unsubscribe is None:
            self._unsubscribe = self.journals.subscribe(self._journal_grew)

    async def _load_one(self, look: Look) -> None:
        session = look.session
        if self.has(session):
            return
        try:
            if look.damage is not None:
                raise UnrecoverableError(look.damage)
            one = await self.read(look)
        except UnrecoverableError as error:
            self._log.error("%s %r is unrecoverable: %s", self.kind, session.id, error)
            self.lost[session.id] = (session, without_folders(str(error)))
        except StoreError:
            raise
        except PerdureError:
            self.forget(session.id)
        else:
            self.lost.pop(session.id, None)
            if one is not None:
                kept = self.add(one)
                if self.is_open(kept):
                    self.call(kept.name, thorough=True)

    async def until_rest(self) -> None:
        """Returns when none is being attended to."""
        while self._attending:
            await asyncio.wait(list(self._attending.values()))

    def kept(self) -> Sequence[K]:
        """All that are kept."""
        return tuple(self._kept.values())

    def find_kept(self, name: str) -> K | None:
        """The one of this id, if it is kept."""
        return self._kept.get(name)

    def has(self, session: Session) -> bool:
        """Whether this very one is kept: there is never a second object of one."""
        known = self._kept.get(session.id)
        return known is not None and known.incarnation == session.incarnation

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, one: K) -> K:
        """Keeps it, in the place of another one of the same id; the one that is kept."""
        if self.has(one.session):
            return self._kept[one.name]
        self.forget(one.name)
        self._kept[one.name] = one
        self.settle(one)
        return one

    def forget(self, name: str) -> None:
        """Keeps it no more: it is gone."""
        one = self._kept.get(name)
        self.lost.pop(name, None)
        self.drop(name)
        if one is not None:
            one.is_gone = True
            if self.on_change is not None:
                self.on_change(one)

    def drop(self, name: str) -> None:
        """Keeps it no more."""
        self._kept.pop(name, None)
        self._told.pop(name, None)
        self.timer.set(name, None)
        self._watch(name, frozenset())

    def call(self, name: str, *, thorough: bool) -> None:
        """Attends to it soon; once, however often it is called meanwhile."""
        self._call(name, _Call.ALL if thorough else _Call.ENDS)

    def _call(self, name: str, call: _Call) -> None:
        if not self._is_keeping:
            return
        self._wanted[name] = max(call, self._wanted.get(name, call))
        if name not in self._attending:
            # A hint comes from a store's thread: the clock is that of whoever made the keeper.
            context = self._context.copy()
            self._attending[name] = asyncio.create_task(self._attend(name), context=context)

    async def _attend(self, name: str) -> None:
        try:
            while name in self._wanted:
                call = self._wanted.pop(name)
                async with self._room:
                    await self._attend_once(name, call)
        finally:
            del self._attending[name]

    async def _attend_once(self, name: str, call: _Call) -> None:
        one = self._kept.get(name)
        try:
            if one is None:
                if name in self._stale:
                    await self.find(name)
                return
            kept = one  # for the closure
            await self.hold(one, lambda: self._step(kept, call))
        except PerdureError as error:
            if one is None or not one.is_gone:
                self._log.warning("%s %r, trying again: %s", self.kind, name, error)
            else:
                await self.find(name)  # one that was made anew may have its id now
        except Exception:  # outermost frame of one: its fault must not end the others
            self._log.exception("%s %r", self.kind, name)

    async def _step(self, one: K, call: _Call) -> None:
        if one.name in self._stale:
            known_seq = one.state.last_seq
            self._stale.discard(one.name)  # first: what comes from here on is another hint
            try:
                await one.catch_up()
            except PerdureError:
                self._stale.add(one.name)
                raise
            if call is _Call.NEWS and one.state.last_seq == known_seq:
                return
        one.retry_at = None
        await self.advance(one, clock.now(), thorough=call is _Call.ALL)

    async def hold(self, one: K, step: Callable[[], Awaitable[None]]) -> None:
        """Runs a step of it under its lock, and sees to what follows from it.

        Where others were faster the step is run again: what they did is known by then.

        Raises:
            PerdureError: the reading's `not_found`: it is gone. And what the step raises.

        """
        async with one.lock:
            if one.is_gone:
                raise one.reading.not_found(one.name)
            try:
                await decide_anew(step)
                one.failures = 0
            except Exception as error:
                if one.is_gone:
                    if self._kept.get(one.name) is one:
                        self.forget(one.name)
                    raise
                if isinstance(error, PerdureError) and not isinstance(error, _REFUSALS):
                    raise  # somebody asked for what cannot be
                one.failures += 1
                delay_s = min(2.0**one.failures, MOST_RETRY_S)
                one.retry_at = clock.now() + timedelta(seconds=delay_s)
                raise
            finally:
                if not one.is_gone and self._kept.get(one.name) is one:
                    self.settle(one)

    def settle(self, one: K) -> None:
        """Sets the timer, and watches the sessions of what has not ended."""
        when = None
        if not self._sessions.is_closing:
            when = one.retry_at if one.failures else self.wake_at(one)
        self.timer.set(one.name, when)
        self._watch(one.name, frozenset(self.sessions_of(one)))
        self._tell(one)

    def _tell(self, one: K) -> None:
        state = (one.incarnation, one.state.last_seq, one.damage)
        if self.on_change is not None and self._told.get(one.name) != state:
            self.on_change(one)
        self._told[one.name] = state

    def _watch(self, name: str, session_ids: frozenset[str]) -> None:
        before = self._watching.pop(name, frozenset())
        if session_ids:
            self._watching[name] = session_ids
        for session_id in before - session_ids:
            self._watched[session_id].discard(name)
            if not self._watched[session_id]:
                del self._watched[session_id]
        for session_id in session_ids - before:
            self._watched.setdefault(session_id, set()).add(name)
        if session_ids - before:
            self.call(name, thorough=False)  # what happened before it was watched gave no hint

    def _session_grew(self, session_id: str) -> None:
        for name in tuple(self._watched.get(session_id, ())):
            self.call(name, thorough=False)

    def _journal_grew(self, name: str) -> None:
        """Others may have written to it, or it is new here."""
        self._stale.add(name)
        self._call(name, _Call.NEWS)

    async def find(self, name: str) -> None:
        """Looks for one that others made, or deleted; again later, where the store refuses."""
        self._stale.discard(name)
        try:
            await self._load_one(await self.journals.look(name))
        except SessionNotFoundError:
            self.forget(name)
        except StoreError as error:
            self._log.warning("%s %r cannot be read, trying again: %s", self.kind, name, error)
            self._stale.add(name)
            self.timer.set(name, clock.now() + timedelta(seconds=FIND_AGAIN_S))
