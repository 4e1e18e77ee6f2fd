"""What every store promises of creating, appending and retrying."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from perdure.codec import import_entry
from perdure.entry import Custom, Message, Text, ephemeral, text
from perdure.errors import (
    AppendConflictError,
    AppendRejectedError,
    SessionDeletedError,
    SessionExistsError,
    SessionNotFoundError,
)
from perdure.fact import LeafMoved
from perdure.store import Session
from perdure.testing.store_cases import (
    StoreCases,
    check_no_session,
    check_session,
    messages,
    raw_entry,
    raws,
    seqs,
)


class AppendCases(StoreCases):
    """One writer, one behaviour a case."""

    # Creating

    async def test_a_new_session_is_empty(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            session = await store.create_session("s")
            assert session.id == "s"
            assert session.parent_id is None
            assert session.created_at.tzinfo is not None
            await check_session(store, session)
            assert list(await store.load_entries("s")) == []

    async def test_a_session_remembers_its_parent(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            child = await store.create_session("child", parent_id="not/here")
            assert child.parent_id == "not/here"
            await check_session(store, child)

    async def test_every_session_has_an_incarnation_of_its_own(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            sessions = [await store.create_session(name) for name in "abc"]
            assert len({session.incarnation for session in sessions}) == 3
            for session in sessions:
                await check_session(store, session)

    async def test_an_id_that_is_taken_is_refused_and_the_session_is_untouched(
        self, tmp_path: Path
    ) -> None:
        async with await self.open_store(tmp_path) as store:
            session = await store.create_session("s", entries=messages(2))
            with pytest.raises(SessionExistsError):
                await store.create_session("s", entries=messages(3, "other"))
            await check_session(store, session)
            assert raws(await store.load_entries("s")) == raws(messages(2))

    async def test_of_many_creators_one_wins(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            outcomes = await asyncio.gather(
                *(store.create_session("s", entries=messages(2, f"t{n}_")) for n in range(12)),
                return_exceptions=True,
            )
            lost = [outcome for outcome in outcomes if isinstance(outcome, SessionExistsError)]
            won = [n for n, outcome in enumerate(outcomes) if not isinstance(outcome, Exception)]
            assert len(lost) == 11
            stored = await store.load_entries("s")
            assert raws(stored) == raws(messages(2, f"t{won[0]}_"))
            winner = outcomes[won[0]]
            assert isinstance(winner, Session)
            await check_session(store, winner)

    async def test_a_session_is_created_with_its_entries_in_one_step(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            entries = messages(40)
            await store.create_session("s", entries=entries)
            stored = await store.load_entries("s")
            assert seqs(stored) == list(range(1, 41))
            assert raws(stored) == raws(entries)
            receipt = await store.append_entries("s", [text("next")], expected_seq=40)
            assert receipt.last_seq == 41

    async def test_entries_that_are_not_valid_leave_no_session_behind(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            twins = [text("a"), text("a")]
            bad: list[list[object]] = [
                [text("fine"), "a string"],
                [text("fine"), ephemeral("x")],
                [twins[0], twins[0]],
                [Custom(kind="c", data=object())],
            ]
            for entries in bad:
                with pytest.raises(AppendRejectedError):
                    await store.create_session("s", entries=entries)
                with pytest.raises(SessionNotFoundError):
                    await store.load_entries("s")
            await store.create_session("s", entries=twins)
            assert seqs(await store.load_entries("s")) == [1, 2]

    # Appending

    async def test_seqs_are_1_2_3_without_a_gap(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            await store.create_session("s")
            first = await store.append_entries("s", messages(1, "a"))
            second = await store.append_entries("s", messages(3, "b"))
            third = await store.append_entries("s", messages(1, "c"))
            assert (first.first_seq, first.last_seq) == (1, 1)
            assert (second.first_seq, second.last_seq) == (2, 4)
            assert (third.first_seq, third.last_seq) == (5, 5)
            assert seqs(await store.load_entries("s")) == [1, 2, 3, 4, 5]

    async def test_a_receipt_is_what_a_reader_gets(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            await store.create_session("s")
            receipt = await store.append_entries(
                "s", [text("hello"), LeafMoved(from_id=None, leaf_id=None)]
            )
            assert list(receipt.entries) == list(await store.load_entries("s"))
            assert seqs(receipt.entries) == [1, 2]
            assert receipt.entries[0].entry.in_tree
            assert not receipt.entries[1].entry.in_tree

    async def test_what_was_read_before_does_not_grow(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            await store.create_session("s", entries=messages(2))
            before = await store.load_entries("s")
            await store.append_entries("s", messages(1, "later"))
            assert seqs(before) == [1, 2]

    async def test_reading_goes_on_after_a_seq(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            await store.create_session("s", entries=messages(5))
            assert seqs(await store.load_entries("s", after=0)) == [1, 2, 3, 4, 5]
            assert seqs(await store.load_entries("s", after=3)) == [4, 5]
            assert seqs(await store.load_entries("s", after=5)) == []
            assert seqs(await store.load_entries("s", after=99)) == []

    async def test_an_empty_batch_says_where_the_log_stands(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            await store.create_session("s")
            nothing = await store.append_entries("s", [])
            assert (nothing.entries, nothing.last_seq) == ((), 0)
            await store.append_entries("s", messages(3))
            assert (await store.append_entries("s", [], expected_seq=3)).last_seq == 3
            with pytest.raises(AppendConflictError):
                await store.append_entries("s", [], expected_seq=2)
            assert len(await store.load_entries("s")) == 3

    async def test_a_batch_with_an_entry_that_is_not_valid_stores_none_of_it(
        self, tmp_path: Path
    ) -> None:
        async with await self.open_store(tmp_path) as store:
            await store.create_session("s")
            twin = text("twin")
            deep: list[object] = []
            for _ in range(100_000):
                deep = [deep]
            bad: list[list[object]] = [
                [text("fine"), {"type": "message"}],
                [text("fine"), ephemeral("never stored")],
                [text("fine"), Message("nobody", (Text("x"),))],  # type: ignore[arg-type]  # the point
                [text("fine"), text("x" * 10).__class__("user", (Text("y"),), id="")],
                [twin, text("between"), twin],
                [text("fine"), Custom(kind="c", data={"deep": object()})],
                [text("fine"), Custom(kind="c", data=deep)],
            ]
            for entries in bad:
                with pytest.raises(AppendRejectedError):
                    await store.append_entries("s", entries)
            assert list(await store.load_entries("s")) == []
            assert (await store.append_entries("s", [text("well")])).last_seq == 1

    async def test_an_append_to_no_session_is_refused(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            with pytest.raises(SessionNotFoundError):
                await store.append_entries("nobody", [text("hello")])
            with pytest.raises(SessionNotFoundError):
                await store.append_entries("nobody", [], incarnation="of nothing")
            await check_no_session(store, "nobody")

    async def test_another_incarnation_is_refused(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            session = await store.create_session("s")
            with pytest.raises(SessionDeletedError):
                await store.append_entries("s", [text("ghost")], incarnation="0" * 32)
            receipt = await store.append_entries(
                "s", [text("mine")], incarnation=session.incarnation
            )
            assert seqs(receipt.entries) == [1]
            assert len(await store.load_entries("s")) == 1

    # Retrying

    async def test_the_same_batch_again_stores_nothing_and_gives_the_same_receipt(
        self, tmp_path: Path
    ) -> None:
        async with await self.open_store(tmp_path) as store:
            await store.create_session("s", entries=messages(1, "created"))
            batches = [messages(1, "a"), messages(5, "b"), messages(1, "c")]
            receipts = [await store.append_entries("s", batch) for batch in batches]
            for batch, receipt in zip(batches, receipts, strict=True):
                assert await store.append_entries("s", batch) == receipt
            assert (await store.append_entries("s", messages(1, "created"))).last_seq == 1
            assert seqs(await store.load_entries("s")) == list(range(1, 9))

    async def test_a_retry_is_recognised_before_expected_seq_is_looked_at(
        self, tmp_path: Path
    ) -> None:
        async with await self.open_store(tmp_path) as store:
            await store.create_session("s")
            batch = messages(2)
            receipt = await store.append_entries("s", batch, expected_seq=0)
            assert await store.append_entries("s", batch, expected_seq=0) == receipt
            await store.append_entries("s", messages(3, "other"))
            assert await store.append_entries("s", batch, expected_seq=0) == receipt
            assert await store.append_entries("s", batch, expected_seq=99) == receipt

    async def test_a_draft_keeps_its_identity_when_it_is_appended_again(
        self, tmp_path: Path
    ) -> None:
        async with await self.open_store(tmp_path) as store:
            await store.create_session("s")
            draft = text("once")
            assert await store.append_entries("s", [draft]) == await store.append_entries(
                "s", [draft]
            )

    async def test_an_id_that_is_taken_by_other_bytes_is_refused(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            await store.create_session("s", entries=messages(2))
            other = import_entry(raw_entry("m1", '"role":"user","parts":[],"parent_id":null'))
            for batch in ([other], [*messages(1, "new"), other], [messages(2)[0], other]):
                with pytest.raises(AppendRejectedError, match="m1"):
                    await store.append_entries("s", batch)
            assert raws(await store.load_entries("s")) == raws(messages(2))

    async def test_a_batch_that_overlaps_in_part_is_refused(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            await store.create_session("s")
            one, two, three, four = messages(4)
            await store.append_entries("s", [one, two])
            await store.append_entries("s", [three])
            for batch in ([two, four], [four, one], [one, two, three, four], [two, one]):
                with pytest.raises(AppendRejectedError):
                    await store.append_entries("s", batch)
                with pytest.raises(AppendRejectedError):
                    await store.append_entries("s", batch, expected_seq=3)
            assert raws(await store.load_entries("s")) == raws([one, two, three])

    async def test_ids_are_unique_within_a_session_only(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            await store.create_session("one", entries=messages(2))
            await store.create_session("two")
            receipt = await store.append_entries("two", list(reversed(messages(2))))
            assert [stored.id for stored in receipt.entries] == ["m1", "m0"]
            assert [stored.id for stored in await store.load_entries("one")] == ["m0", "m1"]
