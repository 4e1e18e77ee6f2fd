"""A small world around a feed, in which everything that can go wrong in time does, by a seed.

A store that is slow, fails, is damaged and restored, and hints late or never; nodes that write
turns as an actor does, and die in the middle of them; sessions that are deleted and made anew;
viewers that read slowly, lose their connection in the middle of a frame, and come again by cursor.
A viewer checks what it is told as it comes.
"""

from __future__ import annotations

import asyncio

from perdure.errors import SessionNotFoundError
from tests.server.feed_node import IDS, Node, Stage
from tests.server.feed_watcher import Watcher


class World(Stage):
    """A run, from the first append until every viewer has seen everything."""

    async def run(self) -> None:
        """One interleaving, from the first append until every viewer has seen everything."""
        for each in IDS:
            await self.sea.create_session(each)
        watchers = [Watcher(self, n) for n in range(self.dice.randrange(1, 4))]
        watching = [asyncio.create_task(each.run()) for each in watchers]
        try:
            for life in range(self.weather.restarts + 1):
                if life:
                    await self._restart()
                await self._live(may_die=life < self.weather.restarts)
            self.weather.clear()
            assert self.node is not None
            for each in IDS:
                await self.node.wake(each)
            self.is_over = True
            await asyncio.gather(*(self.node.turn(each) for each in IDS))
            async with asyncio.timeout(1000):
                await asyncio.gather(*watching)
            for watcher in watchers:
                await watcher.check()
            assert self.node.feed.watched == frozenset()
            assert self.node.feed.viewer_count == 0
            await self.node.feed.close()
        finally:
            for task in watching:
                task.cancel()

    async def _restart(self) -> None:
        old, self.node = self.node, None
        assert old is not None
        await old.feed.close()
        await asyncio.sleep(self.dice.choice((0, 0.5)))
        self.node = Node(self.sea, self.weather, self.dice)

    async def _live(self, *, may_die: bool) -> None:
        assert self.node is not None
        writing = [asyncio.create_task(self._write(self.node, each)) for each in IDS[:2]]
        if may_die:
            await asyncio.wait(writing, timeout=self.dice.random() * 0.3)
            for each in writing:
                each.cancel()
            await asyncio.wait(writing)
        else:
            await asyncio.gather(*writing)

    async def _write(self, node: Node, session_id: str) -> None:
        try:
            await self.sea.load_session(session_id)
        except SessionNotFoundError:  # the life before ended between deleting and creating
            await node.create(session_id)
        await node.wake(session_id)
        for _ in range(self.dice.randrange(1, 4)):
            await node.turn(session_id)
            await asyncio.sleep(self.dice.choice((0, 0, 0.02)))
            if self.weather.deletions and self.dice.random() < 0.3:
                await self._make_anew(node, session_id)

    async def _make_anew(self, node: Node, session_id: str) -> None:
        """Deletes and creates; sometimes the creation is told before the deletion is."""
        deleting = asyncio.create_task(node.delete(session_id))
        try:
            while session_id in await self.sea.session_ids():  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0)
            if self.dice.random() < 0.7:
                await deleting
                await asyncio.sleep(self.dice.choice((0, 0.05)))
            await node.create(session_id)
        finally:
            await asyncio.wait([deleting])
