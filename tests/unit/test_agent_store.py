"""The three verbs of the contract are all that an agent needs of a store."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import Entry, Receipt, Session, Store, StoredEntry
from perdure.codec import Draft, seal
from perdure.errors import AppendRejectedError
from perdure.store import new_session, read_session
from perdure.stores.memory import MemoryStore
from perdure.stores.sqlite import SqliteStore
from tests.unit.checks import said
from tests.unit.looping import Probe


class ListStore:
    """Somebody's store, with the three verbs and nothing else; without the care of a real one."""

    def __init__(self) -> None:
        self.logs: dict[str, list[StoredEntry]] = {}
        self.incarnations: list[str | None] = []

    async def create_session(
        self,
        session_id: str,
        *,
        parent_id: str | None = None,
        entries: Sequence[Draft | Entry] = (),
    ) -> Session:
        if session_id in self.logs:
            raise perdure.SessionExistsError(session_id)
        self.logs[session_id] = []
        self._add(session_id, entries)
        return Session(session_id, parent_id, datetime.now(UTC), f"first {session_id}")

    async def load_entries(self, session_id: str, *, after: int = 0) -> Sequence[StoredEntry]:
        if session_id not in self.logs:
            raise perdure.SessionNotFoundError(session_id)
        return self.logs[session_id][after:]

    async def append_entries(
        self,
        session_id: str,
        entries: Sequence[Draft | Entry],
        *,
        expected_seq: int | None = None,
        incarnation: str | None = None,
    ) -> Receipt:
        self.incarnations.append(incarnation)
        stored = self._add(session_id, entries)
        return Receipt(tuple(stored), stored[0].seq, stored[-1].seq)

    def _add(self, session_id: str, entries: Sequence[Draft | Entry]) -> list[StoredEntry]:
        log = self.logs[session_id]
        stored = [StoredEntry(seq, seal(each)) for seq, each in enumerate(entries, len(log) + 1)]
        log.extend(stored)
        return stored


class RacedStore(ListStore):
    """Somebody else creates the session between an agent's two looks."""

    async def create_session(
        self,
        session_id: str,
        *,
        parent_id: str | None = None,
        entries: Sequence[Draft | Entry] = (),
    ) -> Session:
        await super().create_session(session_id, entries=[perdure.text("theirs")])
        raise perdure.SessionExistsError(session_id)


async def test_every_verb_of_an_agent_works_on_three_verbs() -> None:
    store: Store = ListStore()
    agent = await perdure.open("s", Probe(), store=store)
    await agent.run("hello")
    child = await agent.fork("child")
    await child.append("more")
    receipt = await agent.compact(keep_turns=0, summary="it said hello")
    assert receipt is not None
    again = await perdure.open("s", store=store)
    assert again.leaf_id == agent.leaf_id == receipt.entries[-1].id
    await again.append("and on")
    assert said(again.messages())[-1] == "and on"
    assert said((await perdure.open("child", store=store)).messages())[-1] == "more"


async def test_an_agent_passes_the_incarnation_that_it_was_told() -> None:
    store = ListStore()
    agent = await perdure.open("s", store=store)
    await agent.append("hello")
    again = await perdure.open("s", store=store)
    await again.append("hello again")
    assert store.incarnations == ["first s", None]
    assert (agent.session is None, again.session is None) == (False, True)
    assert again.session_id == "s"


async def test_a_session_that_is_created_meanwhile_is_resumed() -> None:
    agent = await perdure.open("s", store=RacedStore())
    assert said(agent.messages()) == ["theirs"]


@pytest.mark.parametrize("made", [ListStore, MemoryStore])
def test_what_has_the_verbs_is_a_store(made: type) -> None:
    assert isinstance(made(), Store)
    assert not isinstance(object(), Store)


def test_a_session_of_its_four_fields_has_a_header_of_its_own() -> None:
    made = new_session("s", "parent")
    same = Session(made.id, made.parent_id, made.created_at, made.incarnation)
    assert same == made
    assert read_session(same.header) == made


async def test_an_agent_appends_as_a_subclass_or_a_wrapper_of_a_store_says(tmp_path: Path) -> None:
    seen: list[str] = []

    class Watched(SqliteStore):
        async def append_entries(self, *args: Any, **more: Any) -> Receipt:
            seen.append("subclass")
            return await super().append_entries(*args, **more)

    class Wrapper:
        def __init__(self, store: SqliteStore) -> None:
            self._store = store

        def __getattr__(self, name: str) -> Any:
            return getattr(self._store, name)

        async def append_entries(self, *args: Any, **more: Any) -> Receipt:
            seen.append("wrapper")
            return await self._store.append_entries(*args, **more)

    async with Watched(tmp_path / "s.db") as store:
        for each in (store, Wrapper(store)):
            agent = await perdure.open("s", store=each)
            await agent.append("hi")
    assert seen == ["subclass", "wrapper", "subclass"]


async def test_an_agent_appends_as_an_object_or_a_class_was_told_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def watched(name: str, append: Any) -> Any:
        async def append_entries(*args: Any, **more: Any) -> Receipt:
            seen.append(name)
            receipt: Receipt = await append(*args, **more)
            return receipt

        return append_entries

    async with SqliteStore(tmp_path / "s.db") as store:
        agent = await perdure.open("s", store=store)
        await agent.append("as it is")
        with monkeypatch.context() as patch:
            put = watched("class", SqliteStore.append_entries)
            patch.setattr(SqliteStore, "append_entries", put)
            await agent.append("watched")
        with monkeypatch.context() as patch:
            patch.setattr(store, "append_entries", watched("object", store.append_entries))
            await agent.append("watched")
        assert (await agent.append("as it is")).last_seq == 4
    assert seen == ["class", "object"]


async def test_two_entries_of_one_batch_with_one_id_are_refused(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "s.db") as store:
        agent = await perdure.open("s", store=store)
        message = perdure.text("hi")
        with pytest.raises(AppendRejectedError, match="same id"):
            await agent.append(message, message)
        assert (await agent.append(message)).last_seq == 1
