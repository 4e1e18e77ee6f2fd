"""The part of a JournalStore's suite about deletion and incarnations."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from perdure.entry import text
from perdure.errors import (
    SessionDeletedError,
    SessionNotFoundError,
)
from perdure.testing.journal_cases import JournalCases
from perdure.testing.store_cases import messages, raws, seqs


class DeletionCases(JournalCases):
    """What is deleted stays so, and a new session of its id is another."""

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
                page = await store.page_entries("s")
                assert raws(page.entries) == raws(messages(n + 1))
                assert page.incarnation == session.incarnation
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
