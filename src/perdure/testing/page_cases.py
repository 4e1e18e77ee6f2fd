"""The part of a JournalStore's suite about pages, single entries and paths."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from perdure.errors import (
    EntryNotFoundError,
    JournalCorruptError,
)
from perdure.fact import LeafMoved
from perdure.testing.journal_cases import JournalCases
from perdure.testing.store_cases import messages, placed, seqs


class PageCases(JournalCases):
    """A journal read in pages, and its tree read back from a leaf."""

    async def test_a_page_without_bounds_is_the_newest(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            session = await store.create_session("s")
            empty = await store.page_entries("s")
            assert (empty.entries, empty.has_more, empty.last_seq) == ((), False, 0)
            assert empty.incarnation == session.incarnation
            await store.append_entries("s", messages(60))
            page = await store.page_entries("s")
            assert seqs(page.entries) == list(range(11, 61))
            assert (page.has_more, page.last_seq) == (True, 60)
            assert list(page.entries) == list(await store.load_entries("s", after=10))
            whole = await store.page_entries("s", limit=60)
            assert (len(whole.entries), whole.has_more) == (60, False)

    async def test_pages_before_a_seq_lead_to_the_beginning(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            await store.create_session("s", entries=messages(10))
            page = await store.page_entries("s", before=8, limit=4)
            assert (seqs(page.entries), page.has_more, page.last_seq) == ([4, 5, 6, 7], True, 10)
            page = await store.page_entries("s", before=4, limit=3)
            assert (seqs(page.entries), page.has_more) == ([1, 2, 3], False)
            page = await store.page_entries("s", before=1, limit=3)
            assert (seqs(page.entries), page.has_more) == ([], False)
            page = await store.page_entries("s", before=99, limit=2)
            assert (seqs(page.entries), page.has_more) == ([9, 10], True)

    async def test_pages_after_a_seq_lead_to_the_end(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            await store.create_session("s", entries=messages(10))
            page = await store.page_entries("s", after=0, limit=4)
            assert (seqs(page.entries), page.has_more, page.last_seq) == ([1, 2, 3, 4], True, 10)
            page = await store.page_entries("s", after=6, limit=4)
            assert (seqs(page.entries), page.has_more) == ([7, 8, 9, 10], False)
            page = await store.page_entries("s", after=10, limit=4)
            assert (seqs(page.entries), page.has_more, page.last_seq) == ([], False, 10)
            page = await store.page_entries("s", after=99, limit=4)
            assert (seqs(page.entries), page.has_more) == ([], False)

    async def test_a_page_between_two_seqs_begins_at_the_older(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            await store.create_session("s", entries=messages(10))
            page = await store.page_entries("s", after=2, before=6, limit=2)
            assert (seqs(page.entries), page.has_more) == ([3, 4], True)
            page = await store.page_entries("s", after=2, before=6, limit=3)
            assert (seqs(page.entries), page.has_more) == ([3, 4, 5], False)
            page = await store.page_entries("s", after=6, before=3)
            assert (seqs(page.entries), page.has_more) == ([], False)

    async def test_one_entry_is_found_by_seq_and_by_id(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            await store.create_session("s", entries=messages(3))
            fact = LeafMoved(from_id=None, leaf_id="m0", id="2")
            await store.append_entries("s", [fact])
            stored = await store.load_entries("s")
            for entry in stored:
                assert await store.load_entry("s", entry.seq) == entry
                assert await store.load_entry("s", entry.id) == entry
            assert (await store.load_entry("s", "2")).seq == 4
            assert (await store.load_entry("s", 2)).id == "m1"
            nothing: tuple[int | str, ...] = (0, 5, -1, "M0", "", "m3", "\ud800")
            for absent in nothing:
                with pytest.raises(EntryNotFoundError):
                    await store.load_entry("s", absent)

    async def test_a_path_is_read_from_its_leaf_back(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            await store.create_session("s", entries=messages(6))
            await store.append_entries(
                "s", [LeafMoved(from_id="m5", leaf_id="m2"), placed("b0", "m2"), placed("b1", "b0")]
            )
            page = await store.load_path("s", "b1")
            assert [entry.id for entry in page.entries] == ["m0", "m1", "m2", "b0", "b1"]
            assert seqs(page.entries) == [1, 2, 3, 8, 9]
            assert not page.has_more
            page = await store.load_path("s", "b1", limit=3)
            assert [entry.id for entry in page.entries] == ["m2", "b0", "b1"]
            assert page.has_more
            page = await store.load_path("s", "m5", limit=6)
            assert (len(page.entries), page.has_more) == (6, False)
            page = await store.load_path("s", "m0")
            assert ([entry.id for entry in page.entries], page.has_more) == (["m0"], False)

    async def test_a_path_stops_at_the_entry_that_is_named(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            await store.create_session("s", entries=messages(9))
            page = await store.load_path("s", "m6", until="m4")
            assert ([entry.id for entry in page.entries], page.has_more) == (
                ["m4", "m5", "m6"],
                True,
            )
            page = await store.load_path("s", "m6", until="m0")
            assert (len(page.entries), page.has_more) == (7, False)
            page = await store.load_path("s", "m6", until="m6")
            assert ([entry.id for entry in page.entries], page.has_more) == (["m6"], True)
            page = await store.load_path("s", "m6", until="m1", limit=2)
            assert ([entry.id for entry in page.entries], page.has_more) == (["m5", "m6"], True)
            page = await store.load_path("s", "m6", until="not on the path")
            assert len(page.entries) == 7

    async def test_a_long_path_is_whole(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            await store.create_session("s", entries=messages(3000))
            page = await store.load_path("s", "m2999", limit=5000)
            assert seqs(page.entries) == list(range(1, 3001))

    async def test_a_path_to_no_tree_entry_is_refused(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            await store.create_session("s", entries=messages(2))
            await store.append_entries("s", [LeafMoved(from_id="m1", leaf_id="m0", id="fact")])
            for leaf_id in ("nothing", "fact", ""):
                with pytest.raises(EntryNotFoundError):
                    await store.load_path("s", leaf_id)

    async def test_a_path_with_a_hole_is_damage(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            await store.create_session("s", entries=[placed("a", "gone"), placed("b", "a")])
            await store.append_entries(
                "s", [LeafMoved(from_id="b", leaf_id="b", id="f"), placed("c", "f")]
            )
            for leaf_id in ("a", "b", "c"):
                with pytest.raises(JournalCorruptError):
                    await store.load_path("s", leaf_id)

    async def test_a_path_that_is_a_circle_is_damage_found_in_bounded_time(
        self, tmp_path: Path
    ) -> None:
        async with await self.open_store(tmp_path) as store:
            await store.create_session(
                "s",
                entries=[placed("a", "b"), placed("b", "a"), placed("c", "b"), placed("d", "d")],
            )
            for leaf_id in ("a", "c", "d"):
                with pytest.raises(JournalCorruptError):
                    await asyncio.wait_for(store.load_path("s", leaf_id, limit=10**9), 20)

    async def test_children_are_told_in_order_of_seq(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            entries = [placed("z", None), placed("y", "z"), placed("a", None), placed("b", "z")]
            await store.create_session("s", entries=entries)
            await store.append_entries("s", [LeafMoved(from_id=None, leaf_id=None, id="f")])
            await store.append_entries("s", [placed("A", "z"), placed("m", "f")])
            children = await store.children("s", [None, "z", "y", "nobody"])
            assert dict(children) == {
                None: ("z", "a"),
                "z": ("y", "b", "A"),
                "y": (),
                "nobody": (),
            }
            assert dict(await store.children("s", [])) == {}
