"""The store in one SQLite file, shared by processes of one machine: `SqliteStore`.

One writer thread groups the commits of all waiting sessions; readers have connections of their own
and never wait for it. `schema.py` is the file's format.
"""

from perdure.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
