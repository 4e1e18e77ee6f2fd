"""The conformance suite of `perdure.store.Store`: inherit it, say how to open a store, run pytest.

```python
class TestMyStore(StoreContract):
    durable = True

    async def open_store(self, path: Path) -> MyStore:
        return MyStore(path / "sessions")
```

It runs under anything that awaits `async def test_…` methods, such as pytest-asyncio's auto mode.
What only a crash can show (torn writes, failed syncs) is left to a store's own tests.
"""

from __future__ import annotations

import asyncio
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from perdure.codec import RESERVED, Entry, StoredEntry, import_entry, seal
from perdure.entry import Compaction, Custom, Message, Text, ToolResult, ephemeral, text
from perdure.errors import (
    AppendConflictError,
    AppendRejectedError,
    InvalidSessionIdError,
    SessionDeletedError,
    SessionExistsError,
    SessionNotFoundError,
    StoreUnavailableError,
)
from perdure.fact import LeafMoved, TurnStarted
from perdure.store import Receipt, Store
from perdure.testing.nasty import DISTINCT_SESSION_IDS, INVALID_SESSION_IDS, TEXTS

STAMP = "2026-01-02T03:04:05.678901Z"
MADE_AT = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)


def raw_entry(entry_id: str, fields: str, entry_type: str = "message") -> bytes:
    """The bytes of an entry as another program might have written them."""
    head = f'{{"id":"{entry_id}", "type":"{entry_type}","created_at":"{STAMP}"'
    return f"{head}{',' if fields else ''}{fields}}}".encode()


def placed(entry_id: str, parent_id: str | None, content: str = "hello") -> Entry:
    """A sealed user message under this parent: the same arguments give the same bytes."""
    message = Message("user", (Text(content),), id=entry_id, created_at=MADE_AT)
    return seal(message, parent_id)


def messages(count: int, prefix: str = "m") -> list[Entry]:
    """Sealed user messages with the ids `prefix`0, `prefix`1, … in a chain, always the same."""
    return [
        placed(f"{prefix}{n}", f"{prefix}{n - 1}" if n else None, f"{prefix} says {n}")
        for n in range(count)
    ]


def seqs(entries: Sequence[StoredEntry]) -> list[int]:
    """The `seq`s of these entries."""
    return [stored.seq for stored in entries]


def raws(entries: Sequence[StoredEntry | Entry]) -> list[bytes]:
    """The bytes of these entries."""
    return [entry.raw for entry in entries]


class StoreContract(ABC):
    """What every store promises, one behaviour a case."""

    durable = False
    """Whether a store that is opened again at the same path shows what was stored there."""

    @abstractmethod
    async def open_store(self, path: Path) -> Store:
        """Opens the store that lives under `path`, an empty folder at first."""

    async def open_again(self, path: Path) -> Store:
        """Opens a store that was closed once more; skips the case where nothing outlives it."""
        if not self.durable:
            pytest.skip("this store keeps nothing when it is closed")
        return await self.open_store(path)

    # Creating

    async def test_a_new_session_is_empty(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            session = await store.create_session("s")
            assert session.id == "s"
            assert session.parent_id is None
            assert session.created_at.tzinfo is not None
            assert await store.load_session("s") == session
            assert list(await store.load_entries("s")) == []

    async def test_a_session_remembers_its_parent(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            child = await store.create_session("child", parent_id="not/here")
            assert child.parent_id == "not/here"
            assert (await store.load_session("child")).parent_id == "not/here"

    async def test_every_session_has_an_incarnation_of_its_own(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            sessions = [await store.create_session(name) for name in "abc"]
            assert len({session.incarnation for session in sessions}) == 3
            for session in sessions:
                assert (await store.load_session(session.id)).incarnation == session.incarnation

    async def test_an_id_that_is_taken_is_refused_and_the_session_is_untouched(
        self, tmp_path: Path
    ) -> None:
        async with await self.open_store(tmp_path) as store:
            session = await store.create_session("s", entries=messages(2))
            with pytest.raises(SessionExistsError):
                await store.create_session("s", entries=messages(3, "other"))
            assert await store.load_session("s") == session
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
            assert await store.load_session("s") == outcomes[won[0]]

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
            bad: list[list[object]] = [
                [text("fine"), {"type": "message"}],
                [text("fine"), ephemeral("never stored")],
                [text("fine"), Message("nobody", (Text("x"),))],  # type: ignore[arg-type]  # the point
                [text("fine"), text("x" * 10).__class__("user", (Text("y"),), id="")],
                [twin, text("between"), twin],
                [text("fine"), Custom(kind="c", data={"deep": object()})],
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
            with pytest.raises(SessionNotFoundError):
                await store.load_entries("nobody")
            with pytest.raises(SessionNotFoundError):
                await store.load_session("nobody")

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

    # Ids

    @pytest.mark.parametrize("session_id", INVALID_SESSION_IDS, ids=ascii)
    async def test_an_invalid_id_is_refused_the_same_on_every_verb(
        self, tmp_path: Path, session_id: str
    ) -> None:
        async with await self.open_store(tmp_path) as store:
            with pytest.raises(InvalidSessionIdError) as refusal:
                await store.create_session(session_id, entries=[text("hello")])
            for verb in (
                store.load_entries(session_id),
                store.load_session(session_id),
                store.append_entries(session_id, [text("hello")]),
            ):
                with pytest.raises(InvalidSessionIdError) as again:
                    await verb
                assert str(again.value) == str(refusal.value)
            if session_id is not None:
                with pytest.raises(InvalidSessionIdError):
                    await store.create_session("child", parent_id=session_id)
            with pytest.raises(SessionNotFoundError):
                await store.load_session("child")

    async def test_two_ids_never_share_storage(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            for n, session_id in enumerate(DISTINCT_SESSION_IDS):
                with pytest.raises(SessionNotFoundError):
                    await store.load_session(session_id)
                await store.create_session(session_id)
                await store.append_entries(session_id, messages(1, f"n{n}_"))
            for n, session_id in enumerate(DISTINCT_SESSION_IDS):
                stored = await store.load_entries(session_id)
                assert raws(stored) == raws(messages(1, f"n{n}_"))
                assert (await store.load_session(session_id)).id == session_id

    async def test_no_id_reaches_outside_the_root(self, tmp_path: Path) -> None:
        inside = tmp_path / "one" / "two"
        os.makedirs(inside)
        async with await self.open_store(inside) as store:
            for session_id in ("../up", "../../up", "/up", "one/../../../up", "..\\up", "a/../.."):
                await store.create_session(session_id, entries=messages(1))
        assert os.listdir(tmp_path) == ["one"]
        assert os.listdir(tmp_path / "one") == ["two"]

    async def test_an_entry_id_is_opaque_and_compared_byte_for_byte(self, tmp_path: Path) -> None:
        ids = ("a", "A", "caf\u00e9", "cafe\u0301", " a", "a ", "\x00", "1", "01", "'", "x" * 512)
        async with await self.open_store(tmp_path) as store:
            await store.create_session("s")
            batch = [Message("user", (Text("hi"),), id=entry_id) for entry_id in ids]
            await store.append_entries("s", batch)
            assert [stored.id for stored in await store.load_entries("s")] == list(ids)
            assert (await store.append_entries("s", batch)).first_seq == 1

    # Bytes

    @pytest.mark.parametrize(("written", "read"), TEXTS, ids=ascii)
    async def test_text_comes_back_as_it_was_written(
        self, tmp_path: Path, written: str, read: str
    ) -> None:
        async with await self.open_store(tmp_path) as store:
            await store.create_session("s")
            receipt = await store.append_entries("s", [text("before"), text(written)])
            await store.append_entries(
                "s", [Custom(kind="k", data={written: [written]}), text("after")]
            )
            stored = await store.load_entries("s")
            assert len(stored) == 4
            message, custom = stored[1].view, stored[2].view
            assert isinstance(message, Message)
            assert isinstance(custom, Custom)
            assert message.text == read
            assert custom.data == {read: [read]}
            assert list(receipt.entries) == list(stored[:2])

    async def test_a_number_that_json_has_not_becomes_null(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            await store.create_session("s")
            data = {"nan": math.nan, "inf": [math.inf, -math.inf], "real": 1.5, "big": 2**63 - 1}
            await store.append_entries("s", [Custom(kind="k", data=data)])
            view = (await store.load_entries("s"))[0].view
            assert isinstance(view, Custom)
            assert view.data == {"nan": None, "inf": [None, None], "real": 1.5, "big": 2**63 - 1}

    async def test_what_this_version_does_not_know_survives_byte_for_byte(
        self, tmp_path: Path
    ) -> None:
        raws_in = [
            raw_entry("u1", '"parent_id":null,"wild":{"a":1.50,"b":[ 1 ,2 ]}', "from_the_future"),
            raw_entry("u2", '"epoch": 1e2,"x":"\\u00e9\\/"', "fact_from_the_future"),
            raw_entry(
                "u3", '"parent_id":"u1","role":"user","parts":[{"type":"hologram","n":0.10}],"z":{}'
            ),
            raw_entry("u4", '"parent_id":"u3","kind":"nobody.knows","data":{"k":[{}]}', "custom"),
            raw_entry("u5", '"parent_id":"u4","role":"wizard","parts":"none"'),
            raw_entry("u6", '"parent_id":"u5","n":1e400,"s":"\\ud800","v":NaN', "odd"),
            raw_entry("u7", '"turn_id":"t","message_id":"m","new":true', "turn_started"),
        ]
        entries = [import_entry(raw) for raw in raws_in]
        async with await self.open_store(tmp_path) as store:
            await store.create_session("s", entries=entries[:3])
            receipt = await store.append_entries("s", entries[3:])
            assert raws(receipt.entries) == raws_in[3:]
            stored = await store.load_entries("s")
            assert raws(stored) == raws_in
            assert [entry.parent_id for entry in stored] == [e.parent_id for e in entries]
            assert [entry.type for entry in stored] == [e.type for e in entries]
            assert [entry.created_at for entry in stored] == [e.created_at for e in entries]
            assert (await store.append_entries("s", entries[3:])) == receipt
            await store.create_session("copy", entries=[entry.entry for entry in stored])
            assert raws(await store.load_entries("copy")) == raws_in

    @pytest.mark.parametrize("name", RESERVED)
    async def test_an_entry_that_brings_a_reserved_name_is_refused(
        self, tmp_path: Path, name: str
    ) -> None:
        async with await self.open_store(tmp_path) as store:
            await store.create_session("s")
            raw = raw_entry("r", f'"parent_id":null,"{name}":1', "odd")
            with pytest.raises(AppendRejectedError, match=name):
                await store.append_entries("s", [import_entry(raw)])
            assert list(await store.load_entries("s")) == []

    async def test_every_kind_of_entry_comes_back_equal(self, tmp_path: Path) -> None:
        result = ToolResult("c", (Text("out"),), name="t", is_error=True, limit_chars=10)
        drafts = [
            Message("system", (Text("be kind"),), meta=True),
            Message("tool", (result,), provider={"sig": "\u0000é", "n": [1.0, None]}),
            Message("assistant", (), end="stopped"),
            Compaction(summary="s", first_kept_id=None),
            TurnStarted(turn_id="t", message_id="m"),
        ]
        async with await self.open_store(tmp_path) as store:
            await store.create_session("s", entries=drafts)
            stored = await store.load_entries("s")
            assert [entry.view for entry in stored] == [seal(draft).view for draft in drafts]

    async def test_an_entry_of_a_megabyte_is_stored_whole(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            await store.create_session("s")
            big = text("\x00é\n\u2028😀" * 90_000)
            await store.append_entries("s", [text("small"), big, text("small too")])
            await store.append_entries("s", [text("\\" * 1_048_576)])
            stored = await store.load_entries("s")
            assert raws(stored)[1] == seal(big).raw
            assert len(stored[3].raw) > 2 * 1_048_576

    async def test_a_batch_of_a_thousand_is_one_batch(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            await store.create_session("s")
            batch = messages(1000)
            receipt = await store.append_entries("s", batch, expected_seq=0)
            assert (receipt.first_seq, receipt.last_seq) == (1, 1000)
            assert raws(await store.load_entries("s", after=997)) == raws(batch[997:])
            assert await store.append_entries("s", batch, expected_seq=0) == receipt

    # Closing and opening again

    async def test_a_closed_store_attempts_nothing(self, tmp_path: Path) -> None:
        store = await self.open_store(tmp_path)
        await store.create_session("s")
        await store.close()
        await store.close()
        for verb in (
            store.create_session("t"),
            store.load_session("s"),
            store.load_entries("s"),
            store.append_entries("s", [text("late")]),
        ):
            with pytest.raises(StoreUnavailableError):
                await verb

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
            assert await store.load_session("s") == session
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
        await store.close()
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
