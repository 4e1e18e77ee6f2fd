"""Checks a session to the last byte: what `perdure verify` runs on a SQLite file."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import UNSET

from perdure.codec import next_sum, read_entry
from perdure.errors import JournalCorruptError
from perdure.store import Head as LogHead
from perdure.store import Verified, owner_after
from perdure.stores.sqlite.reader import Head, Reader, is_utf8
from perdure.stores.sqlite.schema import KINDS, has_owners, has_snapshots

_INDEXED = """
SELECT e.pos, i.seq, e.session, e.seq, e.entry_id, e.parent, e.sum, e.raw, d.pos
FROM by_seq AS i LEFT JOIN entries AS e ON e.pos = i.pos
LEFT JOIN by_id AS d ON d.session = i.session AND d.entry_id = e.entry_id
WHERE i.session = ? ORDER BY i.seq
"""
_TAIL = """
SELECT pos, seq, session, seq, entry_id, parent, sum, raw, pos
FROM entries WHERE pos > ? AND session = ? ORDER BY pos
"""


def verify_session(reader: Reader, session_id: str) -> Verified:
    """Reads everything of a session and holds it against its sums and its index.

    O(the session) in time; memory for its entry ids.

    Raises:
        JournalCorruptError: the first damage that was found.

    """
    head = reader.head(session_id)
    last_sum = head.session.first_sum
    last_tree_id: str | None = None
    branches: list[tuple[str | int, int, str]] = []
    ids: set[str] = set()
    owner: str | None = None
    seq = 0
    last_pos = 0
    for pos, index_seq, number, own_seq, entry_id, parent, stored_sum, raw, id_pos in _rows(
        reader, head
    ):
        seq += 1
        place = f"position {pos}"
        if pos is None or number != head.number or own_seq != index_seq:
            raise reader.damage(head, seq, "its index", "it leads to no entry of this session")
        if own_seq != seq or pos <= last_pos:
            raise reader.damage(head, seq, place, f"seq {own_seq} stands in its place")
        if id_pos != pos or entry_id in ids:
            raise reader.damage(head, seq, place, f"entry id {entry_id!r} is not indexed once")
        try:
            entry = read_entry(raw)
        except ValueError as error:
            raise reader.damage(head, seq, place, str(error)) from error
        last_sum = next_sum(last_sum, raw)
        if stored_sum != last_sum:
            raise reader.damage(head, seq, place, "its running sum is not that of its bytes")
        in_tree = entry.parent_id is not UNSET
        expected = None if not in_tree else 0 if entry.parent_id is None else entry.parent_id
        if entry.id != entry_id or parent != expected or type(parent) is not type(expected):
            raise reader.damage(head, seq, place, "its columns are not those of its bytes")
        if parent is not None:
            if entry.parent_id != last_tree_id:
                branches.append((parent, seq, entry_id))
            last_tree_id = entry_id
        owner = owner_after([entry]) or owner
        ids.add(entry_id)
        last_pos = pos
    if (head.last_seq, head.last_pos) != (seq, last_pos) and (seq or head.last_seq):
        raise reader.damage(head, seq, "its row", f"it says that the log goes to {head.last_seq}")
    _check_row(reader, head, (last_sum, last_tree_id))
    _check_branches(reader, head, branches)
    _check_owner(reader, head, owner)
    return Verified(LogHead(seq, last_sum))


def _rows(
    reader: Reader, head: Head
) -> Iterator[tuple[int, int, int, int, str, str | int | None, bytes, bytes, int]]:
    yield from reader.run(_INDEXED, (head.number,))
    yield from reader.run(_TAIL, (reader.indexed_pos, head.number))


def _check_row(reader: Reader, head: Head, expected: tuple[bytes, str | None]) -> None:
    query = "SELECT last_sum, last_tree_id, incarnation FROM sessions WHERE number = ?"
    ((last_sum, last_tree_id, incarnation),) = reader.run(query, (head.number,)).fetchall()
    if (last_sum, last_tree_id) != expected:
        raise reader.damage(head, head.last_seq, "its row", "it does not agree with its entries")
    if incarnation != head.session.incarnation:
        raise reader.damage(head, None, "its row", "it does not agree with its header")
    for table in ("by_seq", "by_id"):
        query = f"SELECT count(*) FROM {table} WHERE session = ?"
        count = reader.run(query, (head.number,)).fetchall()[0][0]
        query = "SELECT count(*) FROM entries WHERE pos > ? AND session = ?"
        tail = reader.run(query, (reader.indexed_pos, head.number)).fetchall()[0][0]
        if count + tail != head.last_seq:
            raise reader.damage(head, None, f"index {table}", f"{count} of its entries are there")


def _check_branches(
    reader: Reader,
    head: Head,
    expected: list[tuple[str | int, int, str]],
) -> None:
    query = "SELECT parent, seq, entry_id FROM branches WHERE session = ? ORDER BY seq"
    if reader.run(query, (head.number,)).fetchall() != expected:
        raise reader.damage(head, None, "index branches", "it does not agree with the entries")


def _check_owner(reader: Reader, head: Head, owner: str | None) -> None:
    found: list[tuple[str, int]] = []
    if has_owners(reader.connection):
        query = "SELECT owner, last_pos FROM owners WHERE session = ?"
        found = reader.run(query, (head.number,)).fetchall()
    if found != ([] if owner is None else [(owner, head.last_pos)]):
        raise reader.damage(head, None, "table owners", "it does not agree with the entries")


_ORPHANS = """
SELECT DISTINCT session FROM {} AS t WHERE NOT EXISTS
(SELECT 1 FROM sessions WHERE number = t.session AND deleted = 0) ORDER BY session LIMIT 20
"""


def verify_store(reader: Reader) -> list[JournalCorruptError]:
    """Damage that belongs to no living session: the file's structure, rows without a session.

    And that of the journals of other kinds. O(the file).
    """
    found = [
        JournalCorruptError("", None, reader.place, str(problem))
        for (problem,) in reader.run("PRAGMA integrity_check(20)")
        if problem != "ok"
    ]
    tables = ["entries", "by_seq", "by_id", "branches"]
    if has_snapshots(reader.connection):
        tables.append("snapshots")
    if has_owners(reader.connection):
        tables.append("owners")
    for table in tables:
        for (number,) in reader.run(_ORPHANS.format(table)).fetchall():
            detail = f"its table {table} has rows of session number {number}, which is not there"
            found.append(JournalCorruptError("", None, reader.place, detail))
    query = (
        "SELECT CAST(session_id AS BLOB), CAST(kind AS BLOB), deleted FROM sessions "
        f"WHERE kind NOT IN ({', '.join('?' * len(KINDS))}) OR deleted NOT IN (0, 1)"
    )
    for name, kind, deleted in reader.run(query, KINDS).fetchall():
        detail = f"its row is of the kind {kind!r} ({deleted}), which this version does not know"
        found.append(JournalCorruptError(name.decode(errors="replace"), None, reader.place, detail))
    query = "SELECT CAST(session_id AS BLOB) FROM sessions WHERE deleted = 0"
    for (name,) in reader.run(query).fetchall():
        if not is_utf8(name):
            detail = f"a session's id, {name!r}, is not UTF-8"
            found.append(JournalCorruptError("", None, reader.place, detail))
    for other in KINDS:
        if other != reader.kind:
            found += _verify_kind(Reader(reader.connection, reader.path, other))
    return found


def _verify_kind(reader: Reader) -> list[JournalCorruptError]:
    found = []
    for name in reader.session_ids():
        try:
            verify_session(reader, name)
        except JournalCorruptError as error:
            found.append(error)
    return found
