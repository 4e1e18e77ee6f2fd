"""Holds a SQLite file against what was acknowledged, and goes on from there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import apsw

from perdure.codec import StoredEntry
from perdure.errors import SessionNotFoundError
from perdure.stores.sqlite import SqliteStore
from perdure.testing.store_cases import messages, raws
from tests.faults.record import Asked, Known


async def check_file(path: Path, known: Known) -> None:
    """Reads, retries and appends as a new process would; SQLite itself finds no fault either."""
    async with SqliteStore(path, synchronous="off") as store:
        for session_id in known.session_ids():
            await _check_session(store, session_id, known)
        for session_id in known.deleted.difference(known.session_ids()):
            assert session_id not in await store.session_ids(), f"{session_id} was deleted"
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    answer = connection.execute("PRAGMA integrity_check").fetchall()
    connection.close()
    assert answer == [("ok",)]


async def _check_session(store: SqliteStore, session_id: str, known: Known) -> None:
    found: Sequence[StoredEntry] | None
    try:
        found = await store.load_entries(session_id)
    except SessionNotFoundError:
        found = None
    known.check(session_id, found)
    if found is None:
        await store.create_session(session_id)
        found = ()
    else:
        await store.verify_session(session_id)
    for asked in known.asked_of(session_id):
        if not asked.creates:
            found = await _append(store, found, asked)
    await _append(store, found, Asked(session_id, tuple(messages(2, "after")), creates=False))
    await store.verify_session(session_id)


async def _append(
    store: SqliteStore, found: Sequence[StoredEntry], asked: Asked
) -> Sequence[StoredEntry]:
    """Appends a batch that may be there: afterwards it is, once."""
    before = raws(found)
    is_there = asked.raws[0] in before
    receipt = await store.append_entries(asked.session_id, asked.entries)
    now = await store.load_entries(asked.session_id)
    assert raws(now) == (before if is_there else [*before, *asked.raws])
    assert list(now[receipt.first_seq - 1 : receipt.last_seq]) == list(receipt.entries)
    return now
