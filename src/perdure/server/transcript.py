"""A page of the transcript, as a person reads it: the path, with the siblings of each entry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perdure.codec import StoredEntry
from perdure.errors import EntryNotFoundError, JournalCorruptError
from perdure.server.journal import JournalStore
from perdure.view import transcript_view


@dataclass(frozen=True, slots=True)
class TranscriptEntry:
    """An entry of a path and the ids of all that grow from its parent, itself included."""

    stored: StoredEntry
    siblings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TranscriptPage:
    """Entries of the path to `leaf_id`, root side first; `has_more`: older ones are left out."""

    entries: tuple[TranscriptEntry, ...]
    has_more: bool
    leaf_id: str | None


async def load_transcript(
    store: JournalStore, session_id: str, leaf_id: str | None, *, before: str | None, limit: int
) -> TranscriptPage:
    """The newest `limit` entries of the path to `leaf_id`, or of those older than `before`.

    Time is proportional to the page and to the `meta` messages that it skips.

    Raises:
        EntryNotFoundError: there is no such entry.
        JournalCorruptError: the path has a hole or a circle.

    """
    found: list[StoredEntry] = []
    met: set[str] = set()
    at, has_more = leaf_id, leaf_id is not None
    if before is not None:
        newer = await store.load_entry(session_id, before)
        if not newer.entry.in_tree:
            raise EntryNotFoundError(
                session_id, before, "it is a fact and has no place in the tree"
            )
        at, has_more = _parent(newer)
    while has_more and at is not None and len(found) < limit:
        page = await store.load_path(session_id, at, limit=limit - len(found))
        if page.entries[0].id in met:
            raise JournalCorruptError(session_id, None, f"entry {at!r}", "its path is a circle")
        met.update(each.id for each in page.entries)
        shown = {entry.id for entry in transcript_view([each.entry for each in page.entries])}
        found[:0] = [each for each in page.entries if each.id in shown]
        at, has_more = _parent(page.entries[0])
    siblings = await _siblings(store, session_id, found)
    entries = tuple(TranscriptEntry(each, siblings[_key(each)]) for each in found)
    return TranscriptPage(entries, has_more, leaf_id)


def _key(stored: StoredEntry) -> str | None:
    return stored.parent_id if isinstance(stored.parent_id, str) else None


def _parent(stored: StoredEntry) -> tuple[str | None, bool]:
    parent_id = _key(stored)
    return parent_id, parent_id is not None


async def _siblings(
    store: JournalStore, session_id: str, found: Sequence[StoredEntry]
) -> dict[str | None, tuple[str, ...]]:
    parents = list(dict.fromkeys(_key(each) for each in found))
    return dict(await store.children(session_id, parents))
