"""The log read by `parent_id`: an index, paths and the resume leaf. Pure, iterative, bounded.

The order of everything is the order of the entries as given, which is the order of `seq`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import UNSET

from perdure.codec import AnyEntry, Entry, StoredEntry, seal
from perdure.errors import EntryNotFoundError, JournalCorruptError
from perdure.fact import LeafMoved


class Tree:
    """An index of a log's tree entries that grows as the log does; `add` costs O(1).

    `leaf_id` is the resume leaf: the last tree entry, unless a later `leaf_moved` says otherwise.
    """

    def __init__(self, entries: Iterable[StoredEntry] = (), *, session_id: str = "") -> None:
        self.session_id = session_id
        self.leaf_id: str | None = None
        self._known: dict[str, Entry] = {}  # facts, too
        self._children: dict[str | None, list[str]] | None = None
        for stored in entries:
            self.add(stored)

    def add(self, stored: StoredEntry) -> None:
        """Adds the log's next entry.

        Raises:
            JournalCorruptError: an entry of this id is there already, or the leaf moves to a tree
                entry that is not there.
        """
        entry = stored.entry
        entry_id = entry.id
        if entry_id in self._known:
            raise self._damage(f"entry {entry_id!r}", "its id is there twice", stored.seq)
        self._known[entry_id] = entry
        self._children = None
        if entry.parent_id is not UNSET:
            self.leaf_id = entry_id
        elif entry.type == "leaf_moved" and isinstance(view := entry.view, LeafMoved):
            if view.leaf_id is not None and view.leaf_id not in self:
                detail = f"it moves the leaf to {view.leaf_id!r}, which is not there"
                raise self._damage(f"entry {entry_id!r}", detail, stored.seq)
            self.leaf_id = view.leaf_id

    def get(self, entry_id: str) -> Entry | None:
        """The tree entry of this id; None if there is none."""
        entry = self._known.get(entry_id)
        return None if entry is None or entry.parent_id is UNSET else entry

    def __contains__(self, entry_id: str) -> bool:
        return self.get(entry_id) is not None

    def __getitem__(self, entry_id: str) -> Entry:
        """The tree entry of this id; EntryNotFoundError if there is none."""
        entry = self.get(entry_id)
        if entry is None:
            raise EntryNotFoundError(self.session_id, entry_id, "no such tree entry")
        return entry

    def __len__(self) -> int:
        """How many tree entries there are; O(entries)."""
        return sum(entry.in_tree for entry in self._known.values())

    def children(self, entry_id: str | None) -> Sequence[str]:
        """The ids of the entries that grow from this one, in order of `seq`; None: the roots.

        O(entries) when asked first since the last `add`, then O(1).
        """
        children = self._children
        if children is None:
            self._children = children = {}
            for entry in self._known.values():
                if (parent_id := entry.parent_id) is not UNSET:
                    children.setdefault(parent_id, []).append(entry.id)
        return tuple(children.get(entry_id, ()))

    def path(self, leaf_id: str | None) -> list[Entry]:
        """The entries from the root to `leaf_id`; empty for None. O(length of the path).

        Raises:
            EntryNotFoundError: there is no such tree entry.
            JournalCorruptError: the path has a cycle, or a parent that is not there.
        """
        path: list[Entry] = []
        if leaf_id is None:
            return path
        entry = self[leaf_id]
        while True:
            path.append(entry)
            parent_id = entry.parent_id
            if not isinstance(parent_id, str):
                break
            if len(path) > len(self._known):
                raise self._damage(f"entry {leaf_id!r}", "its path to the root is a circle")
            parent = self.get(parent_id)
            if parent is None:
                raise self._damage(f"entry {entry.id!r}", f"its parent {parent_id!r} is not there")
            entry = parent
        path.reverse()
        return path

    def _damage(self, place: str, detail: str, seq: int | None = None) -> JournalCorruptError:
        return JournalCorruptError(self.session_id, seq, place, detail)


def tree(entries: Iterable[AnyEntry]) -> Tree:
    """The index of these entries, which stand in order of `seq`."""
    return Tree(_stored(each, seq) for seq, each in enumerate(entries, 1))


def path_to(entries: Iterable[AnyEntry], leaf_id: str | None) -> list[Entry]:
    """The path from the root to `leaf_id` in these entries; see `Tree.path`."""
    return tree(entries).path(leaf_id)


def _stored(entry: AnyEntry, seq: int) -> StoredEntry:
    """The stored entry; of one that has no `seq`, at its place in the list."""
    return entry if isinstance(entry, StoredEntry) else StoredEntry(seq, seal(entry))


def check_paths(entries: Iterable[StoredEntry], *, session_id: str) -> None:
    """Checks that each tree entry leads to a root; O(entries).

    Raises:
        JournalCorruptError: an id is there twice, a parent or a leaf is not there, or a path is a
            circle.
    """
    stored = list(entries)
    index = Tree(stored, session_id=session_id)
    sound: set[str] = set()
    for each in stored:
        path: dict[str, None] = {}
        entry_id = each.id if each.entry.in_tree else None
        while entry_id is not None and entry_id not in sound:
            if entry_id in path or entry_id not in index:
                place = f"entry {next(reversed(path))!r}"
                detail = f"its parent {entry_id!r} is not there"
                if entry_id in path:
                    detail = "its path to the root is a circle"
                raise JournalCorruptError(session_id, each.seq, place, detail)
            path[entry_id] = None
            parent_id = index[entry_id].parent_id
            entry_id = parent_id if isinstance(parent_id, str) else None
        sound.update(path)
