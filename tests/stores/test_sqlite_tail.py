"""Wherever the border between index and tail stands, every verb says what the memory store says."""

import random
from dataclasses import replace
from pathlib import Path

import pytest

from perdure.codec import Entry, seal
from perdure.entry import Message, Text
from perdure.errors import PerdureError
from perdure.fact import LeafMoved
from perdure.store import Page
from perdure.stores.memory import MemoryStore
from perdure.stores.sqlite import SqliteStore, ledger

SESSIONS = ("a", "b", "c")


def drawn_batch(chance: random.Random, ids: list[str]) -> list[Entry]:
    batch: list[Entry] = []
    for _ in range(chance.choice([0, 1, 1, 1, 2, 5])):
        entry_id = f"e{len(ids)}"
        parent_id = chance.choice([None, *ids[-1:] * 6, *chance.sample(ids, min(3, len(ids)))])
        if chance.random() < 0.25:
            batch.append(seal(LeafMoved(from_id=None, leaf_id=parent_id, id=entry_id)))
        else:
            batch.append(seal(Message("user", (Text("hi"),), id=entry_id), parent_id))
        ids.append(entry_id)
    return batch


async def answer(
    store: SqliteStore | MemoryStore, verb: str, *args: object, **more: object
) -> object:
    try:
        said: object = await getattr(store, verb)(*args, **more)
    except PerdureError as error:
        return type(error)
    # each store's session has an incarnation of its own
    return replace(said, incarnation="") if isinstance(said, Page) else said


@pytest.mark.parametrize("tail_length", [1, 2, 7, 40])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("writers", [1, 2])
async def test_two_stores_on_one_file_say_what_the_memory_store_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tail_length: int, seed: int, writers: int
) -> None:
    monkeypatch.setattr(ledger, "TAIL_LENGTH", tail_length)
    chance = random.Random(seed)
    model = MemoryStore()
    one, two = SqliteStore(tmp_path / "s.db"), SqliteStore(tmp_path / "s.db")
    ids: dict[str, list[str]] = {name: [] for name in SESSIONS}
    batches: list[tuple[str, list[Entry]]] = []
    async with one, two:
        for _ in range(150):
            name, store = chance.choice(SESSIONS), chance.choice([one, two][:writers])
            batch = drawn_batch(chance, ids[name])
            match chance.choice(["create", *["append"] * 3, "retry", "delete"]):
                case "create":
                    assert isinstance(await answer(store, "create_session", name), type) is (
                        isinstance(await answer(model, "create_session", name), type)
                    )
                case "append":
                    batches.append((name, batch))
                    expected_seq = chance.choice([None, None, 3])
                    assert await answer(
                        store, "append_entries", name, batch, expected_seq=expected_seq
                    ) == await answer(
                        model, "append_entries", name, batch, expected_seq=expected_seq
                    )
                case "retry" if batches:
                    name, batch = chance.choice([*batches[-12:], *batches])
                    batch = batch[: chance.choice([1, 9, 9])]
                    assert await answer(store, "append_entries", name, batch) == await answer(
                        model, "append_entries", name, batch
                    )
                case "delete" if chance.random() < 0.2:
                    assert await answer(store, "delete_session", name) == await answer(
                        model, "delete_session", name
                    )
            await hold_against(chance, model, chance.choice([one, two]), name, ids[name])
        for name in await model.session_ids():
            await one.verify_session(name)
        listed = [look.session.id for look in (await two.list_sessions()).sessions]
        assert listed == [look.session.id for look in (await model.list_sessions()).sessions]
        assert sorted(await one.session_ids()) == sorted(await model.session_ids())


async def hold_against(
    chance: random.Random, model: MemoryStore, store: SqliteStore, name: str, ids: list[str]
) -> None:
    """Asks both the same questions about one session."""
    bound = chance.randrange(0, 30)
    entry_id = chance.choice([*ids, "nothing"])
    for verb, args, more in (
        ("load_entries", (), {}),
        ("load_entries", (), {"after": bound}),
        ("page_entries", (), {"limit": 5}),
        ("page_entries", (), {"before": bound, "limit": 4}),
        ("page_entries", (), {"after": bound, "limit": 4}),
        ("load_entry", (bound,), {}),
        ("load_entry", (entry_id,), {}),
        ("load_path", (entry_id,), {}),
        ("load_path", (entry_id,), {"limit": 3}),
        ("children", ([None, entry_id, *ids[-3:]],), {}),
    ):
        said = await answer(store, verb, name, *args, **more)
        assert said == await answer(model, verb, name, *args, **more), (verb, args, more)
