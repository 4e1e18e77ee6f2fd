"""What can be asked of the file: each question is answered from one snapshot of it.

An entry is found through the index tables, or in the tail that they do not cover yet. Whatever is
not where it has to be is damage: an answer is whole or it is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import apsw

from perdure.codec import DamagedRow, StoredEntry, read_rows
from perdure.errors import (
    CursorVoidError,
    EntryNotFoundError,
    JournalCorruptError,
    SessionNotFoundError,
)
from perdure.snapshot import Snapshot
from perdure.store import Kind, Look, LookPage, Page, PathPage, Session, read_session
from perdure.stores.sqlite.schema import has_owners, has_snapshots

_CHUNK_BYTES = 1 << 20
_CHUNK_ENTRIES = 4096
_LOOK = "number, session_id, header, last_seq, last_pos, summary"
_LISTED = _LOOK.replace("session_id", "CAST(session_id AS BLOB)")
_PAGE = f"""
SELECT {_LISTED} FROM sessions WHERE kind = ? AND deleted = 0 AND last_pos < ?
ORDER BY last_pos DESC LIMIT ?
"""
_PAGE_OF_OWNER = f"""
SELECT {_LISTED.replace("last_pos", "o.last_pos")}
FROM owners AS o JOIN sessions ON number = o.session
WHERE kind = ? AND deleted = 0 AND o.last_pos < ? AND o.owner = ?
ORDER BY o.last_pos DESC LIMIT ?
"""
_LookRow = tuple[int, str, bytes, int, int, bytes | None]
_T = TypeVar("_T")
_FOUND = "e.pos, e.seq, e.entry_id, e.raw"


class Head(NamedTuple):
    """A session's row."""

    number: int
    session_id: str
    session: Session
    last_seq: int
    last_pos: int
    summary: bytes | None

    @property
    def look(self) -> Look:
        """The session, where its log stands, and its summary."""
        return Look(self.session, self.last_seq, self.summary)


class Reader:
    """One snapshot of the file; used by one thread, inside one read transaction.

    Its questions are about the journals of one kind.
    """

    def __init__(self, connection: apsw.Connection, path: Path, kind: Kind = "session") -> None:
        self.kind = kind
        self.run: Callable[..., Any] = connection.execute
        self.path = path
        self.place = f"file {str(path)!r}"
        self.connection = connection
        self.indexed_pos = self._meta("indexed_pos", int)

    def _meta(self, name: str, kind: type[_T]) -> _T:
        rows = self.run("SELECT value FROM meta WHERE name = ?", (name,)).fetchall()
        if not rows or not isinstance(rows[0][0], kind):
            raise JournalCorruptError("", None, self.place, f"its {name} is missing")
        return rows[0][0]

    def head(self, session_id: str) -> Head:
        """The row of a living session."""
        rows = self.run(
            f"SELECT {_LOOK} FROM sessions WHERE kind = ? AND session_id = ? AND deleted = 0",
            (self.kind, session_id),
        ).fetchall()
        if not rows:
            raise SessionNotFoundError(session_id)
        return self._head(rows[0])

    def _head(self, row: _LookRow) -> Head:
        number, session_id, header, last_seq, last_pos, summary = row
        try:
            session = read_session(header)
        except ValueError as error:
            raise self._header_damage(session_id, str(error)) from error
        if session.id != session_id:
            raise self._header_damage(session_id, f"it names session {session.id!r}")
        return Head(number, session_id, session, last_seq, last_pos, summary)

    def _header_damage(self, session_id: str, detail: str) -> JournalCorruptError:
        return JournalCorruptError(session_id, None, f"{self.place}, its header", detail)

    def load_session(self, session_id: str) -> Session:
        """The session of this id."""
        return self.head(session_id).session

    def look(self, session_id: str) -> Look:
        """The session, where its log stands, and its summary."""
        return self.head(session_id).look

    def load_snapshot(self, session_id: str, at_most: int | None) -> Snapshot | None:
        """The newest snapshot whose `seq` is not above `at_most`."""
        head = self.head(session_id)
        if not has_snapshots(self.connection):
            return None
        rows = self.run(
            "SELECT seq, schema, data FROM snapshots WHERE session = ? AND seq <= ? "
            "ORDER BY seq DESC LIMIT 1",
            (head.number, 2**62 if at_most is None else at_most),
        ).fetchall()
        if not rows:
            return None
        seq, schema, data = rows[0]
        return Snapshot(seq, schema, head.session.incarnation, data)

    def load_owner(self, session_id: str) -> str | None:
        """Whose the session is; its header need not be sound."""
        rows = self.run(
            "SELECT number FROM sessions WHERE kind = ? AND session_id = ? AND deleted = 0",
            (self.kind, session_id),
        ).fetchall()
        if not rows:
            raise SessionNotFoundError(session_id)
        if not has_owners(self.connection):
            return None
        found = self.run("SELECT owner FROM owners WHERE session = ?", rows[0]).fetchall()
        return found[0][0] if found else None

    def list_sessions(self, limit: int, after: str | None, owner: str | None) -> LookPage:
        """Sessions by newest append first, all or those of one owner: O(limit)."""
        store_id = self._meta("store_id", str)
        bound = 2**62
        if after is not None:
            prefix, _, number = after.partition(".")
            if prefix != store_id or not (number.isascii() and number.isdecimal()):
                raise CursorVoidError(after, "it is not from a listing of this store")
            bound = int(number[:18])
        count = min(limit, 2**31) + 1
        if owner is None:
            rows = self.run(_PAGE, (self.kind, bound, count)).fetchall()
        elif has_owners(self.connection) and is_text(owner):
            rows = self.run(_PAGE_OF_OWNER, (self.kind, bound, owner, count)).fetchall()
        else:
            rows = []
        page = rows[:limit]
        more = f"{store_id}.{page[-1][4]}" if page and len(rows) > limit else None
        return LookPage(tuple(map(self._look, page)), more)

    def _look(self, row: tuple[int, bytes, bytes, int, int, bytes | None]) -> Look:
        """The look of a row; one whose header is broken harms no other of its page."""
        number, name, header, last_seq, last_pos, summary = row
        session_id = name.decode(errors="replace")
        try:
            return self._head((number, session_id, header, last_seq, last_pos, summary)).look
        except JournalCorruptError as error:
            query = "SELECT CAST(incarnation AS BLOB) FROM sessions WHERE number = ?"
            ((incarnation,),) = self.run(query, (number,)).fetchall()
            unknown = datetime.fromtimestamp(0, UTC)
            incarnation = incarnation.decode(errors="replace")
            session = Session(session_id, None, unknown, incarnation, header)
            return Look(session, last_seq, None, str(error))

    def session_ids(self) -> Sequence[str]:
        """The ids of all living sessions; what is no text any more is none."""
        rows = self.run(
            "SELECT CAST(session_id AS BLOB) FROM sessions "
            "WHERE kind = ? AND deleted = 0 ORDER BY session_id",
            (self.kind,),
        )
        return tuple(name.decode() for (name,) in rows if is_utf8(name))

    def load_entries(self, session_id: str, after: int) -> Sequence[StoredEntry]:
        """The entries with a `seq` above `after`."""
        head = self.head(session_id)
        return self._range(head, max(after, 0) + 1, head.last_seq)

    def chunk(self, session_id: str, after: int) -> tuple[Session, Sequence[StoredEntry]]:
        """The session, and its next entries after a `seq`: about a MiB of them, at least one."""
        head = self.head(session_id)
        first, size, count = max(after, 0) + 1, 0, 0
        sizes: list[tuple[int, int]] = (
            self.run(
                "SELECT i.seq, length(e.raw) FROM by_seq AS i JOIN entries AS e ON e.pos = i.pos "
                "WHERE i.session = ? AND i.seq >= ? ORDER BY i.seq LIMIT ?",
                (head.number, first, _CHUNK_ENTRIES),
            ).fetchall()
            or self.run(
                "SELECT seq, length(raw) FROM entries "
                "WHERE pos > ? AND session = ? AND seq >= ? ORDER BY pos LIMIT ?",
                (self.indexed_pos, head.number, first, _CHUNK_ENTRIES),
            ).fetchall()
        )
        while count < len(sizes) and size < _CHUNK_BYTES:
            size += sizes[count][1]
            count += 1
        last = sizes[count - 1][0] if count else head.last_seq
        return head.session, self._range(head, first, last)

    def page_entries(
        self, session_id: str, before: int | None, after: int | None, limit: int
    ) -> Page:
        """The entries between two `seq`s: the oldest with `after` given, else the newest."""
        head = self.head(session_id)
        low = min(max(after or 0, 0), head.last_seq)
        high = head.last_seq if before is None else max(min(before - 1, head.last_seq), 0)
        first, last = (
            (max(low, high - limit), high) if after is None else (low, min(high, low + limit))
        )
        entries = self._range(head, first + 1, last)
        has_more = first > low or last < high
        return Page(entries, has_more, head.last_seq, head.session.incarnation)

    def _range(self, head: Head, first: int, last: int) -> tuple[StoredEntry, ...]:
        if first > last:
            return ()
        found = self._entries(
            head,
            f"SELECT {_FOUND} FROM by_seq AS i "
            "JOIN entries AS e ON e.pos = i.pos AND e.session = i.session "
            "WHERE i.session = ? AND i.seq BETWEEN ? AND ? ORDER BY i.seq",
            (head.number, first, last),
        )
        if len(found) <= last - first and head.last_pos > self.indexed_pos:
            found += self._entries(
                head,
                f"SELECT {_FOUND} FROM entries AS e "
                "WHERE e.pos > ? AND e.session = ? AND e.seq BETWEEN ? AND ? ORDER BY e.pos",
                (self.indexed_pos, head.number, first, last),
            )
        for seq, stored in enumerate(found, first):
            if stored.seq != seq:
                raise self.damage(head, seq, "its index", f"seq {stored.seq} stands in its place")
        if len(found) <= last - first:
            seq = first + len(found)
            raise self.damage(head, seq, "its index", f"the log goes to {last}, this is not there")
        return tuple(found)

    def _entries(self, head: Head, query: str, values: tuple[int | str, ...]) -> list[StoredEntry]:
        rows = self.run(query, values)
        try:
            return read_rows(rows)
        except DamagedRow as error:
            place = f"position {error.pos}"
            raise self.damage(head, error.seq, place, str(error)) from error
        finally:
            rows.close()  # whoever keeps the error would keep this snapshot open

    def load_entry(self, session_id: str, entry: int | str) -> StoredEntry:
        """One entry, by `seq` or by entry id."""
        head = self.head(session_id)
        if isinstance(entry, int):
            found = self._range(head, entry, entry) if 1 <= entry <= head.last_seq else ()
            stored = found[0] if found else None
        else:
            stored = self._by_id(head, entry, self.tail(head))
        if stored is None:
            raise EntryNotFoundError(session_id, str(entry))
        return stored

    def tail(self, head: Head) -> Mapping[str, int]:
        """The positions of this session's entries that the index does not cover: O(the tail)."""
        if head.last_pos <= self.indexed_pos:
            return {}
        return dict(
            self.run(
                "SELECT entry_id, pos FROM entries WHERE pos > ? AND session = ?",
                (self.indexed_pos, head.number),
            ).fetchall()
        )

    def _by_id(self, head: Head, entry_id: str, tail: Mapping[str, int]) -> StoredEntry | None:
        if not is_text(entry_id):
            return None
        pos = tail.get(entry_id)
        if pos is None:
            rows = self.run(
                "SELECT pos FROM by_id WHERE session = ? AND entry_id = ?", (head.number, entry_id)
            ).fetchall()
            if not rows:
                return None
            pos = rows[0][0]
        found = self._entries(
            head,
            f"SELECT {_FOUND} FROM entries AS e WHERE e.pos = ? AND e.session = ?",
            (pos, head.number),
        )
        if not found or found[0].id != entry_id:
            raise self.damage(head, None, f"position {pos}", f"entry {entry_id!r} is not there")
        return found[0]

    def load_path(self, session_id: str, leaf_id: str, limit: int, until: str | None) -> PathPage:
        """The path that ends in `leaf_id`: at most the last `limit` of it."""
        head = self.head(session_id)
        tail = self.tail(head)
        path: dict[str, StoredEntry] = {}
        entry_id: object = leaf_id
        while isinstance(entry_id, str) and len(path) < limit and until not in path:
            if entry_id in path:
                raise self.damage(head, None, f"entry {entry_id!r}", "its path is a circle")
            stored = self._by_id(head, entry_id, tail)
            if stored is None or not stored.entry.in_tree:
                if not path:
                    raise EntryNotFoundError(session_id, leaf_id, "no such tree entry")
                raise self.damage(
                    head, None, f"entry {entry_id!r}", "a path leads to it, it is not there"
                )
            path[entry_id] = stored
            entry_id = stored.parent_id
        return PathPage(tuple(reversed(path.values())), isinstance(entry_id, str))

    def children(
        self, session_id: str, parent_ids: Iterable[str | None]
    ) -> Mapping[str | None, tuple[str, ...]]:
        """The ids of the tree entries under each parent.

        A regular child is the next tree entry after its parent; the others are in `branches`.
        """
        head = self.head(session_id)
        tail = self.tail(head)
        return {parent_id: self._children(head, parent_id, tail) for parent_id in parent_ids}

    def _children(
        self, head: Head, parent_id: str | None, tail: Mapping[str, int]
    ) -> tuple[str, ...]:
        if parent_id is not None and not is_text(parent_id):
            return ()
        found: list[tuple[int, str]] = self.run(
            "SELECT seq, entry_id FROM branches WHERE session = ? AND parent = ?",
            (head.number, 0 if parent_id is None else parent_id),
        ).fetchall()
        after = 0
        if parent_id is not None:
            parent = self._by_id(head, parent_id, tail)
            if parent is None or not parent.entry.in_tree:
                return tuple(entry_id for _, entry_id in sorted(found))
            after = parent.seq
        follower = self._next_tree_entry(head, after)
        if follower is not None and follower.parent_id == parent_id:
            found = [*{*found, (follower.seq, follower.id)}]
        return tuple(entry_id for _, entry_id in sorted(found))

    def _next_tree_entry(self, head: Head, after: int) -> StoredEntry | None:
        step = 4
        while after < head.last_seq:
            last = min(after + step, head.last_seq)
            for stored in self._range(head, after + 1, last):
                if stored.entry.in_tree:
                    return stored
            after, step = last, min(step * 2, 256)
        return None

    def damage(self, head: Head, seq: int | None, place: str, detail: str) -> JournalCorruptError:
        """The error of damage that was found in this session."""
        return JournalCorruptError(head.session_id, seq, f"{self.place}, {place}", detail)


def is_text(value: str) -> bool:
    """Whether SQLite can be asked for it; a lone surrogate is in no entry's id."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_utf8(value: bytes) -> bool:
    """Whether it is still the text that was stored."""
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
