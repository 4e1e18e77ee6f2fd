"""Copies what is sound of a damaged session into a new one; the damaged one stays as it is.

A store says what is sound and where something is missing (`salvage_entries`); here that becomes a
session that is valid: each gap is a `gap` fact in its place, and a reference that leads to a lost
entry leads to the last sound tree entry before the gap. That is the only thing that ever changes an
entry's bytes, and the gap names each entry that it was done to.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

from msgspec import UNSET
from msgspec.structs import replace

from perdure.codec import Entry, StoredEntry, seal, with_reference
from perdure.entry import Compaction
from perdure.errors import (
    JournalCorruptError,
    NothingToSalvageError,
    SessionExistsError,
    SessionNotFoundError,
    UnrecoverableError,
)
from perdure.fact import Gap, LeafMoved
from perdure.interchange import ReadableStore
from perdure.store import Session, check_session_id
from perdure.tree import check_paths


class SalvagingStore(ReadableStore, Protocol):
    """What a salvage needs of a store; every store of Perdure has it."""

    def salvage_entries(self, session_id: str) -> AsyncIterator[StoredEntry | Gap]:
        """Every sound entry in its order, and a gap where something is missing; writes nothing.

        Raises:
            InvalidSessionIdError, SessionNotFoundError, StoreUnavailableError.

        """
        ...


@dataclass(frozen=True, slots=True)
class Salvaged:
    """What became of it: the new session, how many entries it kept, and its gaps."""

    session: Session
    kept: int
    gaps: tuple[Gap, ...]


async def salvage_session(
    store: SalvagingStore, session_id: str, new_id: str, *, into: ReadableStore | None = None
) -> Salvaged:
    """Creates `new_id` of what is sound of a damaged session, in one atomic step.

    It is made in the same store, or in another, `into`, where the file of the first is damaged
    itself. The new session verifies, its paths lead to roots, and its model view is valid.
    O(session) in time and memory.

    Raises:
        InvalidSessionIdError, SessionNotFoundError: nothing was made.
        SessionExistsError: the new id is taken.
        NothingToSalvageError: the session is healthy, or nothing of it is sound.
        FormatTooNewError: a newer version wrote it.
        AppendUncertainError, StoreUnavailableError: of `create_session`.
        UnrecoverableError: the new session cannot be read back: salvage into another store.

    """
    check_session_id(session_id)
    target = into or store
    await _check_free(target, new_id)
    parent_id = None
    try:
        original = await store.load_session(session_id)
        original.check_writable()
        parent_id = original.parent_id
    except (UnrecoverableError, SessionNotFoundError):
        pass  # its header is lost; whether anything is there says the store below
    found = [each async for each in store.salvage_entries(session_id)]
    if not any(isinstance(each, StoredEntry) for each in found):
        if not found:
            await _check_damaged(store, session_id, found)
        raise NothingToSalvageError(session_id, "nothing in it is sound; nothing was made")
    if not any(isinstance(each, Gap) for each in found):
        found.append(await _check_damaged(store, session_id, found))
    entries, gaps = _Mender().mend(found)
    sealed = [seal(each) if isinstance(each, Gap) else each for each in entries]
    session = await target.create_session(new_id, parent_id=parent_id, entries=sealed)
    try:
        await target.verify_session(new_id)
    except JournalCorruptError as error:
        raise UnrecoverableError(
            f"session {new_id!r} was made and cannot be read back, since its store is damaged "
            f"too: salvage into another one ({error})"
        ) from error
    return Salvaged(session, len(sealed) - len(gaps), tuple(gaps))


async def _check_free(store: ReadableStore, new_id: str) -> None:
    try:
        await store.load_session(new_id)
    except (SessionNotFoundError, UnrecoverableError):
        return  # what is damaged shows when the session is created
    raise SessionExistsError(new_id)


async def _check_damaged(
    store: SalvagingStore, session_id: str, found: list[StoredEntry | Gap]
) -> Gap:
    """The damage of a session whose entries are all sound: of its index, or of its paths."""
    entries = [each for each in found if isinstance(each, StoredEntry)]
    try:
        await store.verify_session(session_id)
        check_paths(entries, session_id=session_id)
    except JournalCorruptError as damage:
        return Gap(damage.place, damage.detail, 0)
    raise NothingToSalvageError(session_id, "it is healthy; nothing was made")


class _Mender:
    """Makes references that lead nowhere lead to what is there."""

    def __init__(self) -> None:
        self._made: list[Entry | Gap] = []
        self._gap_at: int | None = None
        self._anchor: str | None = None
        self._leaf: str | None = None
        self._tree_ids: set[str] = set()
        self._stands_for: dict[str, str | None] = {}
        self._heirs: dict[str, str] = {}

    def mend(self, found: list[StoredEntry | Gap]) -> tuple[list[Entry | Gap], list[Gap]]:
        """What is to be stored, in order, and the gaps in it."""
        for each in found:
            if isinstance(each, Gap):
                self._gap_at, self._anchor = len(self._made), self._leaf
                self._made.append(each)
            else:
                self._add(each.entry)
        return self._made, [each for each in self._made if isinstance(each, Gap)]

    def _add(self, entry: Entry) -> None:
        entry = self._mended(entry)
        self._made.append(entry)
        if entry.in_tree:
            self._tree_ids.add(entry.id)
            self._leaf = entry.id

    def _mended(self, entry: Entry) -> Entry:
        parent_id = entry.parent_id
        if isinstance(parent_id, str) and parent_id not in self._tree_ids:
            place = self._substitute(parent_id, entry.id)
            self._note(f"entry {entry.id!r} grew from {parent_id!r}, here from {place!r}", entry)
            entry = with_reference(entry, "parent_id", place)
            self._heirs.setdefault(parent_id, entry.id)
        if parent_id is UNSET:
            view = entry.view if entry.type == "leaf_moved" else None
            if isinstance(view, LeafMoved) and not self._is_there(view.leaf_id):
                assert view.leaf_id is not None
                place = self._substitute(view.leaf_id, entry.id)
                note = f"fact {entry.id!r} moved the leaf to {view.leaf_id!r}, here to {place!r}"
                self._note(note, entry)
                return with_reference(entry, "leaf_id", place)
            return entry
        view = entry.view if entry.type == "compaction" else None
        if isinstance(view, Compaction) and not self._is_there(view.first_kept_id):
            assert view.first_kept_id is not None
            heir = self._heirs.get(view.first_kept_id)
            note = (
                f"compaction {entry.id!r} kept from {view.first_kept_id!r} on, here from {heir!r}"
            )
            self._note(note, entry)
            return with_reference(entry, "first_kept_id", heir)
        return entry

    def _is_there(self, entry_id: str | None) -> bool:
        return entry_id is None or entry_id in self._tree_ids

    def _substitute(self, lost_id: str, entry_id: str) -> str | None:
        """The last sound tree entry before the gap in which this id was lost."""
        if self._gap_at is None:
            self._gap_at, self._anchor = len(self._made), self._leaf
            self._made.append(Gap(f"entry {entry_id!r}", f"{lost_id!r} is not before it", None))
        return self._stands_for.setdefault(lost_id, self._anchor)

    def _note(self, note: str, entry: Entry) -> None:
        if self._gap_at is None:
            self._gap_at, self._anchor = len(self._made), self._leaf
            self._made.append(Gap(f"entry {entry.id!r}", "what it names is not before it", None))
        gap = self._made[self._gap_at]
        assert isinstance(gap, Gap)
        self._made[self._gap_at] = replace(gap, detail=f"{gap.detail}; {note}")
