"""The actors that are in memory: who uses them, and when they leave.

An actor that is used, or whose turn runs, never leaves. Whether one is used is counted before
anything is awaited and looked at again when it leaves, so that a message which meets an offload is
taken by an actor that stays, or by the next one: never by none, and never by two.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from perdure import clock
from perdure.server.session.actor import Actor
from perdure.server.session.limit import Limits

_SWEEPS = 8
"""How often at most it is looked for idle actors while one of them gets idle."""


class Roster:
    """The actors by session id, least recently used first. Looking asks `get`, which makes none."""

    def __init__(self, make: Callable[[str], Actor], limits: Limits) -> None:
        self._make = make
        self._limits = limits
        self._actors: OrderedDict[str, Actor] = OrderedDict()
        self._users: dict[str, int] = {}
        self._used_at: dict[str, float] = {}
        self._room = asyncio.Lock()
        self._sweeper: asyncio.Task[None] | None = None
        self._trimmer: asyncio.Task[None] | None = None
        self._is_closed = False
        self._changes = 0

    def __len__(self) -> int:
        return len(self._actors)

    def get(self, session_id: str) -> Actor | None:
        """The session's actor, if there is one."""
        return self._actors.get(session_id)

    @asynccontextmanager
    async def use(self, session_id: str) -> AsyncIterator[Actor]:
        """The session's actor, which stays inside the block; made asleep where there is none."""
        actor = self._actors.get(session_id)
        is_new = actor is None
        if actor is None:
            actor = self._actors[session_id] = self._make(session_id)
        self._users[session_id] = self._users.get(session_id, 0) + 1
        self._touch(session_id)
        try:
            if is_new and self._is_crowded:
                await self._make_room()
            yield actor
        finally:
            self._release(session_id, actor)

    def rested(self, session_id: str) -> None:
        """A turn of this session ended, and none follows it."""
        self._touch(session_id)
        self._trim_soon()

    def drop(self, actor: Actor) -> None:
        """Takes out an actor whose session is gone; those who hold it are refused by it."""
        if self._actors.get(actor.session_id) is actor:
            del self._actors[actor.session_id]
            self._used_at.pop(actor.session_id, None)

    async def close(self) -> list[Actor]:
        """Offloads nothing more; the actors that there are."""
        self._is_closed = True
        tasks = [task for task in (self._sweeper, self._trimmer) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        return list(self._actors.values())

    def _touch(self, session_id: str) -> None:
        self._changes += 1
        if session_id not in self._actors:
            return
        self._actors.move_to_end(session_id)
        self._used_at[session_id] = clock.monotonic()
        if not self._is_closed and (self._sweeper is None or self._sweeper.done()):
            self._sweeper = asyncio.create_task(self._sweep())

    def _release(self, session_id: str, actor: Actor) -> None:
        self._users[session_id] -= 1
        if not self._users[session_id]:
            del self._users[session_id]
            if actor.is_blank:
                self.drop(actor)
        self._touch(session_id)
        self._trim_soon()

    @property
    def _is_crowded(self) -> bool:
        """Whether more are awake, or about to be, than may be."""
        if len(self._actors) <= self._limits.max_live_actors:
            return False
        awake = sum(1 for id_, a in self._actors.items() if a.is_awake or id_ in self._users)
        return awake > self._limits.max_live_actors

    def _trim_soon(self) -> None:
        is_trimming = self._trimmer is not None and not self._trimmer.done()
        if self._is_crowded and not is_trimming and not self._is_closed:
            self._trimmer = asyncio.create_task(self._make_room())

    async def _make_room(self) -> None:
        """Offloads the least recently used until no more are awake than may be.

        Those that are used or have a turn stay, even if that is too many.
        """
        async with self._room:
            seen = -1
            while self._is_crowded and seen != self._changes:
                seen = self._changes
                for actor in list(self._actors.values()):
                    if not self._is_crowded:
                        return
                    await self._offload(actor)

    async def _sweep(self) -> None:
        """Offloads what gets idle, as long as there is an actor."""
        idle_after_s = self._limits.idle_after_s
        while self._actors:
            now = clock.monotonic()
            resting = (self._used_at[id_] for id_, a in self._actors.items() if a.is_at_rest)
            due_s = min(resting, default=now) + idle_after_s - now
            await clock.sleep(max(due_s, idle_after_s / _SWEEPS))
            for session_id, actor in list(self._actors.items()):
                used_at = self._used_at.get(session_id, clock.monotonic())
                if clock.monotonic() - used_at >= idle_after_s:
                    await self._offload(actor)

    async def _offload(self, actor: Actor) -> None:
        if actor.session_id in self._users:
            return
        if actor.is_blank:
            self.drop(actor)
        elif actor.is_at_rest:
            await actor.offload(lambda: self._let_go(actor))

    def _let_go(self, actor: Actor) -> bool:
        if actor.session_id in self._users:
            return False
        self.drop(actor)
        return True
