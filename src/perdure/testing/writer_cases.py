"""What every store promises to several writers, on closing and on opening again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from perdure.codec import import_entry
from perdure.entry import text
from perdure.errors import (
    AppendConflictError,
    AppendRejectedError,
    SessionDeletedError,
    SessionExistsError,
    StoreUnavailableError,
)
from perdure.store import Receipt
from perdure.testing.store_cases import (
    StoreCases,
    check_session,
    messages,
    raw_entry,
    raws,
    seqs,
    session_verbs,
)


class WriterCases(StoreCases):
    """Several writers, cancelled ones, closed stores: one behaviour a case."""

    # Several writers

    async def test_expected_seq_lets_one_writer_win(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            await store.create_session("s", entries=messages(1))
            for wrong in (0, 2, 99):
                with pytest.raises(AppendConflictError) as conflict:
                    await store.append_entries("s", [text("loser")], expected_seq=wrong)
                assert (conflict.value.expected_seq, conflict.value.actual_seq) == (wrong, 1)
            outcomes = await asyncio.gather(
                *(store.append_entries("s", [text(f"{n}")], expected_seq=1) for n in range(10)),
                return_exceptions=True,
            )
            won = [outcome for outcome in outcomes if isinstance(outcome, Receipt)]
            lost = [outcome for outcome in outcomes if isinstance(outcome, AppendConflictError)]
            assert (len(won), len(lost)) == (1, 9)
            assert list(await store.load_entries("s", after=1)) == list(won[0].entries)

    async def test_appends_from_many_tasks_keep_every_batch_whole_and_without_a_gap(
        self, tmp_path: Path
    ) -> None:
        async with await self.open_store(tmp_path) as store:
            await store.create_session("s")

            async def write(name: str) -> list[Receipt]:
                return [
                    await store.append_entries("s", messages(1 + n % 3, f"{name}_{n}_"))
                    for n in range(5)
                ]

            written = await asyncio.gather(*(write(f"t{n}") for n in range(12)))
            stored = await store.load_entries("s")
            assert seqs(stored) == list(range(1, len(stored) + 1))
            for receipts in written:
                for receipt in receipts:
                    inside = stored[receipt.first_seq - 1 : receipt.last_seq]
                    assert list(inside) == list(receipt.entries)
                assert [r.first_seq for r in receipts] == sorted(r.first_seq for r in receipts)
            assert len(stored) == sum(len(r.entries) for receipts in written for r in receipts)

    async def test_the_appends_of_one_caller_keep_their_order(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            await store.create_session("s")
            tasks = [
                asyncio.ensure_future(store.append_entries("s", messages(1, f"t{n}_")))
                for n in range(20)
            ]
            receipts = await asyncio.gather(*tasks)
            assert [receipt.first_seq for receipt in receipts] == list(range(1, 21))

    async def test_many_tasks_that_retry_the_same_batch_store_it_once(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            await store.create_session("s")
            batch = messages(3)
            receipts = await asyncio.gather(
                *(store.append_entries("s", batch, expected_seq=0) for _ in range(8))
            )
            assert all(receipt == receipts[0] for receipt in receipts)
            assert raws(await store.load_entries("s")) == raws(batch)

    async def test_a_refused_append_takes_no_other_down(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            await store.create_session("s", entries=messages(1))
            other = import_entry(raw_entry("m0", '"role":"user","parts":[],"parent_id":null'))
            outcomes = await asyncio.gather(
                store.append_entries("s", messages(2, "a")),
                store.append_entries("s", [other]),
                store.append_entries("s", messages(2, "b")),
                store.append_entries("s", messages(1, "c"), expected_seq=77),
                store.append_entries("s", messages(2, "d")),
                return_exceptions=True,
            )
            kinds = [type(outcome) for outcome in outcomes]
            assert kinds == [Receipt, AppendRejectedError, Receipt, AppendConflictError, Receipt]
            assert [stored.id for stored in await store.load_entries("s")] == [
                *("m0", "a0", "a1", "b0", "b1", "d0", "d1")
            ]

    async def test_sessions_are_written_side_by_side(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:

            async def write(name: str) -> None:
                await store.create_session(name)
                for n in range(4):
                    await store.append_entries(
                        name, messages(2, f"{name}_{n}_"), expected_seq=2 * n
                    )

            await asyncio.gather(*(write(f"s{n}") for n in range(16)))
            for n in range(16):
                stored = await store.load_entries(f"s{n}")
                assert seqs(stored) == list(range(1, 9))
                assert all(entry.id.startswith(f"s{n}_") for entry in stored)

    async def test_a_cancelled_append_is_whole_or_absent_and_can_be_retried(
        self, tmp_path: Path
    ) -> None:
        async with await self.open_store(tmp_path) as store:
            await store.create_session("s")
            batches = [messages(2, f"t{n}_") for n in range(16)]
            tasks = []
            for n, batch in enumerate(batches):
                tasks.append(asyncio.ensure_future(store.append_entries("s", batch)))
                for _ in range(n % 4):
                    await asyncio.sleep(0)
                if n % 2:
                    tasks[-1].cancel()
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
            for outcome in outcomes:
                assert isinstance(outcome, Receipt | asyncio.CancelledError)
            retried = [await store.append_entries("s", batch) for batch in batches]
            for outcome, receipt in zip(outcomes, retried, strict=True):
                assert isinstance(outcome, asyncio.CancelledError) or outcome == receipt
            stored = await store.load_entries("s")
            assert seqs(stored) == list(range(1, 33))
            for receipt in retried:
                assert list(stored[receipt.first_seq - 1 : receipt.last_seq]) == [*receipt.entries]

    # Closing and opening again

    async def test_a_closed_store_attempts_nothing(self, tmp_path: Path) -> None:
        store = await self.open_store(tmp_path)
        await store.create_session("s")
        for _ in range(2):
            await store.__aexit__(None, None, None)
        for verb in (
            lambda: store.create_session("t"),
            lambda: store.load_entries("s"),
            lambda: store.append_entries("s", [text("late")]),
            *session_verbs(store, "s"),
        ):
            with pytest.raises(StoreUnavailableError):
                await verb()

    async def test_leaving_the_context_closes_the_store(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            await store.create_session("s")
        with pytest.raises(StoreUnavailableError):
            await store.load_entries("s")

    async def test_a_store_opened_again_shows_the_same(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            session = await store.create_session("s", parent_id="p", entries=messages(2))
            await store.append_entries("s", messages(3, "later"))
            await store.create_session("Other/é")
            before = list(await store.load_entries("s"))
        async with await self.open_again(tmp_path) as store:
            await check_session(store, session)
            assert list(await store.load_entries("s")) == before
            assert list(await store.load_entries("s", after=4)) == before[4:]
            assert list(await store.load_entries("Other/é")) == []
            with pytest.raises(SessionExistsError):
                await store.create_session("Other/é")

    async def test_a_store_opened_again_recognises_retries_and_goes_on(
        self, tmp_path: Path
    ) -> None:
        async with await self.open_store(tmp_path) as store:
            session = await store.create_session("s", entries=messages(2))
            receipt = await store.append_entries("s", messages(3, "later"))
        async with await self.open_again(tmp_path) as store:
            assert await store.append_entries("s", messages(3, "later"), expected_seq=2) == receipt
            with pytest.raises(AppendRejectedError):
                await store.append_entries("s", [*messages(1), *messages(1, "new")])
            with pytest.raises(AppendConflictError):
                await store.append_entries("s", [text("x")], expected_seq=2)
            with pytest.raises(SessionDeletedError):
                await store.append_entries("s", [text("x")], incarnation="0" * 32)
            more = await store.append_entries(
                "s", [text("on")], expected_seq=5, incarnation=session.incarnation
            )
            assert seqs(more.entries) == [6]
        async with await self.open_again(tmp_path) as store:
            assert seqs(await store.load_entries("s")) == [1, 2, 3, 4, 5, 6]

    async def test_what_was_acknowledged_before_closing_is_there(self, tmp_path: Path) -> None:
        store = await self.open_store(tmp_path)
        await store.create_session("s")
        tasks = [
            asyncio.ensure_future(store.append_entries("s", messages(2, f"t{n}_")))
            for n in range(10)
        ]
        await asyncio.sleep(0)
        await store.__aexit__(None, None, None)
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        receipts = [outcome for outcome in outcomes if isinstance(outcome, Receipt)]
        unavailable = [o for o in outcomes if isinstance(o, StoreUnavailableError)]
        assert len(receipts) + len(unavailable) == 10
        async with await self.open_again(tmp_path) as store:
            stored = await store.load_entries("s")
            assert len(stored) == sum(len(receipt.entries) for receipt in receipts)
            for receipt in receipts:
                assert list(stored[receipt.first_seq - 1 : receipt.last_seq]) == [*receipt.entries]

    async def test_two_stores_at_one_place_see_each_others_appends(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as one:
            await one.create_session("s", entries=messages(1))
            async with await self.open_again(tmp_path) as two:
                await two.append_entries("s", messages(2, "two_"), expected_seq=1)
                with pytest.raises(AppendConflictError):
                    await one.append_entries("s", messages(1, "one_"), expected_seq=1)
                await one.append_entries("s", messages(1, "one_"), expected_seq=3)
                with pytest.raises(AppendRejectedError):
                    await one.append_entries("s", [*messages(1, "two_"), *messages(1, "new_")])
                with pytest.raises(SessionExistsError):
                    await two.create_session("s")
                for store in (one, two):
                    ids = [stored.id for stored in await store.load_entries("s")]
                    assert ids == ["m0", "two_0", "two_1", "one_0"]
