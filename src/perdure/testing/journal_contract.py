"""The conformance suite of `perdure.server.journal.JournalStore`; it includes that of `Store`."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from pathlib import Path

import pytest

from perdure.codec import import_entry
from perdure.entry import text
from perdure.errors import (
    AppendConflictError,
    AppendRejectedError,
    CursorVoidError,
    EntryNotFoundError,
    InvalidSessionIdError,
    JournalCorruptError,
    SessionDeletedError,
    SessionNotFoundError,
    StoreUnavailableError,
)
from perdure.fact import LeafMoved
from perdure.server.journal import JournalStore
from perdure.testing.kind_cases import KindCases
from perdure.testing.nasty import DISTINCT_SESSION_IDS, INVALID_SESSION_IDS
from perdure.testing.owner_cases import OwnerCases
from perdure.testing.snapshot_cases import SnapshotCases
from perdure.testing.store_cases import messages, placed, raw_entry, raws, seqs
from perdure.testing.store_contract import StoreContract


class JournalContract(KindCases, OwnerCases, SnapshotCases, StoreContract):
    """What every JournalStore promises beyond the Store contract, one behaviour a case."""

    @abstractmethod
    async def open_store(self, path: Path) -> JournalStore:
        """Opens the store that lives under `path`, an empty folder at first."""

    async def open_again(self, path: Path) -> JournalStore:
        """Opens a store that was closed once more; skips the case where nothing outlives it."""
        if not self.durable:
            pytest.skip("this store keeps nothing when it is closed")
        return await self.open_store(path)

    # Pages

    async def test_a_page_without_bounds_is_the_newest(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            await store.create_session("s")
            empty = await store.page_entries("s")
            assert (empty.entries, empty.has_more, empty.last_seq) == ((), False, 0)
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

    # The tree

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

    # Looking and listing

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

    # Deletion

    async def test_a_deleted_session_is_not_found_by_any_verb(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            await store.create_session("s", entries=messages(3), summary=b"x")
            await store.create_session("other")
            await store.delete_session("s")
            for verb in (
                lambda: store.load_session("s"),
                lambda: store.load_entries("s"),
                lambda: store.append_entries("s", [text("ghost")]),
                lambda: store.look("s"),
                lambda: store.page_entries("s"),
                lambda: store.load_entry("s", 1),
                lambda: store.load_path("s", "m1"),
                lambda: store.children("s", [None]),
                lambda: store.delete_session("s"),
            ):
                with pytest.raises(SessionNotFoundError):
                    await verb()
            listing = await store.list_sessions()
            assert [look.session.id for look in listing.sessions] == ["other"]

    async def test_an_append_of_a_deleted_incarnation_is_refused(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            old = await store.create_session("s", entries=messages(1))
            await store.delete_session("s")
            with pytest.raises(SessionDeletedError):
                await store.append_entries("s", [text("x")], incarnation=old.incarnation)
            with pytest.raises(SessionDeletedError):
                await store.append_entries("s", messages(1), incarnation=old.incarnation)
            await store.create_session("s")
            with pytest.raises(SessionDeletedError):
                await store.append_entries("s", [text("x")], incarnation=old.incarnation)
            assert list(await store.load_entries("s")) == []

    async def test_a_new_session_of_a_deleted_id_starts_empty_at_seq_1(
        self, tmp_path: Path
    ) -> None:
        async with await self.open_store(tmp_path) as store:
            incarnations = set()
            for n in range(3):
                session = await store.create_session("s")
                incarnations.add(session.incarnation)
                look = await store.look("s")
                assert (look.session, look.last_seq, look.summary) == (session, 0, None)
                assert list(await store.load_entries("s")) == []
                assert dict(await store.children("s", [None])) == {None: ()}
                receipt = await store.append_entries(
                    "s", messages(n + 1), expected_seq=0, incarnation=session.incarnation
                )
                assert receipt.first_seq == 1
                assert raws((await store.page_entries("s")).entries) == raws(messages(n + 1))
                path = await store.load_path("s", f"m{n}")
                assert seqs(path.entries) == list(range(1, n + 2))
                if n < 2:
                    await store.delete_session("s")
            assert len(incarnations) == 3

    async def test_a_deletion_outlives_a_restart(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            first = await store.create_session("s", entries=messages(2))
            await store.delete_session("s")
            again = await store.create_session("t", entries=messages(1))
            await store.delete_session("t")
            again = await store.create_session("t", entries=messages(4), summary=b"t")
        async with await self.open_again(tmp_path) as store:
            with pytest.raises(SessionNotFoundError):
                await store.load_entries("s")
            with pytest.raises(SessionDeletedError):
                await store.append_entries("s", [text("x")], incarnation=first.incarnation)
            look = await store.look("t")
            assert (look.session, look.last_seq, look.summary) == (again, 4, b"t")
            new = await store.create_session("s")
            assert new.incarnation != first.incarnation
            assert list(await store.load_entries("s")) == []

    async def test_appends_that_race_with_a_deletion_are_refused_or_gone(
        self, tmp_path: Path
    ) -> None:
        async with await self.open_store(tmp_path) as store:
            session = await store.create_session("s")
            outcomes = await asyncio.gather(
                *(
                    store.append_entries(
                        "s", messages(1, f"t{n}_"), incarnation=session.incarnation
                    )
                    for n in range(5)
                ),
                store.delete_session("s"),
                *(
                    store.append_entries(
                        "s", messages(1, f"u{n}_"), incarnation=session.incarnation
                    )
                    for n in range(5)
                ),
                return_exceptions=True,
            )
            errors = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
            assert all(isinstance(error, SessionDeletedError) for error in errors)
            with pytest.raises(SessionNotFoundError):
                await store.load_entries("s")
            await store.create_session("s")
            assert list(await store.load_entries("s")) == []

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
