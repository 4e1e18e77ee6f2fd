"""The conformance suite of `perdure.server.journal.JournalStore`; it includes that of `Store`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from perdure.codec import import_entry
from perdure.errors import (
    InvalidSessionIdError,
    SessionNotFoundError,
    StoreUnavailableError,
)
from perdure.testing.deletion_cases import DeletionCases
from perdure.testing.kind_cases import KindCases
from perdure.testing.listing_cases import ListingCases
from perdure.testing.nasty import INVALID_SESSION_IDS
from perdure.testing.owner_cases import OwnerCases
from perdure.testing.page_cases import PageCases
from perdure.testing.snapshot_cases import SnapshotCases
from perdure.testing.store_cases import messages, placed, raw_entry
from perdure.testing.store_contract import StoreContract


class JournalContract(
    PageCases, ListingCases, DeletionCases, KindCases, OwnerCases, SnapshotCases, StoreContract
):
    """What every JournalStore promises beyond the Store contract, one behaviour a case."""

    # Hints

    async def test_a_hint_follows_what_changed_a_session(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            heard: asyncio.Queue[str] = asyncio.Queue()
            end = store.subscribe(heard.put_nowait)

            async def hears(session_id: str) -> None:
                while await asyncio.wait_for(heard.get(), 20) != session_id:
                    pass

            await store.create_session("a/é")
            await hears("a/é")
            await store.create_session("b")
            await hears("b")
            await store.append_entries("a/é", messages(1))
            await hears("a/é")
            await store.delete_session("b")
            await hears("b")
            end()

    async def test_a_hint_comes_when_its_entries_can_be_read(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            heard = asyncio.Event()
            await store.create_session("s")
            end = store.subscribe(lambda _: heard.set())
            seen = 0
            for n in range(5):
                heard.clear()
                writing = asyncio.ensure_future(store.append_entries("s", messages(1, f"t{n}_")))
                while seen <= n:
                    await asyncio.wait_for(heard.wait(), 20)
                    heard.clear()
                    seen = len(await store.load_entries("s"))
                await writing
            end()
            assert seen == 5

    async def test_a_subscription_that_was_ended_hears_nothing_more(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            one: asyncio.Queue[str] = asyncio.Queue()
            two: asyncio.Queue[str] = asyncio.Queue()
            end_one = store.subscribe(one.put_nowait)
            end_two = store.subscribe(two.put_nowait)
            end_one()
            end_one()
            await store.create_session("s")
            assert await asyncio.wait_for(two.get(), 20) == "s"
            assert one.empty()
            end_two()

    # Ids, unknown sessions, closing

    @pytest.mark.parametrize("session_id", INVALID_SESSION_IDS, ids=ascii)
    async def test_an_invalid_id_is_refused_the_same_by_the_wider_verbs(
        self, tmp_path: Path, session_id: str
    ) -> None:
        async with await self.open_store(tmp_path) as store:
            for verb in (
                lambda: store.look(session_id),
                lambda: store.page_entries(session_id),
                lambda: store.load_entry(session_id, 1),
                lambda: store.load_path(session_id, "m0"),
                lambda: store.children(session_id, [None]),
                lambda: store.delete_session(session_id),
            ):
                with pytest.raises(InvalidSessionIdError):
                    await verb()

    async def test_the_wider_verbs_find_no_session_that_is_not_there(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            for verb in (
                lambda: store.look("s"),
                lambda: store.page_entries("s"),
                lambda: store.load_entry("s", 1),
                lambda: store.load_path("s", "m0"),
                lambda: store.children("s", [None]),
                lambda: store.delete_session("s"),
            ):
                with pytest.raises(SessionNotFoundError):
                    await verb()

    async def test_a_closed_store_attempts_none_of_the_wider_verbs(self, tmp_path: Path) -> None:
        store = await self.open_store(tmp_path)
        await store.create_session("s", entries=messages(1))
        await store.close()
        for verb in (
            lambda: store.look("s"),
            lambda: store.list_sessions(),
            lambda: store.page_entries("s"),
            lambda: store.load_entry("s", 1),
            lambda: store.load_path("s", "m0"),
            lambda: store.children("s", [None]),
            lambda: store.delete_session("s"),
        ):
            with pytest.raises(StoreUnavailableError):
                await verb()

    async def test_what_a_store_opened_again_shows_of_a_session_is_the_same(
        self, tmp_path: Path
    ) -> None:
        unknown = import_entry(raw_entry("u", '"parent_id":"m3","w":1.50', "from_the_future"))
        async with await self.open_store(tmp_path) as store:
            await store.create_session("s", entries=messages(4), summary=b"sum")
            await store.append_entries("s", [unknown, placed("b", "m1")])
            await store.create_session("t")
            looks = await store.list_sessions()
            page = await store.page_entries("s", limit=3)
            path = await store.load_path("s", "u")
            children = dict(await store.children("s", ["m1"]))
        async with await self.open_again(tmp_path) as store:
            assert await store.list_sessions() == looks
            assert await store.page_entries("s", limit=3) == page
            assert await store.load_path("s", "u") == path
            assert dict(await store.children("s", ["m1"])) == children == {"m1": ("m2", "b")}
            assert (await store.load_entry("s", "u")).raw == unknown.raw
