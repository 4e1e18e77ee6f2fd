"""A routine's journal folds from every prefix, is paged, and is never written by a look."""

from __future__ import annotations

from perdure import clock
from perdure.server.journal import JournalStore
from perdure.server.routine.definition import Wanted
from perdure.server.routine.state import State, decode_state, encode_state, fold
from perdure.stores.memory import MemoryStore
from tests.server.routine_house import (
    HANG,
    SAY,
    at,
    living,
    move,
    move_to,
    timed,
)


async def test_every_prefix_folds_and_a_summary_is_what_its_entries_come_to(
    store: JournalStore,
) -> None:
    async with timed() as clock, living(store) as house:
        await house.make(HANG, overlap="interrupt", resends=1, zone="Europe/Berlin")
        for _ in range(3):
            await move(house, clock, 3600)
        await house.routines.change("r", Wanted(text=SAY), status="paused")
        await house.rest()
        journals = store.of_kind("routine")
        entries = await journals.load_entries("r")
        state = fold(State(), entries)
        assert decode_state((await journals.look("r")).summary) == state
        for n in range(len(entries)):
            part = fold(State(), entries[:n])
            assert decode_state(encode_state(part)) == part
            assert fold(part, entries[n:]) == state


async def test_the_history_is_paged() -> None:
    async with timed() as clock, living(MemoryStore()) as house:
        await house.make(cron="*/5 * * * *")
        await move(house, clock, 3600 * 2 + 1)
        whole = await house.runs()
        assert len(whole) == 24
        for limit in (1, 5, 23, 24):
            assert await house.runs(limit=limit) == whole
        page = await house.routines.runs("r", limit=3)
        assert [run.due_at.minute for run in page.runs] == [0, 55, 50]


async def test_looking_writes_nothing() -> None:
    async with timed() as manual, living(MemoryStore()) as house:
        await house.make()
        await move(house, manual, 1.5 * 3600)
        journals = house.store.of_kind("routine")
        before = (await journals.look("r")).last_seq, (await house.store.look("r")).last_seq
        house.routines.look("r")
        house.routines.list()
        await house.routines.runs("r")
        house.routines.preview(Wanted(every_s=60))
        assert clock.now() == manual.now()
        after = (await journals.look("r")).last_seq, (await house.store.look("r")).last_seq
        assert after == before


async def test_a_listing_is_paged_by_id() -> None:
    async with timed(), living(MemoryStore()) as house:
        for name in ("c", "a", "b"):
            await house.routines.create(name, Wanted(cron="0 9 * * *", text="hello"))
        looks, following = house.routines.list(limit=2)
        assert ([look.routine_id for look in looks], following) == (["a", "b"], "b")
        looks, following = house.routines.list(limit=2, after=following)
        assert ([look.routine_id for look in looks], following) == (["c"], None)


async def test_a_routine_of_a_broken_journal_is_shown_and_harms_no_other() -> None:
    store = MemoryStore()
    async with timed() as clock:
        async with living(store) as house:
            await house.make()
            wanted = Wanted(cron="0 9 * * *", text=SAY)
            await house.routines.create("other", wanted)
        log = store.of_kind("routine")._logs["r"]
        log.summary = None
        log.entries[0] = log.entries[0].__class__(2, log.entries[0].entry)
        async with living(store) as house:
            looks, _ = house.routines.list()
            assert [(look.routine_id, look.status) for look in looks] == [
                ("other", "enabled"),
                ("r", "unrecoverable"),
            ]
            assert "seq 2 follows 0" in str(looks[1].why)
            await move_to(house, clock, at("2026-01-05T09:01"))
            assert await house.said("other") == [("01-05T09:00", "succeeded")]
