"""What the writer remembers of the file, and the verbs that change it, inside one transaction.

Everything in memory is a copy of what the file says, bounded, and believed only while nobody else
has committed (`PRAGMA data_version`). A verb raises before it has changed anything, or not at all;
new rows are collected and written by `flush`. After a failure the whole ledger is thrown away.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw
from msgspec import UNSET

from perdure.codec import Entry, StoredEntry, next_sum, read_entry
from perdure.errors import (
    FormatTooNewError,
    JournalCorruptError,
    SessionDeletedError,
    SessionExistsError,
    SessionNotFoundError,
)
from perdure.snapshot import Snapshot
from perdure.store import (
    Kind,
    Receipt,
    Session,
    owner_after,
    place_batch,
    read_session,
    receipt_of,
)
from perdure.stores.sqlite.connection import pragma
from perdure.stores.sqlite.reader import is_text
from perdure.stores.sqlite.schema import (
    FILE_FORMAT,
    OWNERS,
    SNAPSHOTS,
    TAIL_LENGTH,
    has_owners,
    has_snapshots,
)

_REMEMBERED_SESSIONS = 1024

_FIND = """
SELECT number, header, last_seq, last_sum, last_pos, last_tree_id,
  EXISTS (SELECT 1 FROM by_seq WHERE by_seq.session = sessions.number)
FROM sessions WHERE kind = ? AND session_id = ? AND deleted = 0
"""
_WRITE_END = """
UPDATE sessions SET last_seq = ?, last_sum = ?, last_pos = ?, last_tree_id = ?,
  summary = coalesce(?, summary)
WHERE number = ?
"""
_WRITE_OWNER = """
INSERT INTO owners VALUES (?, ?, ?)
ON CONFLICT (session) DO UPDATE SET owner = excluded.owner, last_pos = excluded.last_pos
"""
_Row = tuple[int, int, int, str, str | int | None, bytes, bytes]


@dataclass(slots=True)
class _End:
    """Where a session's log stands; `is_indexed`: some of its entries may be below the tail.

    `greatest_id` is the greatest of their ids, None where it was not looked up: what is above it is
    not among them. Ids of this program's making grow with time, so an append looks nothing up.
    """

    number: int
    session: Session
    last_seq: int
    last_sum: bytes
    last_pos: int
    last_tree_id: str | None
    is_indexed: bool
    new_summary: bytes | None = None
    greatest_id: str | None = None


class Ledger:
    """The file as its writer sees it; used by one thread, between `begin` and `commit`.

    `kind` is that of the journals which the next verb speaks of.
    """

    def __init__(self, connection: apsw.Connection, path: Path) -> None:
        self.kind: Kind = "session"
        self._connection = connection
        self._cursor = connection.cursor()
        self._run: Callable[..., Any] = self._cursor.execute
        self._place = f"file {str(path)!r}"
        self._data_version: object = None
        self._indexed_pos = -1
        self._last_pos = 0
        self._tail: dict[tuple[int, str], int] = {}
        self._ends: OrderedDict[tuple[Kind, str], _End] = OrderedDict()
        self._rows: list[_Row] = []
        self._branches: list[tuple[int, str | int, int, str]] = []
        self._changed: dict[int, _End] = {}
        self._owners: dict[int, tuple[_End, str]] = {}
        self._writes_last_pos = False
        self.hints: dict[tuple[Kind, str], None] = {}

    @property
    def last_pos(self) -> int:
        """The newest position that was given: it never becomes less."""
        return self._last_pos

    def begin(self) -> None:
        """Takes the file for writing, and forgets what another process may have changed.

        Raises:
            FormatTooNewError: a newer version has made the file its own.

        """
        self._run("BEGIN IMMEDIATE")
        version = self._run("PRAGMA data_version").fetchall()[0][0]
        if version != self._data_version:
            self._catch_up()
            self._data_version = version

    def _catch_up(self) -> None:
        file_format = pragma(self._connection, "user_version")
        if not isinstance(file_format, int) or file_format > FILE_FORMAT:
            self._run("ROLLBACK")
            raise FormatTooNewError(self._place, int(str(file_format)), FILE_FORMAT)
        self._ends.clear()
        meta: dict[str, int] = dict(self._run("SELECT name, value FROM meta").fetchall())
        if meta["indexed_pos"] != self._indexed_pos:
            self._tail.clear()
            self._indexed_pos = self._last_pos = meta["indexed_pos"]
        rows = self._run(
            "SELECT session, CAST(entry_id AS BLOB), pos FROM entries WHERE pos > ?",
            (self._last_pos,),
        )
        for number, entry_id, pos in rows:  # one that is damaged concerns its own session only
            self._tail[number, entry_id.decode(errors="replace")] = pos
            self._last_pos = pos
        self._last_pos = max(self._last_pos, meta["last_pos"])

    def create_session(
        self, session: Session, entries: Sequence[Entry], summary: bytes | None
    ) -> Session:
        """Creates the session with its first entries."""
        if self._find(session.id) is not None:
            raise SessionExistsError(session.id)
        place_batch(session, entries, {}, last_seq=0, expected_seq=None, incarnation=None)
        if not entries:
            self._last_pos += 1
            self._writes_last_pos = True
        self._run(
            "INSERT INTO sessions VALUES (NULL, ?, ?, ?, ?, 0, 0, ?, ?, NULL, ?)",
            (
                self.kind,
                session.id,
                session.incarnation,
                session.header,
                session.first_sum,
                self._last_pos,
                summary,
            ),
        )
        number = self._connection.last_insert_rowid()
        end = _End(number, session, 0, session.first_sum, self._last_pos, None, is_indexed=False)
        self._ends[self.kind, session.id] = end
        self._add(end, entries)
        self.hints[self.kind, session.id] = None
        return session

    def append_entries(
        self,
        session_id: str,
        entries: Sequence[Entry],
        expected_seq: int | None,
        incarnation: str | None,
        summary: bytes | None,
    ) -> Receipt:
        """Appends the batch, or says that it is there."""
        end = self._find(session_id)
        if end is None:
            raise self._absent(session_id, incarnation)
        receipt = place_batch(
            end.session,
            entries,
            self._stored(end, entries),
            last_seq=end.last_seq,
            expected_seq=expected_seq,
            incarnation=incarnation,
        )
        if receipt is not None:
            return receipt
        stored = self._add(end, entries)
        if summary is not None:
            end.new_summary = summary
        self.hints[self.kind, session_id] = None
        return receipt_of(stored)

    def delete_session(self, session_id: str) -> None:
        """Removes everything of the session but its tombstone: O(its entries)."""
        self.flush()
        key = (self.kind, session_id)
        self._ends.pop(key, None)
        found = self._run(
            "SELECT number FROM sessions WHERE kind = ? AND session_id = ? AND deleted = 0", key
        ).fetchall()
        if not found:
            raise SessionNotFoundError(session_id)
        number = found[0][0]
        self._run(
            "DELETE FROM entries WHERE pos IN (SELECT pos FROM by_seq WHERE session = ?)", (number,)
        )
        self._run("DELETE FROM entries WHERE pos > ? AND session = ?", (self._indexed_pos, number))
        tables = ["by_seq", "by_id", "branches"]
        if has_snapshots(self._connection):
            tables.append("snapshots")
        for table in tables:
            self._run(f"DELETE FROM {table} WHERE session = ?", (number,))
        self._run(
            "UPDATE sessions SET deleted = 1, header = x'', summary = NULL WHERE number = ?",
            (number,),
        )
        self._writes_last_pos = True
        self.hints[self.kind, session_id] = None

    def put_snapshot(self, session_id: str, snapshot: Snapshot) -> None:
        """Keeps a snapshot, in the place of one of the same `seq`."""
        end = self._find(session_id)
        if end is None:
            raise self._absent(session_id, snapshot.incarnation)
        end.session.check_incarnation(snapshot.incarnation)
        end.session.check_writable()
        self._run(SNAPSHOTS)
        self._run(
            "INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?, ?)",
            (end.number, snapshot.seq, snapshot.schema, snapshot.data),
        )

    def prune_snapshots(self, session_id: str, keep: int) -> int:
        """Forgets all but the newest `keep`; returns how many."""
        end = self._find(session_id)
        if end is None:
            raise SessionNotFoundError(session_id)
        if not has_snapshots(self._connection):
            return 0
        self._run(
            "DELETE FROM snapshots WHERE session = ?1 AND seq NOT IN "
            "(SELECT seq FROM snapshots WHERE session = ?1 ORDER BY seq DESC LIMIT ?2)",
            (end.number, max(keep, 0)),
        )
        return self._connection.changes()

    def flush(self) -> None:
        """Writes what the verbs have collected; the file then says all that memory says."""
        many = self._cursor.executemany
        if self._rows:
            many("INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?)", self._rows)
            self._rows = []
        if self._branches:
            many("INSERT INTO branches VALUES (?, ?, ?, ?)", self._branches)
            self._branches = []
        if self._changed:
            many(_WRITE_END, [_end_row(end) for end in self._changed.values()])
            self._changed = {}
        if self._owners:
            if not has_owners(self._connection):
                self._run(OWNERS)
            owned = [(end.number, owner, end.last_pos) for end, owner in self._owners.values()]
            many(_WRITE_OWNER, owned)
            self._owners = {}
        if self._writes_last_pos:
            self._run("UPDATE meta SET value = ? WHERE name = 'last_pos'", (self._last_pos,))
            self._writes_last_pos = False

    def commit(self) -> None:
        """Makes it durable."""
        self._run("COMMIT")
        while len(self._ends) > _REMEMBERED_SESSIONS:
            self._ends.popitem(last=False)

    def tidy(self) -> None:
        """Moves the tail into the index, when it has become long; after `flush`."""
        if self._last_pos - self._indexed_pos < TAIL_LENGTH:
            return
        for table, key in (("by_seq", "seq"), ("by_id", "entry_id")):
            self._run(
                f"INSERT INTO {table} SELECT session, {key}, pos FROM entries WHERE pos > ? "
                f"ORDER BY session, {key}",
                (self._indexed_pos,),
            )
        self._indexed_pos = self._last_pos
        for name in ("indexed_pos", "last_pos"):
            self._run("UPDATE meta SET value = ? WHERE name = ?", (self._last_pos, name))
        greatest: dict[int, str] = {}
        for number, entry_id in self._tail:
            if entry_id > greatest.get(number, ""):
                greatest[number] = entry_id
        self._tail.clear()
        for end in self._ends.values():
            newest = greatest.get(end.number, "")
            if not end.is_indexed:  # all that it has was in the tail
                end.is_indexed, end.greatest_id = True, newest
            elif end.greatest_id is not None:
                end.greatest_id = max(end.greatest_id, newest)

    def _add(self, end: _End, entries: Sequence[Entry]) -> list[StoredEntry]:
        stored = []
        number, seq, total, pos = end.number, end.last_seq, end.last_sum, self._last_pos
        for entry in entries:
            seq, pos, entry_id, raw = seq + 1, pos + 1, entry.id, entry.raw
            total = next_sum(total, raw)
            parent: str | int | None = None
            if (parent_id := entry.parent_id) is not UNSET:
                parent = 0 if parent_id is None else parent_id
                if parent_id != end.last_tree_id:
                    self._branches.append((number, parent, seq, entry_id))
                end.last_tree_id = entry_id
            self._rows.append((pos, number, seq, entry_id, parent, total, raw))
            self._tail[number, entry_id] = pos
            stored.append(StoredEntry(seq, entry))
        if stored:
            end.last_seq, end.last_sum, end.last_pos = seq, total, pos
            self._last_pos = pos
            self._changed[number] = end
        if (owner := owner_after(entries)) is not None:
            self._owners[number] = end, owner
        return stored

    def _find(self, session_id: str) -> _End | None:
        key = (self.kind, session_id)
        end = self._ends.get(key)
        if end is not None:
            self._ends.move_to_end(key)
            return end
        rows = self._run(_FIND, key).fetchall()
        if not rows:
            return None
        number, header, *rest = rows[0]
        try:
            session = read_session(header)
        except ValueError as error:
            place = f"{self._place}, header"
            raise JournalCorruptError(session_id, None, place, str(error)) from error
        end = self._ends[key] = _End(number, session, *rest)
        return end

    def _absent(self, session_id: str, incarnation: str | None) -> Exception:
        if incarnation is None or not is_text(incarnation):
            return SessionNotFoundError(session_id)
        tombstones = self._run(
            "SELECT 1 FROM sessions "
            "WHERE kind = ? AND session_id = ? AND incarnation = ? AND deleted = 1",
            (self.kind, session_id, incarnation),
        ).fetchall()
        if tombstones:
            return SessionDeletedError(session_id, incarnation)
        return SessionNotFoundError(session_id)

    def _stored(self, end: _End, entries: Iterable[Entry]) -> Mapping[str, StoredEntry]:
        known = {}
        for entry in entries:
            entry_id = entry.id
            pos = self._tail.get((end.number, entry_id))
            if pos is None and end.is_indexed and entry_id <= self._greatest_id(end):
                rows = self._run(
                    "SELECT pos FROM by_id WHERE session = ? AND entry_id = ?",
                    (end.number, entry_id),
                ).fetchall()
                pos = rows[0][0] if rows else None
            if pos is not None:
                known[entry_id] = self._read(end, entry_id, pos)
        return known

    def _greatest_id(self, end: _End) -> str:
        if end.greatest_id is None:
            query = "SELECT max(entry_id) FROM by_id WHERE session = ?"
            end.greatest_id = self._run(query, (end.number,)).fetchall()[0][0] or ""
        return end.greatest_id

    def _read(self, end: _End, entry_id: str, pos: int) -> StoredEntry:
        self.flush()
        rows = self._run(
            "SELECT seq, raw FROM entries WHERE pos = ? AND session = ? AND entry_id = ?",
            (pos, end.number, entry_id),
        ).fetchall()
        place = f"{self._place}, position {pos}"
        if not rows:
            detail = f"the index has entry {entry_id!r} there, it is not"
            raise JournalCorruptError(end.session.id, None, place, detail)
        try:
            return StoredEntry(rows[0][0], read_entry(rows[0][1]))
        except ValueError as error:
            raise JournalCorruptError(end.session.id, rows[0][0], place, str(error)) from error


def _end_row(end: _End) -> tuple[int, bytes, int, str | None, bytes | None, int]:
    summary, end.new_summary = end.new_summary, None
    return end.last_seq, end.last_sum, end.last_pos, end.last_tree_id, summary, end.number
