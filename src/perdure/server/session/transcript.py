"""A page of the transcript, as a person reads it: the path, with the siblings of each entry."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

from perdure.codec import Entry, StoredEntry
from perdure.errors import EntryNotFoundError, JournalCorruptError
from perdure.server.journal import JournalStore
from perdure.view import transcript_view

_STEP = 256

MOST_LOADS = 128
"""How many entries of other branches a page looks at; further ones count as seen by a person."""


@dataclass(frozen=True, slots=True)
class TranscriptEntry:
    """An entry of a path and the ids of all that a person sees grow from the same one, itself too.

    What is hidden parts no branches: an attempt whose model was told something first stands beside
    one whose model was not.
    """

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

    Time is proportional to the page, to the `meta` messages that it skips, and to the branches that
    part in it.

    Raises:
        EntryNotFoundError: there is no such entry.
        JournalCorruptError: the path has a hole or a circle.

    """
    found: list[StoredEntry] = []
    met: set[str] = set()
    hidden: set[str] = set()
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
        hidden.update(each.id for each in page.entries if each.id not in shown)
        found[:0] = [each for each in page.entries if each.id in shown]
        at, has_more = _parent(page.entries[0])
    entries = await _with_siblings(store, session_id, found, hidden)
    return TranscriptPage(entries, has_more, leaf_id)


async def load_following(
    store: JournalStore, session_id: str, leaf_id: str | None, *, after: str | None, limit: int
) -> TranscriptPage:
    """The oldest `limit` entries of the path to `leaf_id` that follow `after` (None: the start).

    `has_more` is about newer ones. A path is only known from its leaf, so time is proportional to
    what lies between: who pages back from the leaf and forth again had better keep its place.

    Raises:
        EntryNotFoundError: `after` is not on that path.
        JournalCorruptError: the path has a hole or a circle.

    """
    found: list[StoredEntry] = []
    met: set[str] = set()
    hidden: set[str] = set()
    at = leaf_id
    has_more = False
    while at is not None and at != after:
        page = await store.load_path(session_id, at, limit=_STEP, until=after)
        if page.entries[0].id in met:
            raise JournalCorruptError(session_id, None, f"entry {at!r}", "its path is a circle")
        met.update(each.id for each in page.entries)
        shown = {entry.id for entry in transcript_view([each.entry for each in page.entries])}
        hidden.update(each.id for each in page.entries if each.id not in shown)
        found[:0] = [each for each in page.entries if each.id in shown and each.id != after]
        has_more |= len(found) > limit
        del found[limit:]
        at = after if after in met else _key(page.entries[0])
    if at != after:
        raise EntryNotFoundError(session_id, after or "", "it is not on the path to that leaf")
    entries = await _with_siblings(store, session_id, found, hidden)
    return TranscriptPage(entries, has_more, leaf_id)


async def find_newest_leaf(store: JournalStore, session_id: str, entry_id: str) -> str:
    """The newest tree entry that grows from `entry_id`, or that entry itself.

    Time is proportional to the journal after it.

    Raises:
        EntryNotFoundError: there is no such tree entry.

    """
    root = await store.load_entry(session_id, entry_id)
    if not root.entry.in_tree:
        raise EntryNotFoundError(session_id, entry_id, "it is a fact and has no place in the tree")
    below = {entry_id}
    newest = entry_id
    seq, has_more = root.seq, True
    while has_more:
        page = await store.page_entries(session_id, after=seq, limit=_STEP)
        for each in page.entries:
            if each.entry.in_tree and _key(each) in below:
                below.add(each.id)
                newest = each.id
        has_more = page.has_more
        seq = page.entries[-1].seq if page.entries else seq
    return newest


def _key(stored: StoredEntry) -> str | None:
    return stored.parent_id if isinstance(stored.parent_id, str) else None


def _parent(stored: StoredEntry) -> tuple[str | None, bool]:
    parent_id = _key(stored)
    return parent_id, parent_id is not None


async def _with_siblings(
    store: JournalStore, session_id: str, found: Sequence[StoredEntry], hidden: Set[str]
) -> tuple[TranscriptEntry, ...]:
    """The entries of a path that follow each other, where nothing is left out but `hidden`."""
    if not found:
        return ()
    parents = [await _shown_parent(store, session_id, found[0]), *(each.id for each in found[:-1])]
    kin = dict(await store.children(session_id, parents))
    seen = {each.id for each in found}
    loads = MOST_LOADS
    siblings: list[tuple[str, ...]] = []
    for parent_id in parents:
        shown: list[str] = []
        waiting = list(reversed(kin[parent_id]))
        while waiting:
            child_id = waiting.pop()
            is_hidden = child_id in hidden
            if not is_hidden and child_id not in seen and loads > 0:
                loads -= 1
                is_hidden = not transcript_view([await _load(store, session_id, child_id)])
            if is_hidden:
                below = await store.children(session_id, [child_id])
                waiting += reversed(below[child_id])
            else:
                shown.append(child_id)
        siblings.append(tuple(shown))
    return tuple(map(TranscriptEntry, found, siblings))


async def _shown_parent(store: JournalStore, session_id: str, stored: StoredEntry) -> str | None:
    """The nearest entry above that a person sees."""
    met: set[str] = set()
    parent_id = _key(stored)
    while parent_id is not None and parent_id not in met:
        met.add(parent_id)
        parent = await store.load_entry(session_id, parent_id)
        if transcript_view([parent.entry]):
            break
        parent_id = _key(parent)
    return parent_id


async def _load(store: JournalStore, session_id: str, entry_id: str) -> Entry:
    return (await store.load_entry(session_id, entry_id)).entry
