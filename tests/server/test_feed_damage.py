"""A journal that is damaged under its viewers, and restored: they are told both."""

from __future__ import annotations

from typing import Any

from perdure.entry import text
from perdure.errors import JournalCorruptError
from perdure.store import Page
from perdure.stores.memory import MemoryStore
from tests.server.live import running, until


class Damaged(MemoryStore):
    """Its journals cannot be read while it is told so."""

    is_damaged = False

    async def page_entries(self, session_id: str, **options: Any) -> Page:
        if self.is_damaged:
            raise JournalCorruptError(session_id, 2, "an entry", "its sum is wrong")
        return await super().page_entries(session_id, **options)


async def test_viewers_hear_of_damage_and_of_its_end_and_miss_nothing() -> None:
    store = Damaged()
    await store.create_session("s", entries=[text("one")])
    async with (
        running(store=store, settings={"heartbeat_s": 0.05}) as server,
        server.stream(("session", "s"), ("after", "0")) as events,
    ):
        await until(events, "entry", seq=1)
        store.is_damaged = True
        await store.append_entries("s", [text("two")])
        told = await until(events, "status", status="unrecoverable")
        assert "its sum is wrong" in told[-1].data["cause"]
        async with server.stream(("session", "s"), ("after", "0")) as late:
            await until(late, "status", status="unrecoverable")
            store.is_damaged = False
            for stream, seqs in ((late, [1, 2]), (events, [2])):
                told = await until(stream, "status", status="idle", last_seq=2)
                assert [each.data["seq"] for each in told if each.name == "entry"] == seqs
