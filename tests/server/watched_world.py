"""A feed over a store in memory, and viewers of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from perdure.entry import Message
from perdure.events import MessageUpdate
from perdure.server.feed.cursor import Cursor
from perdure.server.feed.feed import Feed
from perdure.server.feed.viewer import Viewer
from perdure.server.session.look import SessionLook
from perdure.server.session.partial import Partial, Partials
from perdure.server.session.registry import Registry
from perdure.stores.memory import MemoryStore
from perdure.testing.scripted_loop import ScriptedLoop
from tests.server.live import OneLoop


class World:
    """A feed on a store, and a writer that does what an actor does."""

    def __init__(self, store: MemoryStore | None = None, *, ring_bytes: int = 2**20) -> None:
        self.store = store or MemoryStore()
        self.feed = Feed(self.store, ring_bytes=ring_bytes, heartbeat_s=0.02)
        self.registry = Registry(self.store, OneLoop(ScriptedLoop()), self.feed)
        self.partials = {"a": Partials(), "b": Partials()}
        self.turns = {"a": "turn", "b": "turn"}

    async def watch(self, *wanted: tuple[str, Cursor | None], listing: bool = False) -> Viewer:
        return await self.feed.watch(
            wanted, look=self.registry.look, partials=self._partials, listing=listing
        )

    def _partials(self, session_id: str) -> Sequence[Partial]:
        return self.partials[session_id].show(self.turns.get(session_id, "turn"))

    async def look(self, session_id: str) -> SessionLook:
        return await self.registry.look(session_id)

    def delta(self, session_id: str, update: MessageUpdate) -> None:
        self.partials[session_id].add(update)
        self.feed.delta(session_id, self.turns.get(session_id, "turn"), update)

    async def append(self, session_id: str, *entries: object) -> None:
        await self.store.append_entries(session_id, list(entries))
        for entry in entries:
            if isinstance(entry, Message):
                self.partials[session_id].drop(entry.id)

    async def close(self) -> None:
        await self.registry.close()
        await self.feed.close()


async def read_until(viewer: Viewer, wanted: bytes) -> bytes:
    got = b""
    async with asyncio.timeout(20):
        while wanted not in got:
            data = await viewer.next()
            assert data is not None, got
            got += data
    return got
