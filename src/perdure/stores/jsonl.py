"""JSON lines: one file a session, readable by anything, appendable by several processes.

`docs/format.md` is the normative text of the format. Every call that blocks runs in a worker
thread. One append is in flight per session; what comes meanwhile joins the next write, so that one
sync serves them all, and is framed with it as one batch. It is a Store and no JournalStore: the
server needs indexes, and files of lines have none.
"""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from perdure.codec import Draft, Entry, StoredEntry, seal_all
from perdure.errors import (
    AppendRejectedError,
    JournalCorruptError,
    SessionNotFoundError,
    StoreUnavailableError,
)
from perdure.fact import Gap
from perdure.store import (
    ClosingStore,
    Receipt,
    Session,
    Verified,
    check_session_id,
    new_session,
    read_session,
)
from perdure.stores.disk import Disk
from perdure.stores.jsonl_file import Append, Folder, JournalFile
from perdure.stores.jsonl_name import SUFFIX, is_hashed, is_plain, name_of
from perdure.stores.jsonl_writers import Landing, Writers

_T = TypeVar("_T")
_Waiting = tuple[Append, asyncio.Future[Receipt]]

WRITERS = 16
THREADS = 16
REMEMBERED = 256
"""How many sessions that nobody is writing are remembered, each with an open file."""


@dataclass(slots=True)
class _Slot:
    """One session's file, and the appends that wait for the one in flight."""

    file: JournalFile
    waiting: list[_Waiting] = field(default_factory=list)
    is_flying: bool = False
    loop: asyncio.AbstractEventLoop | None = None

    def leave_closed_loop(self) -> None:
        """Nobody waits any more for what was in flight when its event loop was closed."""
        if self.loop is not None and self.loop.is_closed():
            self.waiting, self.is_flying, self.loop = [], False, None


@dataclass(slots=True)
class _Flight:
    """Appends to one session that are written together."""

    store: JsonlStore
    slot: _Slot
    group: list[_Waiting]
    landing: Landing
    outcomes: Sequence[Receipt | BaseException] = ()

    def fly(self) -> None:
        """Writes them; in a thread."""
        try:
            self.outcomes = self.slot.file.write([append for append, _ in self.group])
        except BaseException as error:  # the thread's outermost frame: nobody may wait for ever
            self.outcomes = [error] * len(self.group)

    def land(self) -> None:
        """Tells whoever waits, and lets the next flight of the session take off."""
        for (_, future), outcome in zip(self.group, self.outcomes, strict=True):
            if future.cancelled():
                continue
            if isinstance(outcome, Receipt):
                future.set_result(outcome)
            else:
                future.set_exception(outcome)
        self.store._land(self)


class JsonlStore(ClosingStore):
    """Sessions as files of JSON lines under `root`, which the first session creates.

    Written by one event loop at a time; another may follow when it is closed.
    `durable=False` leaves out every sync: what a crash of the machine leaves is then anyone's
    guess; a crash of the process loses nothing. Every system call goes through `disk`.
    """

    def __init__(
        self, root: str | os.PathLike[str], *, durable: bool = True, disk: Disk | None = None
    ) -> None:
        self._root = os.path.abspath(root)
        self._folder = Folder(self._root, durable=durable, disk=disk)
        self._slots: OrderedDict[str, _Slot] = OrderedDict()
        self._writers = Writers(WRITERS)
        self._threads = ThreadPoolExecutor(THREADS, "perdure-jsonl")
        self._is_closed = False
        self._landing: Landing | None = None

    async def create_session(
        self,
        session_id: str,
        *,
        parent_id: str | None = None,
        entries: Sequence[Draft | Entry] = (),
    ) -> Session:
        """Creates the session's file, whole or not at all; see `Store.create_session`."""
        session = new_session(session_id, parent_id)
        self._check_open()
        sealed = _seal_lines(entries)
        file = JournalFile(self._folder, session_id)
        return await self._in_thread(partial(file.create, session, sealed))

    async def load_session(self, session_id: str) -> Session:
        """The session of this id; reads the first line alone."""
        return await self._in_thread(self._file(session_id).read_session)

    async def load_entries(self, session_id: str, *, after: int = 0) -> Sequence[StoredEntry]:
        """The entries with a `seq` above `after`; a torn tail is none of them."""
        return await self._in_thread(partial(self._file(session_id).read, after))

    async def append_entries(
        self,
        session_id: str,
        entries: Sequence[Draft | Entry],
        *,
        expected_seq: int | None = None,
        incarnation: str | None = None,
    ) -> Receipt:
        """Appends the batch with one write and one sync; see `Store.append_entries`.

        Waits at most ten seconds for other processes that append to the session. From a second
        event loop it is refused (StoreUnavailableError) while the first one is open.
        """
        check_session_id(session_id)
        self._check_open()
        landing = self._landing_here()
        append = Append(_seal_lines(entries), expected_seq, incarnation)
        future: asyncio.Future[Receipt] = landing.loop.create_future()
        slot = self._slots.get(session_id)
        if slot is None:
            file = JournalFile(self._folder, session_id)
            slot = self._slots[session_id] = _Slot(file)
        self._slots.move_to_end(session_id)
        slot.leave_closed_loop()
        slot.waiting.append((append, future))
        if not slot.is_flying:
            self._take_off(slot, landing)
        return await future

    def _take_off(self, slot: _Slot, landing: Landing) -> None:
        group = [each for each in slot.waiting if not each[1].cancelled()]
        slot.waiting = []
        slot.is_flying = bool(group)
        if not group:
            self._forget_some()
            return
        slot.loop = landing.loop
        self._writers.start(_Flight(self, slot, group, landing))

    def _land(self, flight: _Flight) -> None:
        slot = flight.slot
        if isinstance(flight.outcomes[0], SessionNotFoundError) and not slot.waiting:
            self._slots.pop(slot.file.session_id, None)
        self._take_off(slot, flight.landing)

    def _forget_some(self) -> None:
        if (too_many := len(self._slots) - REMEMBERED) <= 0:
            return
        idle = [name for name, slot in self._slots.items() if not slot.is_flying]
        for name in idle[:too_many]:
            self._slots.pop(name).file.close()

    async def session_ids(self) -> Sequence[str]:
        """The exact ids of all sessions, in the order of their files' names.

        A file whose first line does not tell its id is left out; `unlisted` names it.
        """
        ids, _ = await self._in_thread(self._listing)
        return ids

    async def unlisted(self) -> Sequence[JournalCorruptError]:
        """The damage of files whose first line does not tell whose they are."""
        _, damages = await self._in_thread(self._listing)
        return damages

    async def verify_store(self) -> Sequence[JournalCorruptError]:
        """The damage that belongs to no session of `session_ids`."""
        return await self.unlisted()

    def _listing(self) -> tuple[list[str], list[JournalCorruptError]]:
        self._check_open()
        ids: list[str] = []
        damages: list[JournalCorruptError] = []
        try:
            names = sorted(self._folder.disk.names(self._root))
        except FileNotFoundError:
            return ids, damages
        except OSError as error:
            raise StoreUnavailableError(f"{self._root} cannot be read: {error}") from error
        for stem in (name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX)):
            try:
                if is_plain(stem) or is_hashed(stem):
                    ids.append(stem if is_plain(stem) else self._hashed_id(stem))
            except JournalCorruptError as damage:
                damages.append(damage)
            except SessionNotFoundError:
                continue  # it was removed since the folder was read
        return ids, damages

    def _hashed_id(self, stem: str) -> str:
        path = os.path.join(self._root, stem + SUFFIX)
        place = f"{path}, line 1, byte 0"
        disk = self._folder.disk
        with disk.reading(path, stem) as fd:
            line = disk.read_first_line(fd)
        try:
            session_id = read_session(line).id
        except ValueError as error:
            raise JournalCorruptError(stem, None, place, str(error)) from error
        if name_of(session_id) != stem:
            detail = f"this is the journal of session {session_id!r}"
            raise JournalCorruptError(stem, None, place, detail)
        return session_id

    async def verify_session(self, session_id: str) -> Verified:
        """Reads every byte of the session and checks every sum; a torn tail is no damage.

        Raises:
            InvalidSessionIdError, SessionNotFoundError, StoreUnavailableError.
            JournalCorruptError: there is damage; `place` names the first.

        """
        return await self._in_thread(self._file(session_id).verify)

    async def stream_entries(
        self, session_id: str, *, after: int = 0
    ) -> AsyncIterator[Sequence[StoredEntry]]:
        """The entries with a `seq` above `after`, in order, about a MiB at a time."""
        stream = self._file(session_id).stream(after)
        while found := await self._in_thread(stream.next):
            yield found

    async def salvage_entries(self, session_id: str) -> AsyncIterator[StoredEntry | Gap]:
        """What is sound of the session, and what is not there; see `perdure.salvage`.

        Where a header is lost, the name of its file stands for the id that it had.
        """
        for found in await self._in_thread(self._file(session_id).salvage):
            yield found

    async def close(self) -> None:
        """Waits for appends under way, then closes every file; idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        for slot in self._slots.values():
            slot.leave_closed_loop()
        pending = [future for slot in self._slots.values() for _, future in slot.waiting]
        await asyncio.gather(*pending, return_exceptions=True)
        await asyncio.to_thread(self._writers.close)
        await asyncio.to_thread(self._threads.shutdown)
        for slot in self._slots.values():
            slot.file.close()
        self._slots.clear()

    def _file(self, session_id: str) -> JournalFile:
        check_session_id(session_id)
        self._check_open()
        slot = self._slots.get(session_id)
        if slot is not None:
            return slot.file
        return JournalFile(self._folder, session_id)

    def _landing_here(self) -> Landing:
        """Where what this event loop appends comes back to."""
        loop, landing = asyncio.get_running_loop(), self._landing
        if landing is None or landing.loop is not loop:
            if landing is not None and not landing.loop.is_closed():
                raise StoreUnavailableError(
                    "this store is written by another event loop; nothing was stored. "
                    "Open a store for each: several can share a folder"
                )
            landing = self._landing = Landing(loop)
        return landing

    def _check_open(self) -> None:
        if self._is_closed:
            raise StoreUnavailableError(f"the store at {self._root} is closed")

    async def _in_thread(self, call: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)


def _seal_lines(drafts: Sequence[Draft | Entry]) -> tuple[Entry, ...]:
    entries = seal_all(drafts)
    for entry in entries:
        if b"\n" in entry.raw or not entry.raw.endswith(b"}"):
            raise AppendRejectedError(f"entry {entry.id!r} is not one line of JSON")
    return entries
