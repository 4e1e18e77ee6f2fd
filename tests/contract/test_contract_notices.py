"""The shipped suite is itself tested: each broken store fails the case that is about its fault."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from perdure.codec import Draft, Entry, StoredEntry
from perdure.errors import AppendRejectedError, PerdureError
from perdure.store import Look, PathPage, Receipt, Session
from perdure.stores.memory import MemoryStore
from perdure.testing import JournalContract


class ForgetsRetries(MemoryStore):
    async def append_entries(
        self, session_id: str, entries: Sequence[Draft | Entry], **conditions: Any
    ) -> Receipt:
        try:
            return await super().append_entries(session_id, entries, **conditions)
        finally:
            self._logs[session_id].by_id.clear()


class ChecksExpectedSeqFirst(MemoryStore):
    async def append_entries(
        self, session_id: str, entries: Sequence[Draft | Entry], **conditions: Any
    ) -> Receipt:
        await super().append_entries(session_id, [], expected_seq=conditions.get("expected_seq"))
        return await super().append_entries(session_id, entries, **conditions)


class FoldsCase(MemoryStore):
    async def create_session(self, session_id: str, **options: Any) -> Session:
        return await super().create_session(session_id.lower(), **options)


class StoresHalfABatch(MemoryStore):
    async def append_entries(
        self, session_id: str, entries: Sequence[Draft | Entry], **conditions: Any
    ) -> Receipt:
        try:
            return await super().append_entries(session_id, entries, **conditions)
        except AppendRejectedError:
            await super().append_entries(session_id, entries[:1])
            raise


class IgnoresIncarnations(MemoryStore):
    async def append_entries(
        self, session_id: str, entries: Sequence[Draft | Entry], **conditions: Any
    ) -> Receipt:
        return await super().append_entries(
            session_id, entries, **{**conditions, "incarnation": None}
        )


class LosesTheNewest(MemoryStore):
    async def load_entries(self, session_id: str, *, after: int = 0) -> Sequence[StoredEntry]:
        return (await super().load_entries(session_id, after=after))[:4]


class LeavesOutUntil(MemoryStore):
    async def load_path(self, session_id: str, leaf_id: str, **bounds: Any) -> PathPage:
        return await super().load_path(session_id, leaf_id, limit=bounds.get("limit", 50))


class LooksWithoutSummary(MemoryStore):
    async def look(self, session_id: str) -> Look:
        look = await super().look(session_id)
        return Look(look.session, look.last_seq, None)


class StaysOpen(MemoryStore):
    async def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("broken", "case"),
    [
        (ForgetsRetries, "the_same_batch_again_stores_nothing_and_gives_the_same_receipt"),
        (ForgetsRetries, "an_id_that_is_taken_by_other_bytes_is_refused"),
        (ForgetsRetries, "a_batch_that_overlaps_in_part_is_refused"),
        (ChecksExpectedSeqFirst, "a_retry_is_recognised_before_expected_seq_is_looked_at"),
        (FoldsCase, "two_ids_never_share_storage"),
        (StoresHalfABatch, "a_batch_that_overlaps_in_part_is_refused"),
        (IgnoresIncarnations, "another_incarnation_is_refused"),
        (IgnoresIncarnations, "an_append_of_a_deleted_incarnation_is_refused"),
        (LosesTheNewest, "seqs_are_1_2_3_without_a_gap"),
        (LosesTheNewest, "appends_from_many_tasks_keep_every_batch_whole_and_without_a_gap"),
        (LeavesOutUntil, "a_path_stops_at_the_entry_that_is_named"),
        (LooksWithoutSummary, "a_summary_is_stored_in_the_step_of_its_entries"),
        (StaysOpen, "a_closed_store_attempts_nothing"),
    ],
)
async def test_a_broken_store_fails_the_case(
    tmp_path: Path, broken: type[MemoryStore], case: str
) -> None:
    class Contract(JournalContract):
        async def open_store(self, path: Path) -> MemoryStore:
            return broken()

    with pytest.raises((AssertionError, PerdureError, pytest.fail.Exception)):
        await getattr(Contract(), f"test_{case}")(tmp_path)
