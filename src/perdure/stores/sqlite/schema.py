"""The format of the file, number 1. Files of this format are read for ever.

`entries` is append-only and keyed by position, the order of appends in the whole file. Finding an
entry by (session, seq) and by (session, entry id) goes through `by_seq` and `by_id`, which cover
the positions up to `indexed_pos`; the few above are the *tail*, and are scanned. Filling the two in
runs, and not with every append, is what keeps an append cheap.

Invariants: a position is never given twice, not after a deletion either (`last_pos` in `meta`
remembers creations and deletions); a session's number is one incarnation's and never used again;
`by_seq` and `by_id` have exactly the entries with pos <= indexed_pos.
"""

from __future__ import annotations

from typing import get_args

import apsw

from perdure import clock
from perdure.store import Kind

APPLICATION_ID = 0x50455244
"""`PRAGMA application_id`: "PERD"."""

FILE_FORMAT = 1
"""`PRAGMA user_version`: the newest format of a file that this version writes."""

PAGE_SIZE = 8192
TAIL_LENGTH = 2048
"""How many positions the tail reaches before it is moved into the index tables."""

KINDS: tuple[Kind, ...] = get_args(Kind)

_TABLES = """
CREATE TABLE meta (          -- 'indexed_pos', 'last_pos', 'store_id'
  name TEXT PRIMARY KEY,
  value ANY NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE sessions (
  number INTEGER PRIMARY KEY,  -- of this incarnation, for ever
  kind TEXT NOT NULL,          -- 'session', 'routine', 'workflow'; ids are unique within a kind
  session_id TEXT NOT NULL,    -- compared byte for byte
  incarnation TEXT NOT NULL,
  header BLOB NOT NULL,        -- the session's JSON; empty in a tombstone
  deleted INTEGER NOT NULL,    -- 1: a tombstone, kept for ever
  last_seq INTEGER NOT NULL,
  last_sum BLOB NOT NULL,      -- the running sum there
  last_pos INTEGER NOT NULL,   -- of the newest append, or of the creation
  last_tree_id TEXT,           -- entry id of the newest tree entry
  summary BLOB                 -- the server's, opaque
) STRICT;
CREATE UNIQUE INDEX living ON sessions (kind, session_id) WHERE deleted = 0;
CREATE INDEX tombstones ON sessions (kind, session_id, incarnation) WHERE deleted = 1;
CREATE INDEX newest ON sessions (kind, last_pos) WHERE deleted = 0;

CREATE TABLE entries (
  pos INTEGER PRIMARY KEY,
  session INTEGER NOT NULL,    -- sessions.number
  seq INTEGER NOT NULL,
  entry_id TEXT NOT NULL,
  parent ANY,                  -- null: a fact; 0: a root; else the parent's entry id
  sum BLOB NOT NULL,           -- the running sum after this entry, 16 bytes
  raw BLOB NOT NULL
) STRICT;

CREATE TABLE by_seq (
  session INTEGER NOT NULL,
  seq INTEGER NOT NULL,
  pos INTEGER NOT NULL,
  PRIMARY KEY (session, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE by_id (
  session INTEGER NOT NULL,
  entry_id TEXT NOT NULL,
  pos INTEGER NOT NULL,
  PRIMARY KEY (session, entry_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE branches (      -- the tree entries that do not grow from the tree entry before them
  session INTEGER NOT NULL,
  parent ANY NOT NULL,         -- as in entries
  seq INTEGER NOT NULL,
  entry_id TEXT NOT NULL,
  PRIMARY KEY (session, parent, seq)
) STRICT, WITHOUT ROWID;
"""

SNAPSHOTS = """
CREATE TABLE IF NOT EXISTS snapshots (  -- made when the first one is put: older files have none
  session INTEGER NOT NULL,    -- sessions.number, so of one incarnation
  seq INTEGER NOT NULL,
  schema INTEGER NOT NULL,
  data BLOB NOT NULL,          -- the server's, opaque
  PRIMARY KEY (session, seq)
) STRICT, WITHOUT ROWID
"""
"""Part of format 1: a version that does not know the table leaves it alone."""


OWNERS = """
CREATE TABLE owners (        -- made when the first session gets an owner: older files have none
  session INTEGER PRIMARY KEY, -- sessions.number
  owner TEXT NOT NULL,         -- the principal of its newest session_owned
  last_pos INTEGER NOT NULL    -- as in sessions
) STRICT;
CREATE INDEX newest_of ON owners (owner, last_pos);
CREATE TRIGGER owners_move AFTER UPDATE OF last_pos ON sessions BEGIN
  UPDATE owners SET last_pos = NEW.last_pos WHERE session = NEW.number;
END;
CREATE TRIGGER owners_leave AFTER UPDATE OF deleted ON sessions WHEN NEW.deleted = 1 BEGIN
  DELETE FROM owners WHERE session = NEW.number;
END;
"""
"""Part of format 1, too: a version that does not know the table keeps it true by its triggers."""


def has_snapshots(connection: apsw.Connection) -> bool:
    """Whether the table is there."""
    return _has_table(connection, "snapshots")


def has_owners(connection: apsw.Connection) -> bool:
    """Whether the table is there; without it no session has an owner."""
    return _has_table(connection, "owners")


def _has_table(connection: apsw.Connection, name: str) -> bool:
    query = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?"
    return bool(connection.execute(query, (name,)).fetchall())


def create_tables(connection: apsw.Connection) -> None:
    """Makes an empty file a store; to be called inside a transaction."""
    connection.execute(_TABLES)
    connection.cursor().executemany(
        "INSERT INTO meta VALUES (?, ?)",
        [("indexed_pos", 0), ("last_pos", 0), ("store_id", clock.new_id()[-8:])],
    )
    for name, value in (("application_id", APPLICATION_ID), ("user_version", FILE_FORMAT)):
        connection.execute(f"PRAGMA {name} = {value}").fetchall()
