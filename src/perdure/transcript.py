"""One session's log as one agent knows it, and the leaf that it grows from.

An append is stored first and known after, in one step that cancellation cannot split. After an
uncertain append the store is asked what it has before anything else is appended, so nothing is
doubled and nothing lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import Literal

from msgspec import UNSET

from perdure.codec import Draft, Entry, StoredEntry, seal
from perdure.completion import complete
from perdure.entry import Message, _Entry
from perdure.errors import (
    AppendRejectedError,
    AppendUncertainError,
    SessionExistsError,
    SessionNotFoundError,
)
from perdure.fact import LeafMoved
from perdure.store import Receipt, Session, Store, appending, receipt_of
from perdure.tree import Tree
from perdure.view import OpenCalls, repairs

Repair = Literal["never", "before messages", "always"]


async def load_or_create(
    store: Store, session_id: str
) -> tuple[Session | None, Sequence[StoredEntry]]:
    """The session of this id with its entries; made, if there is none.

    The session is None where the store has no `load_session` and it was there before.

    Raises:
        InvalidSessionIdError, JournalCorruptError, StoreError: as the store's verbs.
    """
    try:
        return await _load(store, session_id)
    except SessionNotFoundError:
        pass
    try:
        session = await store.create_session(session_id)
    except SessionExistsError:
        return await _load(store, session_id)
    return session, await store.load_entries(session_id)


async def _load(store: Store, session_id: str) -> tuple[Session | None, Sequence[StoredEntry]]:
    """The session, where the store can say it: the contract has three verbs, and this is none."""
    load_session = getattr(store, "load_session", None)
    session = None if load_session is None else await load_session(session_id)
    return session, await store.load_entries(session_id)


class Transcript:
    """What is stored, as far as this agent knows, and the path to its leaf.

    `path` is a list that only grows while the leaf stays on its branch; moving the leaf makes a new
    one. `last_seq` is where the log stands, as far as this agent knows. `in_flight` names the calls
    that a run has open: they are not repaired.
    """

    def __init__(
        self,
        store: Store,
        session_id: str,
        entries: Sequence[StoredEntry],
        *,
        incarnation: str | None,
    ) -> None:
        self.session_id = session_id
        self.incarnation = incarnation
        self.store = store
        self.entries = list(entries)
        self.last_seq = self.entries[-1].seq if self.entries else 0
        self.tree = Tree(self.entries, session_id=session_id)
        self.in_flight: Callable[[], Collection[str]] = frozenset
        self._lock = asyncio.Lock()
        self._doubtful: tuple[tuple[str, ...], Sequence[Entry]] | None = None
        self._found: dict[tuple[str, ...], Receipt] = {}
        self.move(self.tree.leaf_id)

    def move(self, leaf_id: str | None) -> None:
        """Moves the leaf, in memory: O(length of the path).

        Raises:
            EntryNotFoundError: there is no such tree entry. JournalCorruptError: its path is
                damaged. The leaf stays.
        """
        path = self.tree.path(leaf_id)
        self.path = path
        self.leaf_id = leaf_id
        self._open_calls = OpenCalls(path)

    async def append(
        self,
        drafts: Sequence[Draft] | Callable[[], Sequence[Draft]],
        *,
        repair: Repair = "never",
    ) -> Receipt:
        """Stores the drafts at the leaf in one batch, repairs first, and advances.

        Drafts that depend on where the leaf is then are given as a function. What an uncertain
        append had stored after all is not stored again.

        Cancelled before its turn came, it stores nothing. Cancelled later, it waits for what the
        store says and advances: the cancellation goes on then.

        Raises:
            AppendRejectedError, AppendConflictError and other errors of stores.
        """
        lock = self._lock
        await lock.acquire()
        try:
            if self._doubtful is not None:
                await self._settle()
            if callable(drafts):
                drafts = drafts()
            if self._found and (receipt := self._found_receipt(drafts)) is not None:
                return receipt
            if self._open_calls:
                batch = self._place([*self._repairs(drafts, repair), *drafts])
            else:
                batch = self._place(drafts)
            if not batch:
                return receipt_of((), self.last_seq)
            append = appending(self.store)
            step = append(self.session_id, batch, incarnation=self.incarnation)
            return await complete(step, lambda answer: self._advance(answer, drafts, batch))
        finally:
            lock.release()

    def _advance(
        self, answer: asyncio.Future[Receipt], drafts: Sequence[Draft], batch: Sequence[Entry]
    ) -> Receipt:
        try:
            receipt = answer.result()
        except (AppendUncertainError, asyncio.CancelledError):
            self._doubtful = (_ids(drafts), batch)
            raise
        self._take(receipt)
        return receipt

    @property
    def has_open_calls(self) -> bool:
        """Whether a call at the leaf has no result."""
        return bool(self._open_calls)

    @property
    def is_settled(self) -> bool:
        """Whether no append is under way and the fate of each is known."""
        return self._doubtful is None and not self._lock.locked()

    async def settled(self) -> None:
        """Returns when it is settled."""
        if not self.is_settled:
            async with self._lock:
                await self._settle()

    async def _settle(self) -> None:
        if self._doubtful is None:
            return
        ids, batch = self._doubtful
        wanted = {entry.id for entry in batch}
        stored = await self.store.load_entries(self.session_id, after=self.last_seq)
        self._doubtful = None
        if found := [entry for entry in stored if entry.id in wanted]:
            receipt = receipt_of(found)
            self._take(receipt)
            if ids:
                self._found[ids] = receipt

    def _found_receipt(self, drafts: Sequence[Draft]) -> Receipt | None:
        """The receipt of drafts that are a retry of an append which was stored after all."""
        ids = _ids(drafts)
        receipt = self._found.get(ids)
        if receipt is None:
            return None
        stored = {each.id: each.entry for each in receipt.entries}
        if any(
            seal(draft, stored[at].parent_id) != stored[at]
            for at, draft in zip(ids, drafts, strict=True)
        ):
            return None
        return self._found.pop(ids)

    def _repairs(self, drafts: Sequence[Draft], when: Repair) -> list[Message]:
        messages = [draft for draft in drafts if isinstance(draft, Message)]
        spoken = any(message.role != "tool" for message in messages)
        if when == "never" or (when == "before messages" and not spoken):
            return []
        answered = {result.call_id for message in messages for result in message.tool_results}
        return repairs(self._open_calls, answered.union(self.in_flight()))

    def _place(self, drafts: Sequence[Draft]) -> list[Entry]:
        """Seals the drafts as a chain from the leaf."""
        batch: list[Entry] = []
        parent_id = self.leaf_id
        for draft in drafts:
            entry = seal(draft, parent_id)
            if entry.parent_id is not UNSET:
                if entry.parent_id != parent_id or entry.id in self.tree:
                    raise self._refusal(entry, parent_id)
                parent_id = entry.id
            elif isinstance(view := entry.view, LeafMoved):
                parent_id = self._checked_leaf(view, batch)
            batch.append(entry)
        return batch

    def _refusal(self, entry: Entry, leaf_id: str | None) -> AppendRejectedError:
        if entry.id in self.tree:
            return AppendRejectedError(
                f"entry {entry.id!r} is in session {self.session_id!r} already; to append the "
                "same content again make a new entry"
            )
        return AppendRejectedError(
            f"entry {entry.id!r} has its place under {entry.parent_id!r} already and "
            f"cannot be appended at the leaf {leaf_id!r}; make a new entry"
        )

    def _checked_leaf(self, moved: LeafMoved, batch: Sequence[Entry]) -> str | None:
        leaf_id = moved.leaf_id
        if leaf_id is None or leaf_id in self.tree:
            return leaf_id
        if any(entry.in_tree and entry.id == leaf_id for entry in batch):
            return leaf_id
        raise AppendRejectedError(f"the leaf cannot move to {leaf_id!r}: no such tree entry")

    def _take(self, receipt: Receipt) -> None:
        for stored in receipt.entries:
            if stored.seq <= self.last_seq:
                continue
            self.last_seq = stored.seq
            entry = stored.entry
            self.entries.append(stored)
            self.tree.add(stored)
            if entry.parent_id is UNSET:
                if isinstance(view := entry.view, LeafMoved):
                    self.move(view.leaf_id)
            elif entry.parent_id == self.leaf_id:
                self.path.append(entry)
                self._open_calls.add(entry)
                self.leaf_id = entry.id
            # else the leaf was moved while this was in doubt


def _ids(drafts: Sequence[Draft]) -> tuple[str, ...]:
    """The ids by which a retry of these drafts is recognised; none if one of them has no id."""
    ids = tuple(draft.id for draft in drafts if isinstance(draft, _Entry | Entry))
    return ids if len(ids) == len(drafts) else ()
