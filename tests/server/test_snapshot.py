"""Snapshots save time and decide nothing: with and without them the state is the same."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from perdure.codec import StoredEntry, seal
from perdure.entry import Message, Text, text
from perdure.errors import JournalCorruptError, StateUnreplayableError, StoreUnavailableError
from perdure.fact import TurnStarted
from perdure.server.journal import JournalStore
from perdure.server.session.keeper import Keeper
from perdure.server.session.limit import Limits
from perdure.server.session.replay import load_state, replay_all
from perdure.server.session.state import (
    SCHEMA,
    OpenTurn,
    State,
    decode_state,
    encode_state,
    fold,
    take_snapshot,
)
from perdure.snapshot import KEPT, Snapshot
from perdure.snapshot import seal as seal_bytes
from perdure.stores.memory import MemoryStore
from perdure.stores.sqlite import SqliteStore
from tests.server.house import ID, House
from tests.server.test_state import journals

GOLDEN = Path(__file__).parents[1] / "golden" / "0.1.0" / "sessions.db"


class Counting:
    """A store that counts the entries that it hands out, and can lose its summary or fail."""

    def __init__(self, store: JournalStore) -> None:
        self._store = store
        self.read = 0
        self.summary: Callable[[bytes | None], bytes | None] = lambda summary: summary
        self.snapshot_error: Exception | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def page_entries(self, *args: Any, **options: Any) -> Any:
        page = await self._store.page_entries(*args, **options)
        self.read += len(page.entries)
        return page

    async def look(self, session_id: str) -> Any:
        look = await self._store.look(session_id)
        return type(look)(look.session, look.last_seq, self.summary(look.summary))

    async def load_snapshot(self, *args: Any, **options: Any) -> Any:
        if self.snapshot_error is not None:
            raise self.snapshot_error
        return await self._store.load_snapshot(*args, **options)

    async def put_snapshot(self, *args: Any, **options: Any) -> Any:
        if self.snapshot_error is not None:
            raise self.snapshot_error
        return await self._store.put_snapshot(*args, **options)


def no_summary(summary: bytes | None) -> bytes | None:
    return None


@settings(max_examples=60, deadline=None)
@given(journals(), st.data())
def test_replay_from_each_snapshot_equals_replay_from_the_start_for_every_prefix(
    journal: list[StoredEntry], data: st.DataObject
) -> None:
    seqs = data.draw(st.sets(st.integers(1, max(len(journal), 1)), max_size=4))

    async def run() -> None:
        store = MemoryStore()
        session = await store.create_session(ID)
        for length in range(len(journal) + 1):
            if length:
                await store.append_entries(ID, [journal[length - 1].entry])
            expected = fold(State(), journal[:length])
            if length in seqs:
                await store.put_snapshot(ID, take_snapshot(expected, session.incarnation))
            look = await store.look(ID)
            assert await replay_all(store, look) == expected
            started = await load_state(store, look)
            assert started.last_seq == max((seq for seq in seqs if seq <= length), default=0)

    asyncio.run(run())


async def long_session(store: JournalStore, count: int = 30) -> list[StoredEntry]:
    """A session that no server has seen."""
    await store.create_session(ID)
    parent_id: str | None = None
    for n in range(count):
        entry = seal(Message("user", (Text(str(n)),), id=f"m{n}"), parent_id)
        parent_id = entry.id
        await store.append_entries(ID, [entry])
    return list(await store.load_entries(ID))


def at(log: list[StoredEntry], seq: int) -> State:
    return fold(State(), log[:seq])


UNREADABLE: dict[str, Callable[[State, str], Snapshot]] = {
    "from the future": lambda state, own: Snapshot(
        state.last_seq,
        SCHEMA + 1,
        own,
        seal_bytes(msgspec.json.encode({"schema": SCHEMA + 1, "last_seq": state.last_seq})),
    ),
    "cut off": lambda state, own: Snapshot(state.last_seq, SCHEMA, own, encode_state(state)[:-1]),
    "empty": lambda state, own: Snapshot(state.last_seq, SCHEMA, own, b""),
    "changed": lambda state, own: Snapshot(
        state.last_seq, SCHEMA, own, encode_state(state).replace(b'"m', b'"n')
    ),
    "of another type": lambda state, own: Snapshot(
        state.last_seq, SCHEMA, own, seal_bytes(b'{"schema":2,"last_seq":"many"}')
    ),
    "of another seq": lambda state, own: Snapshot(
        state.last_seq, SCHEMA, own, encode_state(replace(state, last_seq=3))
    ),
    "that lies": lambda state, own: take_snapshot(
        replace(state, turn=OpenTurn("t", "m", state.last_activity)),  # type: ignore[arg-type]
        own,
    ),
}


@pytest.mark.parametrize("kind", UNREADABLE)
async def test_a_snapshot_that_cannot_be_used_counts_as_absent(
    store: JournalStore, kind: str
) -> None:
    log = await long_session(store, 12)
    session = await store.load_session(ID)
    await store.put_snapshot(ID, take_snapshot(at(log, 5), session.incarnation))
    await store.put_snapshot(ID, UNREADABLE[kind](at(log, 10), session.incarnation))
    await store.append_entries(ID, [TurnStarted(turn_id="t1", message_id="m11")])
    counting = Counting(store)
    look = await counting.look(ID)
    expected = fold(State(), await store.load_entries(ID))
    assert await replay_all(counting, look) == expected
    assert counting.read == (13 + 3 if kind == "that lies" else 8)


async def test_a_snapshot_beyond_the_end_counts_as_absent(store: JournalStore) -> None:
    log = await long_session(store, 8)
    session = await store.load_session(ID)
    await store.put_snapshot(ID, take_snapshot(at(log, 4), session.incarnation))
    beyond = replace(at(log, 8), last_seq=9)
    await store.put_snapshot(ID, take_snapshot(beyond, session.incarnation))
    assert (await load_state(store, await store.look(ID))).last_seq == 4
    await store.put_snapshot(ID, Snapshot(2**40, SCHEMA, session.incarnation, b"x"))
    assert await replay_all(store, await store.look(ID)) == at(log, 8)


async def test_a_summary_beyond_the_end_counts_as_absent() -> None:
    store = MemoryStore()
    log = await long_session(store, 4)
    counting = Counting(store)
    counting.summary = lambda _: encode_state(replace(at(log, 4), last_seq=5))
    assert await replay_all(counting, await counting.look(ID)) == at(log, 4)
    assert counting.read == 4


def test_any_change_to_a_sealed_state_is_noticed() -> None:
    stored = StoredEntry(1, seal(text("hello")))
    sealed = encode_state(fold(State(), [stored]))
    assert decode_state(sealed) is not None
    for place in range(len(sealed)):
        for bit in range(8):
            changed = bytearray(sealed)
            changed[place] ^= 1 << bit
            assert decode_state(bytes(changed)) is None
    for end in range(len(sealed)):
        assert decode_state(sealed[:end]) is None


async def test_damage_to_the_snapshots_leaves_the_journal_to_decide(store: JournalStore) -> None:
    log = await long_session(store, 5)
    counting = Counting(store)
    counting.snapshot_error = JournalCorruptError(ID, None, "page 7", "it is torn")
    assert await replay_all(counting, await counting.look(ID)) == at(log, 5)


async def test_an_entry_that_does_not_fold_is_not_excused_by_a_retry(store: JournalStore) -> None:
    log = await long_session(store, 3)
    session = await store.load_session(ID)
    await store.put_snapshot(ID, take_snapshot(at(log, 2), session.incarnation))
    for turn in ("t", "u"):
        await store.append_entries(ID, [TurnStarted(turn_id=turn, message_id="m0")])
    with pytest.raises(StateUnreplayableError, match="inside"):
        await replay_all(store, await store.look(ID))


async def test_waking_reads_as_much_of_a_long_session_as_of_a_short_one() -> None:
    reads = []
    for count in (10, 600):
        inner = MemoryStore()
        await long_session(inner, count)
        first = House(inner)
        await first.send("once")
        await first.rest()
        await first.close()
        counting = Counting(inner)
        house = House(counting)
        await house.registry.stop(ID)
        await house.look()
        await house.close()
        reads.append(counting.read)
    assert reads == [0, 0]


async def test_without_a_summary_waking_reads_what_came_since_the_snapshot(
    store: JournalStore,
) -> None:
    counting = Counting(store)
    house = House(counting, limits=Limits(snapshot_every=20))
    await house.create()
    for n in range(12):
        await house.send(str(n))
        await house.rest()
    await house.close()
    log = list(await store.load_entries(ID))
    newest = await store.load_snapshot(ID)
    assert newest is not None
    assert newest.seq >= len(log) - len(log) % 20
    assert await store.prune_snapshots(ID, keep=0) == KEPT
    await store.put_snapshot(ID, newest)
    counting.summary, counting.read = no_summary, 0
    again = house.restart()
    await again.registry.stop(ID)
    assert counting.read == len(log) - newest.seq
    counting.summary = lambda summary: summary
    await house.close()
    assert await house.state() == fold(State(), await store.load_entries(ID))


async def test_a_snapshot_that_cannot_be_kept_costs_no_command(store: JournalStore) -> None:
    counting = Counting(store)
    counting.snapshot_error = StoreUnavailableError("the disk is full")
    house = House(counting, limits=Limits(snapshot_every=1))
    await house.create()
    await house.send("hello")
    look = await house.rest()
    await house.close()
    assert (look.status, await house.texts()) == ("idle", ["hello", "hello"])
    assert await store.load_snapshot(ID) is None


async def test_compaction_prunes_snapshots_and_never_an_entry(store: JournalStore) -> None:
    house = House(store)
    await house.create()
    for n in range(6):
        await house.send(str(n))
        await house.rest()
    session = await store.load_session(ID)
    log = list(await house.log())
    for seq in range(1, 9):
        await store.put_snapshot(ID, take_snapshot(at(log, seq), session.incarnation))
    cursor = (await house.look()).cursor
    compacted = await house.registry.compact(ID, keep_turns=1)
    assert compacted.entry is not None
    await house.close()
    after = list(await house.log())
    assert [each.raw for each in after[: len(log)]] == [each.raw for each in log]
    assert [each.seq for each in after] == list(range(1, len(after) + 1))
    assert cursor == f"{len(log)}.{session.incarnation}"
    assert await store.prune_snapshots(ID, keep=0) == KEPT
    await store.verify_session(ID)  # type: ignore[attr-defined]  # both stores have it


async def test_a_file_from_before_there_were_snapshots_takes_them(tmp_path: Path) -> None:
    file = tmp_path / "sessions.db"
    shutil.copy(GOLDEN, file)
    async with SqliteStore(file) as store:
        assert await store.load_snapshot("golden") is None
        assert await store.prune_snapshots("golden") == 0
        session = await store.load_session("golden")
        kept = Snapshot(3, SCHEMA, session.incarnation, b"x")
        await store.put_snapshot("golden", kept)
        assert await store.load_snapshot("golden") == kept
        await store.delete_session("fork")
        assert await store.verify_store() == []
        await store.verify_session("golden")


async def test_a_snapshot_of_a_session_that_is_gone_is_nothing_to_warn_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = MemoryStore()
    session = await store.create_session("s", entries=[text("hello")])
    keeper = Keeper(store, "s", 1)
    await store.delete_session("s")
    await keeper.save(State(), session)
    await keeper.prune()
    await keeper.close()
    assert caplog.text == ""
