"""Every call that SQLite makes fails once while snapshots are kept: no entry is harmed by that."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import cast

import apsw
import pytest

from perdure.errors import SessionNotFoundError
from perdure.snapshot import Snapshot
from perdure.stores.sqlite import SqliteStore
from perdure.testing.store_cases import messages
from tests.faults import scenario
from tests.faults.record import Asked, Recorder
from tests.faults.sqlite_check import check_file
from tests.faults.test_jsonl_power import IS_THOROUGH
from tests.faults.test_sqlite_faults import known_of
from tests.faults.vfs import KINDS, TracedVfs

SCHEMA = 7


def data_at(seq: int) -> bytes:
    return b"state at %d" % seq * 300


async def keep(store: Recorder, session_id: str, seq: int) -> None:
    """Tries once, as the server does; a snapshot that is not kept is no loss."""
    inner = cast("SqliteStore", store.store)
    try:
        session = await inner.load_session(session_id)
        await inner.put_snapshot(
            session_id, Snapshot(seq, SCHEMA, session.incarnation, data_at(seq))
        )
        await inner.prune_snapshots(session_id)
    except scenario.FAILURES:
        return


async def delete(store: Recorder, session_id: str) -> None:
    for _ in range(scenario.TRIES):
        try:
            await store.delete_session(session_id)
        except scenario.FAILURES:
            continue
        except SessionNotFoundError:
            store.note("delete", Asked(session_id, (), creates=False))
        return


async def snapshots(store: Recorder) -> None:
    """Appends with snapshots between them, and a deletion that takes them along."""
    await scenario.create(store, "s", messages(2, "first"))
    for n in range(1, 5):
        await keep(store, "s", 2 * n)
        await scenario.append(store, "s", messages(2, f"more{n}_"))
    await keep(store, "s", 10)
    await scenario.create(store, "d", messages(2, "old"))
    await keep(store, "d", 2)
    await delete(store, "d")
    await scenario.create(store, "d", messages(1, "new"))


async def check_snapshots(path: Path) -> None:
    """What is there is what was put, of a session that is there."""
    async with SqliteStore(path, synchronous="off") as store:
        for session_id in await store.session_ids():
            at_most: int | None = None
            while found := await store.load_snapshot(session_id, at_most=at_most):
                assert found.data == data_at(found.seq)
                assert found.seq <= (await store.look(session_id)).last_seq
                at_most = found.seq - 1
        assert await store.verify_store() == []


@pytest.mark.parametrize("kind", KINDS)
async def test_whichever_call_fails_the_entries_and_the_snapshots_are_sound(
    tmp_path: Path, kind: str
) -> None:
    struck = 0
    errors = [apsw.IOError, apsw.FullError] if IS_THOROUGH else [apsw.FullError]
    for error in errors:
        for at in range(1, 1000, 1 if IS_THOROUGH or kind == "sync" else 7):
            root = tmp_path / "root"
            root.mkdir()
            with TracedVfs() as vfs:
                vfs.kind, vfs.fails_at, vfs.times, vfs.error = kind, at, 1, error
                async with SqliteStore(root / "s.db") as store:
                    await snapshots(Recorder(store, vfs.note))
            await check_snapshots(root / "s.db")
            await check_file(root / "s.db", known_of(vfs))
            shutil.rmtree(root)
            if not vfs.has_struck:
                break
            struck += 1
    assert struck > 0
