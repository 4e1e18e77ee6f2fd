"""What every JournalStore promises of snapshots: kept beside a journal, and never a part of it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from perdure.errors import (
    InvalidSessionIdError,
    SessionDeletedError,
    SessionNotFoundError,
    StoreUnavailableError,
)
from perdure.server.journal import JournalStore
from perdure.snapshot import Snapshot
from perdure.store import Session
from perdure.testing.journal_cases import JournalCases
from perdure.testing.nasty import INVALID_SESSION_IDS
from perdure.testing.store_cases import messages, raws


def snapshot_at(session: Session, seq: int, data: bytes = b"\x00state\n\xff") -> Snapshot:
    """A snapshot of this incarnation."""
    return Snapshot(seq, 7, session.incarnation, data)


class SnapshotCases(JournalCases):
    """Put, get and prune: one behaviour a case."""

    async def test_the_newest_snapshot_up_to_a_seq_is_given_back(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            session = await store.create_session("s", entries=messages(9))
            assert await store.load_snapshot("s") is None
            kept = [snapshot_at(session, seq, b"%d" % seq) for seq in (3, 9, 5)]
            for snapshot in kept:
                await store.put_snapshot("s", snapshot)
            assert await store.load_snapshot("s") == kept[1]
            assert await store.load_snapshot("s", at_most=8) == kept[2]
            assert await store.load_snapshot("s", at_most=3) == kept[0]
            assert await store.load_snapshot("s", at_most=2) is None

    async def test_a_snapshot_takes_the_place_of_one_of_its_seq(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            session = await store.create_session("s", entries=messages(2))
            await store.put_snapshot("s", snapshot_at(session, 2, b"one"))
            await store.put_snapshot("s", snapshot_at(session, 2, b""))
            assert await store.load_snapshot("s") == snapshot_at(session, 2, b"")
            assert await store.prune_snapshots("s", keep=0) == 1

    async def test_snapshots_change_nothing_else(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            session = await store.create_session("s", entries=messages(3), summary=b"sum")
            await store.create_session("t")
            before = await store.list_sessions()
            heard: list[str] = []
            end = store.subscribe(heard.append)
            for seq in (1, 2, 3):
                await store.put_snapshot("s", snapshot_at(session, seq))
            await store.prune_snapshots("s")
            await asyncio.sleep(0)
            end()
            assert heard == []
            assert await store.list_sessions() == before
            assert raws(await store.load_entries("s")) == raws(messages(3))
            assert (await store.append_entries("s", messages(4)[3:], expected_seq=3)).last_seq == 4

    async def test_pruning_keeps_the_newest_of_one_session(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            assert await self._pruned_of_none(store) == 0
            session = await store.create_session("s", entries=messages(9))
            other = await store.create_session("t", entries=messages(9))
            for seq in range(1, 6):
                await store.put_snapshot("s", snapshot_at(session, seq))
                await store.put_snapshot("t", snapshot_at(other, seq))
            assert await store.prune_snapshots("s") == 3
            assert await store.prune_snapshots("s") == 0
            for seq in (5, 4):
                assert await store.load_snapshot("s", at_most=seq) == snapshot_at(session, seq)
            assert await store.load_snapshot("s", at_most=3) is None
            assert await store.load_snapshot("t", at_most=3) == snapshot_at(other, 3)

    async def _pruned_of_none(self, store: JournalStore) -> int:
        await store.create_session("none")
        return await store.prune_snapshots("none")

    async def test_a_new_incarnation_has_no_snapshots(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            old = await store.create_session("s", entries=messages(2))
            await store.put_snapshot("s", snapshot_at(old, 2))
            await store.delete_session("s")
            with pytest.raises(SessionDeletedError):
                await store.put_snapshot("s", snapshot_at(old, 2))
            new = await store.create_session("s", entries=messages(2))
            assert await store.load_snapshot("s") is None
            with pytest.raises(SessionDeletedError):
                await store.put_snapshot("s", snapshot_at(old, 2))
            await store.put_snapshot("s", snapshot_at(new, 1))
            assert await store.load_snapshot("s") == snapshot_at(new, 1)

    async def test_snapshots_outlive_a_restart(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            session = await store.create_session("s", entries=messages(2))
            await store.put_snapshot("s", snapshot_at(session, 1))
        async with await self.open_again(tmp_path) as store:
            assert await store.load_snapshot("s") == snapshot_at(session, 1)

    @pytest.mark.parametrize("session_id", INVALID_SESSION_IDS, ids=ascii)
    async def test_an_invalid_id_has_no_snapshots(self, tmp_path: Path, session_id: str) -> None:
        async with await self.open_store(tmp_path) as store:
            for verb in (
                lambda: store.put_snapshot(session_id, Snapshot(0, 1, "i", b"")),
                lambda: store.load_snapshot(session_id),
                lambda: store.prune_snapshots(session_id),
            ):
                with pytest.raises(InvalidSessionIdError):
                    await verb()

    async def test_snapshots_are_of_sessions_that_are_there(self, tmp_path: Path) -> None:
        store = await self.open_store(tmp_path)
        for verb in (
            lambda: store.put_snapshot("s", Snapshot(0, 1, "i", b"")),
            lambda: store.load_snapshot("s"),
            lambda: store.prune_snapshots("s"),
        ):
            with pytest.raises(SessionNotFoundError):
                await verb()
        await store.create_session("s")
        await store.close()
        for verb in (
            lambda: store.put_snapshot("s", Snapshot(0, 1, "i", b"")),
            lambda: store.load_snapshot("s"),
            lambda: store.prune_snapshots("s"),
        ):
            with pytest.raises(StoreUnavailableError):
                await verb()
