"""The part of a JournalStore's suite about looks, summaries and listings."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from perdure.entry import text
from perdure.errors import (
    AppendConflictError,
    AppendRejectedError,
    CursorVoidError,
    SessionDeletedError,
)
from perdure.testing.journal_cases import JournalCases
from perdure.testing.nasty import DISTINCT_SESSION_IDS
from perdure.testing.store_cases import messages


class ListingCases(JournalCases):
    """Looking and listing never read a journal."""

    async def test_a_look_says_where_the_log_stands(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            session = await store.create_session("s", parent_id="p", entries=messages(2))
            look = await store.look("s")
            assert (look.session, look.last_seq, look.summary) == (session, 2, None)

    async def test_a_summary_is_stored_in_the_step_of_its_entries(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            await store.create_session("s", entries=messages(1), summary=b"\x00one")
            look = await store.look("s")
            assert (look.last_seq, look.summary) == (1, b"\x00one")
            await store.append_entries("s", messages(1, "a"), summary=b"two")
            look = await store.look("s")
            assert (look.last_seq, look.summary) == (2, b"two")
            await store.append_entries("s", messages(1, "b"))
            look = await store.look("s")
            assert (look.last_seq, look.summary) == (3, b"two")
            await store.append_entries("s", messages(1, "c"), summary=b"")
            assert (await store.look("s")).summary == b""

    async def test_a_refused_append_leaves_the_summary(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            await store.create_session("s", entries=messages(1), summary=b"one")
            with pytest.raises(AppendConflictError):
                await store.append_entries("s", [text("x")], expected_seq=7, summary=b"bad")
            with pytest.raises(AppendRejectedError):
                await store.append_entries("s", ["x"], summary=b"bad")
            with pytest.raises(SessionDeletedError):
                await store.append_entries("s", [text("x")], incarnation="0", summary=b"bad")
            assert (await store.look("s")).summary == b"one"

    async def test_looks_and_summaries_agree_while_others_write(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            await store.create_session("s", summary=b"0")

            async def write() -> None:
                for n in range(1, 30):
                    await store.append_entries(
                        "s", messages(1, f"w{n}_"), expected_seq=n - 1, summary=b"%d" % n
                    )

            writer = asyncio.ensure_future(write())
            while not writer.done():
                look = await store.look("s")
                assert look.summary == b"%d" % look.last_seq
                (listed,) = (await store.list_sessions()).sessions
                assert listed.summary == b"%d" % listed.last_seq
                await asyncio.sleep(0)
            await writer
            assert (await store.look("s")).last_seq == 29

    async def test_a_listing_has_the_newest_append_first(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            nothing = await store.list_sessions()
            assert (nothing.sessions, nothing.next) == ((), None)
            for name in ("a", "b", "c"):
                await store.create_session(name, summary=name.encode())
            await store.append_entries("a", messages(2))
            await store.append_entries("b", [])
            listing = await store.list_sessions()
            assert [look.session.id for look in listing.sessions] == ["a", "c", "b"]
            assert [look.last_seq for look in listing.sessions] == [2, 0, 0]
            assert [look.summary for look in listing.sessions] == [b"a", b"c", b"b"]
            assert listing.next is None
            assert listing.sessions[0] == await store.look("a")

    async def test_a_retry_does_not_move_a_session_up(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            await store.create_session("a")
            await store.append_entries("a", messages(1))
            await store.create_session("b")
            await store.append_entries("a", messages(1))
            listing = await store.list_sessions()
            assert [look.session.id for look in listing.sessions] == ["b", "a"]

    async def test_a_listing_is_paged_and_gives_exact_ids(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            for session_id in DISTINCT_SESSION_IDS:
                await store.create_session(session_id)
            listed: list[str] = []
            after = None
            while True:
                page = await store.list_sessions(limit=7, after=after)
                assert len(page.sessions) <= 7
                listed.extend(look.session.id for look in page.sessions)
                after = page.next
                if after is None:
                    break
            assert listed == list(reversed(DISTINCT_SESSION_IDS))

    async def test_a_page_of_a_listing_shows_no_session_twice(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            for n in range(6):
                await store.create_session(f"s{n}")
            page = await store.list_sessions(limit=2)
            assert [look.session.id for look in page.sessions] == ["s5", "s4"]
            await store.append_entries("s5", messages(1))
            await store.create_session("new")
            page = await store.list_sessions(limit=2, after=page.next)
            assert [look.session.id for look in page.sessions] == ["s3", "s2"]
            await store.delete_session("s2")
            page = await store.list_sessions(limit=2, after=page.next)
            assert [look.session.id for look in page.sessions] == ["s1", "s0"]
            assert page.next is None

    @pytest.mark.parametrize("after", ["", "nonsense", "-1", "1.5", "s", "\x00", "٣", "9" * 5000])
    async def test_a_cursor_from_elsewhere_is_void(self, tmp_path: Path, after: str) -> None:
        async with await self.open_store(tmp_path) as store:
            await store.create_session("s")
            with pytest.raises(CursorVoidError):
                await store.list_sessions(after=after)
