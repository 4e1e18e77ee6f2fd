"""What every JournalStore promises of kinds: the same verbs, and never each other's journals."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from perdure.errors import (
    SessionDeletedError,
    SessionExistsError,
    SessionNotFoundError,
    StoreUnavailableError,
)
from perdure.snapshot import Snapshot
from perdure.store import Kind
from perdure.testing.journal_cases import JournalCases
from perdure.testing.store_cases import messages, raws, seqs

_OTHERS: tuple[Kind, ...] = ("routine", "workflow")


class KindCases(JournalCases):
    """Journals of several kinds in one store: one behaviour a case."""

    async def test_an_id_is_unique_within_its_kind_and_only_there(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            session = await store.create_session("x", entries=messages(2), summary=b"session")
            made = {session.incarnation}
            for kind in _OTHERS:
                others = store.of_kind(kind)
                with pytest.raises(SessionNotFoundError):
                    await others.look("x")
                other = await others.create_session("x", entries=messages(1), summary=b"other")
                made.add(other.incarnation)
                with pytest.raises(SessionExistsError):
                    await others.create_session("x")
                await others.append_entries("x", messages(3, "n"), expected_seq=1)
                look = await others.look("x")
                assert (look.session, look.last_seq, look.summary) == (other, 4, b"other")
            assert len(made) == 3
            look = await store.look("x")
            assert (look.session, look.last_seq, look.summary) == (session, 2, b"session")
            assert await store.load_session("x") == session
            assert seqs(await store.load_entries("x")) == [1, 2]

    async def test_the_verbs_of_one_kind_find_nothing_of_another(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            routines = store.of_kind("routine")
            made = await routines.create_session("r", entries=messages(3))
            await routines.put_snapshot("r", Snapshot(3, 1, made.incarnation, b"state"))
            for verb in (
                lambda: store.load_session("r"),
                lambda: store.load_entries("r"),
                lambda: store.append_entries("r", messages(1, "n")),
                lambda: store.look("r"),
                lambda: store.page_entries("r"),
                lambda: store.load_entry("r", 1),
                lambda: store.load_entry("r", "m0"),
                lambda: store.load_path("r", "m0"),
                lambda: store.children("r", [None]),
                lambda: store.load_snapshot("r"),
                lambda: store.prune_snapshots("r"),
                lambda: store.delete_session("r"),
            ):
                with pytest.raises(SessionNotFoundError):
                    await verb()
            assert (await store.list_sessions()).sessions == ()
            assert seqs((await routines.page_entries("r", limit=2)).entries) == [2, 3]
            assert (await routines.load_entry("r", "m1")).seq == 2
            assert await routines.load_snapshot("r") is not None

    async def test_a_listing_is_of_one_kind(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            routines = store.of_kind("routine")
            for n in range(5):
                await store.create_session(f"s{n}")
                await routines.create_session(f"r{n}")
            for listed, prefix in ((store, "s"), (routines, "r")):
                found: list[str] = []
                page = await listed.list_sessions(limit=2)
                while True:
                    found += [look.session.id for look in page.sessions]
                    if page.next is None:
                        break
                    page = await listed.list_sessions(limit=2, after=page.next)
                assert found == [f"{prefix}{n}" for n in (4, 3, 2, 1, 0)]

    async def test_hints_are_of_one_kind(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            routines = store.of_kind("routine")
            heard: asyncio.Queue[str] = asyncio.Queue()
            others: asyncio.Queue[str] = asyncio.Queue()
            end = store.subscribe(heard.put_nowait)
            end_others = routines.subscribe(others.put_nowait)
            await routines.create_session("r")
            await store.create_session("s")
            assert await asyncio.wait_for(heard.get(), 20) == "s"
            assert await asyncio.wait_for(others.get(), 20) == "r"
            assert heard.empty()
            assert others.empty()
            end()
            end_others()

    async def test_a_deletion_is_of_one_kind(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            routines = store.of_kind("routine")
            await store.create_session("x", entries=messages(2))
            gone = await routines.create_session("x", entries=messages(3))
            await routines.delete_session("x")
            assert len(await store.load_entries("x")) == 2
            with pytest.raises(SessionDeletedError):
                await routines.append_entries("x", messages(1, "n"), incarnation=gone.incarnation)
            again = await routines.create_session("x")
            assert again.incarnation != gone.incarnation
            await store.delete_session("x")
            assert await routines.load_session("x") == again

    async def test_journals_of_every_kind_outlive_the_store_and_close_with_it(
        self, tmp_path: Path
    ) -> None:
        store = await self.open_store(tmp_path)
        routines = store.of_kind("routine")
        await routines.create_session("r", entries=messages(3), summary=b"r")
        entries = raws(await routines.load_entries("r"))
        await store.close()
        with pytest.raises(StoreUnavailableError):
            await routines.look("r")
        with pytest.raises(StoreUnavailableError):
            await routines.append_entries("r", messages(1, "n"))
        async with await self.open_again(tmp_path) as store:
            routines = store.of_kind("routine")
            assert raws(await routines.load_entries("r")) == entries
            assert (await routines.look("r")).summary == b"r"
            assert (await store.list_sessions()).sessions == ()
