"""A registry on a store, what its feed was told, and short ways to say what tests do to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence

from perdure.codec import StoredEntry
from perdure.entry import Message, Text
from perdure.errors import ConfigurationError
from perdure.events import MessageUpdate
from perdure.fact import Policy, TurnEnded
from perdure.loop import Loop, LoopContext, LoopEvent, LoopFactory
from perdure.server.journal import JournalStore
from perdure.server.session.command import Sent
from perdure.server.session.limit import Limits
from perdure.server.session.look import SessionLook
from perdure.server.session.registry import Registry
from perdure.server.session.state import State, decode_state
from perdure.server.session.surroundings import NOTHING, Surroundings
from perdure.testing import scripted_by_message

ID = "a session"


class Feed:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.deltas: list[tuple[str, str, MessageUpdate]] = []
        self.notices: list[tuple[str, str, str]] = []
        self.looks: list[SessionLook] = []

    def delta(self, session_id: str, turn_id: str, update: MessageUpdate) -> None:
        self.deltas.append((session_id, turn_id, update))

    def notice(self, session_id: str, turn_id: str, text: str) -> None:
        self.notices.append((session_id, turn_id, text))

    def status(self, look: SessionLook) -> None:
        self.looks.append(look)

    @property
    def statuses(self) -> list[str]:
        return [look.status for look in self.looks]


class Loops:
    """One loop under the name of the default, and others by name."""

    default = "scripted"

    def __init__(self, loop: LoopFactory = scripted_by_message, **others: LoopFactory) -> None:
        self._loops = {"scripted": loop, **others}

    async def prepare(self, name: str) -> None:
        self.factory(name)

    def factory(self, name: str) -> LoopFactory:
        if name not in self._loops:
            raise ConfigurationError(f"no loop {name!r}")
        return self._loops[name]


class Gate:
    """A loop factory whose runs wait for `open` before they play the script of their message."""

    def __init__(self) -> None:
        self._open = asyncio.Event()

    def open(self) -> None:
        self._open.set()

    def __call__(self) -> Loop:
        return self._play

    async def _play(self, context: LoopContext) -> AsyncGenerator[LoopEvent, None]:
        await self._open.wait()
        async for event in scripted_by_message()(context):
            yield event


class House:
    """A server's registry in a test; `restart` makes a new one on the same store."""

    def __init__(
        self,
        store: JournalStore,
        loops: Loops | None = None,
        limits: Limits | None = None,
        surroundings: Surroundings = NOTHING,
    ) -> None:
        self.store = store
        self.loops = loops or Loops()
        self.feed = Feed()
        self.limits = limits
        self.surroundings = surroundings
        self.registry = Registry(
            store, self.loops, self.feed, limits=limits, surroundings=surroundings
        )
        self._others: list[House] = []

    def restart(
        self,
        loops: Loops | None = None,
        limits: Limits | None = None,
        surroundings: Surroundings | None = None,
    ) -> House:
        """A new registry on the same store; it is closed with this one."""
        other = House(
            self.store,
            loops or self.loops,
            limits or self.limits,
            surroundings or self.surroundings,
        )
        self._others.append(other)
        return other

    async def close(self) -> None:
        """Shuts down."""
        await self.registry.close()
        for other in self._others:
            await other.close()

    async def create(self) -> None:
        await self.registry.create(ID)

    async def send(
        self, text: str, *, key: str | None = None, if_running: Policy = "queue"
    ) -> Sent:
        return await self.registry.send(
            ID, [Text(text)], idempotency_key=key, if_running=if_running
        )

    async def look(self) -> SessionLook:
        return await self.registry.look(ID)

    async def log(self) -> Sequence[StoredEntry]:
        return await self.store.load_entries(ID)

    async def types(self) -> list[str]:
        return [stored.type for stored in await self.log()]

    async def ends(self) -> list[tuple[str, str]]:
        """Each turn that ended, and why, in order."""
        views = [stored.view for stored in await self.log()]
        return [(view.turn_id, view.reason) for view in views if isinstance(view, TurnEnded)]

    async def texts(self) -> list[str]:
        """The transcript's texts, from the root to the leaf."""
        page = await self.registry.transcript(ID, limit=1000)
        views = [each.stored.view for each in page.entries]
        return [view.text for view in views if isinstance(view, Message) and view.role != "tool"]

    async def state(self) -> State:
        """The state that the store has as the session's summary."""
        state = decode_state((await self.store.look(ID)).summary)
        assert state is not None
        return state

    async def until(
        self, holds: Callable[[SessionLook], bool], session_id: str = ID
    ) -> SessionLook:
        """Waits until the session looks so."""
        for attempt in range(5000):
            look = await self.registry.look(session_id)
            if holds(look):
                return look
            await asyncio.sleep(0.001 if attempt > 50 else 0)
        raise AssertionError(look)

    async def rest(self) -> SessionLook:
        """Waits until no turn runs."""
        return await self.until(lambda look: look.turn is None)

    async def until_partial(self, text: str) -> None:
        """Waits until this text of a part in the making was shown."""
        for attempt in range(5000):
            if any(partial.text == text for partial in self.registry.partials(ID)):
                return
            await asyncio.sleep(0.001 if attempt > 50 else 0)
        raise AssertionError(self.registry.partials(ID))
