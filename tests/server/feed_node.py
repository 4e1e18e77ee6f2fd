"""A store that is slow, fails, is damaged and restored, hints late or never; nodes like actors."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from msgspec.structs import replace

from perdure import clock
from perdure.codec import Draft, Entry, StoredEntry
from perdure.entry import Message, Text, text
from perdure.errors import JournalCorruptError, StoreUnavailableError
from perdure.events import MessageUpdate
from perdure.fact import TurnEnded, TurnStarted
from perdure.server.feed.feed import Feed
from perdure.server.session.look import SessionLook, look_of
from perdure.server.session.partial import Partial, Partials
from perdure.server.session.state import State, fold
from perdure.store import Look, Page
from perdure.stores.memory import MemoryStore, _Log

HEARTBEAT_S = 1.0
IDS = ("a", "b", "c")


class Weather:
    """How bad it is, drawn once for each run."""

    def __init__(self, dice: random.Random) -> None:
        self.slow = dice.choice((0.0, 0.3, 0.8))
        self.failing = dice.choice((0.0, 0.0, 0.1, 0.3))
        self.hints_lost = dice.choice((0.0, 0.0, 0.2))
        self.ring_bytes = dice.choice((2**20, 2**20, 4000, 600))
        self.backlog_bytes = dice.choice((2**20, 2**20, 3000))
        self.restarts = dice.choice((0, 0, 1, 2))
        self.deletions = dice.choice((0, 0, 1, 2))
        self.damage = dice.choice((0.0, 0.0, 0.0, 0.1))

    def clear(self) -> None:
        """From here on nothing goes wrong any more."""
        self.slow = self.failing = self.hints_lost = self.damage = 0.0


class Sea(MemoryStore):
    """A memory store in that weather; it remembers every entry of every incarnation."""

    def __init__(self, dice: random.Random, weather: Weather) -> None:
        super().__init__()
        self._dice = dice
        self._weather = weather
        self.journals: dict[str, list[StoredEntry]] = {}
        self._damaged_until: dict[str, float] = {}

    def _add(self, log: _Log, sealed: Sequence[Entry]) -> Sequence[StoredEntry]:
        stored = super()._add(log, sealed)
        self.journals.setdefault(log.session.incarnation, []).extend(stored)
        return stored

    def _hint(self, session_id: str) -> None:
        loop = asyncio.get_running_loop()
        for listener in tuple(self._listeners.values()):
            if self._dice.random() >= self._weather.hints_lost:
                late = self._dice.random() < self._weather.slow
                loop.call_later(self._dice.random() * 0.1 if late else 0, listener, session_id)

    async def lag(self) -> None:
        """Some time passes, in the middle of things."""
        for _ in range(8):
            if self._dice.random() >= self._weather.slow:
                return
            await asyncio.sleep(self._dice.choice((0, 0, 0.001, 0.05)))

    async def _read(self) -> None:
        await self.lag()
        if self._dice.random() < self._weather.failing:
            raise StoreUnavailableError("locked")

    def _check_damage(self, session_id: str) -> None:
        """Sometimes a journal is damaged, for every reader, until somebody restores it."""
        now = asyncio.get_running_loop().time()
        if self._dice.random() < self._weather.damage and session_id not in self._damaged_until:
            self._damaged_until[session_id] = now + self._dice.choice((0.01, 0.3, 3 * HEARTBEAT_S))
        if self._weather.damage and now < self._damaged_until.get(session_id, now):
            raise JournalCorruptError(session_id, 1, "an entry", "its sum is wrong")
        if self._dice.random() < 0.5:
            self._damaged_until.pop(session_id, None)  # and it may be damaged once more

    async def page_entries(
        self,
        session_id: str,
        *,
        before: int | None = None,
        after: int | None = None,
        limit: int = 50,
    ) -> Page:
        await self._read()
        self._check_damage(session_id)
        fewer = self._dice.choice((1, 2, limit))
        page = await super().page_entries(session_id, before=before, after=after, limit=fewer)
        await self.lag()
        return page

    async def look(self, session_id: str) -> Look:
        await self._read()
        look = await super().look(session_id)
        await self.lag()
        return look

    async def load_entry(self, session_id: str, entry: int | str) -> StoredEntry:
        await self._read()
        self._check_damage(session_id)
        stored = await super().load_entry(session_id, entry)
        await self.lag()
        return stored

    async def log(self, session_id: str) -> Sequence[StoredEntry]:
        """The journal as it is, without weather."""
        return await MemoryStore.load_entries(self, session_id)


class Node:
    """One life of a server: a feed, and writers that do what actors do."""

    def __init__(self, sea: Sea, weather: Weather, dice: random.Random) -> None:
        self.sea = sea
        self.feed = Feed(
            sea,
            heartbeat_s=HEARTBEAT_S,
            ring_bytes=weather.ring_bytes,
            backlog_bytes=weather.backlog_bytes,
        )
        self._dice = dice
        self._live: dict[str, str] = {}
        self._partials: dict[str, Partials] = {each: Partials() for each in IDS}
        self.told: list[SessionLook] = []

    def partials(self, session_id: str) -> Sequence[Partial]:
        """What a registry says of the texts in the making."""
        return self._partials[session_id].show(self._live.get(session_id, ""))

    async def look(self, session_id: str) -> SessionLook:
        """What a registry says of a session."""
        found = await self.sea.look(session_id)
        entries = self.sea.journals.get(found.session.incarnation, [])[: found.last_seq]
        return look_of(found.session, _state_of(entries), live=[self._live.get(session_id, "")])

    async def true_look(self, session_id: str) -> SessionLook:
        """The same without weather."""
        session = await self.sea.load_session(session_id)
        state = _state_of(self.sea.journals.get(session.incarnation, []))
        return look_of(session, state, live=[self._live.get(session_id, "")])

    async def tell(self, session_id: str) -> None:
        """Tells the status as an actor does: of what was stored, without a pause."""
        self._tell(await self.true_look(session_id))

    def _tell(self, look: SessionLook) -> None:
        self.told.append(look)
        self.feed.status(look)

    async def append(self, session_id: str, *drafts: Draft | Entry) -> None:
        """Appends, and hears of it later than readers may."""
        await self.sea.lag()
        receipt = await self.sea.append_entries(session_id, drafts)
        await self.sea.lag()
        for stored in receipt.entries:
            self._partials[session_id].drop(stored.id)

    async def wake(self, session_id: str) -> None:
        """Ends the turn that another life of the server left open."""
        state = _state_of(await self.sea.log(session_id))
        if state.turn is not None:
            await self.append(
                session_id, TurnEnded(turn_id=state.turn.turn_id, reason="interrupted")
            )
        await self.tell(session_id)

    async def turn(self, session_id: str) -> None:
        """One turn, as an actor runs it."""
        dice, turn_id = self._dice, clock.new_id()
        self._live[session_id] = turn_id
        question = text("question")
        await self.append(
            session_id, TurnStarted(turn_id=turn_id, message_id=question.id), question
        )
        await self.tell(session_id)
        for _ in range(dice.randrange(3)):
            await self._say(session_id, turn_id)
        if dice.random() < 0.2:
            await self._stop_while_speaking(session_id, turn_id)
        else:
            await self.append(session_id, TurnEnded(turn_id=turn_id, reason="completed"))
        self._partials[session_id].clear()
        await self.tell(session_id)

    async def _say(self, session_id: str, turn_id: str) -> None:
        message_id = clock.new_id()
        parts = await self._speak(session_id, turn_id, message_id, self._dice.randrange(1, 3))
        await self.append(session_id, Message("assistant", parts, id=message_id))

    async def _stop_while_speaking(self, session_id: str, turn_id: str) -> None:
        message_id = clock.new_id()
        parts = await self._speak(session_id, turn_id, message_id, 1)
        kept = Message("assistant", parts, end="stopped", id=message_id)
        await self.append(session_id, kept, TurnEnded(turn_id=turn_id, reason="stopped"))

    async def _speak(
        self, session_id: str, turn_id: str, message_id: str, count: int
    ) -> list[Text]:
        parts = []
        for n in range(count):
            said = ""
            for _ in range(self._dice.randrange(1, 4)):
                piece = self._dice.choice(("é🧭", "x" * 150, "word ", "\n\n"))
                update = MessageUpdate(message_id, n, len(said), piece, "text")
                self._partials[session_id].add(update)
                self.feed.delta(session_id, turn_id, update)
                said += piece
                await asyncio.sleep(self._dice.choice((0, 0, 0.01)))
            parts.append(Text(said))
        return parts

    async def delete(self, session_id: str) -> None:
        """Deletes as a registry does: the feed is told a moment later."""
        look = await self.true_look(session_id)
        self._partials[session_id].clear()
        self._live.pop(session_id, None)
        await self.sea.delete_session(session_id)
        await self.sea.lag()
        self._tell(replace(look, status="deleted", turn=None, queued=(), held=False, cause=None))

    async def create(self, session_id: str) -> None:
        """Creates as a registry does."""
        await self.sea.create_session(session_id)
        await self.sea.lag()
        await self.tell(session_id)


def _state_of(entries: Sequence[StoredEntry]) -> State:
    return fold(State(), entries)


class Stage:
    """What a run is played on: the store, its weather, and the node that lives now."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.weather = Weather(dice)
        self.sea = Sea(dice, self.weather)
        self.node: Node | None = Node(self.sea, self.weather, dice)
        self.is_over = False
