"""Whatever is asked at once, whoever leaves, and wherever the store fails: a session stays whole.

Each turn has one end, at most one run is alive, nothing that was accepted is lost, and in the end
everything is at rest.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import pytest

from perdure.entry import Text, ToolCall, ToolResult
from perdure.errors import PerdureError
from perdure.fact import MessageDiscarded, TurnEnded, TurnStarted
from perdure.loop import (
    CallWaits,
    Loop,
    LoopContext,
    LoopEvent,
    MessageDelta,
    MessageEnded,
    MessageStarted,
    ToolEnded,
    ToolStarted,
    Waits,
)
from perdure.server.session.limit import Limits
from perdure.server.session.state import State, decode_state, fold
from perdure.stores.memory import MemoryStore
from tests.server.careful import Careful
from tests.server.faulty import Flaky
from tests.server.house import ID, House, Loops

CLIENTS = 4
COMMANDS = 8


class Counted:
    """A loop of any length, which takes a while to let go; `most` of a session ran at once."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._alive: Counter[str] = Counter()
        self.most = 0

    def __call__(self) -> Loop:
        return self._play

    async def _play(self, context: LoopContext) -> AsyncGenerator[LoopEvent, None]:
        chance, counts = self._chance, context.purpose != "summary"
        self._alive[context.session_id] += counts
        self.most = max(self.most, *self._alive.values())
        try:
            for _ in range(chance.randint(1, 3)):
                yield MessageStarted()
                for _ in range(chance.randint(0, 3)):
                    yield MessageDelta("x")
                    await asyncio.sleep(chance.choice([0, 0, 0.001]))
                if chance.random() < 0.7 or not counts:
                    yield MessageEnded([Text("said")])
                    continue
                name = chance.choice(["look", "careful"])
                call = ToolCall(f"call-{chance.getrandbits(64)}", name, {})
                yield MessageEnded([Text("said"), call])
                if isinstance(await context.permit(call), Waits):
                    yield CallWaits(call.call_id)
                    return
                yield ToolStarted(call.call_id)
                await asyncio.sleep(chance.choice([0, 0.002]))
                yield ToolEnded(ToolResult(call.call_id, (Text("seen"),), name))
            if chance.random() < 0.1:
                raise ValueError("the loop failed")
        finally:
            try:
                await asyncio.sleep(chance.choice([0, 0.001, 0.003]))
            finally:
                self._alive[context.session_id] -= counts


class Client:
    """Asks for anything, in any order; `accepted` are the messages that were."""

    def __init__(self, name: int, house: House, real: MemoryStore, chance: random.Random) -> None:
        self._name = name
        self._house = house
        self._real = real
        self._chance = chance
        self.accepted: set[str] = set()

    async def play(self) -> None:
        registry, chance = self._house.registry, self._chance
        others: list[Callable[[], Awaitable[object]]] = [
            lambda: registry.stop(ID, discard_queued=chance.random() < 0.1),
            lambda: registry.resend(ID),
            lambda: registry.go_on(ID),
            lambda: registry.compact(ID, keep_turns=1),
            lambda: registry.fork(ID),
            lambda: registry.send("other", [Text("x")]),
            self._discard,
            self._edit,
            self._branch,
            self._answer,
            self._make_anew,
        ]
        for n in range(COMMANDS):
            try:
                if chance.random() < 0.4:
                    await self._send(f"{self._name}-{n}")
                else:
                    await chance.choice(others)()
            except PerdureError:
                pass  # what it refuses is not done, and nothing else
            await asyncio.sleep(chance.choice([0, 0, 0.001, 0.003]))

    async def _send(self, key: str) -> None:
        for _ in range(self._chance.choice([1, 1, 2])):
            sent = await self._house.send(
                key, key=key, if_running=self._chance.choice(["queue", "queue", "interrupt"])
            )
            self.accepted.add(sent.message_id)

    async def _discard(self) -> None:
        for queued in (await self._house.look()).queued[:1]:
            await self._house.registry.discard_queued(ID, queued.message_id)

    async def _edit(self) -> None:
        for queued in (await self._house.look()).queued[:1]:
            await self._house.registry.edit_queued(ID, queued.message_id, [Text("edited")])

    async def _branch(self) -> None:
        tree = [each.id for each in await self._real.load_entries(ID) if each.entry.in_tree]
        if tree:
            await self._house.registry.branch(ID, self._chance.choice(tree))

    async def _answer(self) -> None:
        for call in (await self._house.look()).approvals[:1]:
            approve = self._chance.random() < 0.7
            await self._house.registry.answer(ID, call.call_id, approve=approve)

    async def _make_anew(self) -> None:
        await self._house.registry.delete("other")
        await self._house.registry.create("other")


async def come_to_rest(house: House) -> None:
    for _ in range(2000):
        look = await house.look()
        if look.turn is None and not look.queued:
            return
        try:
            if look.approvals:
                await house.registry.answer(ID, look.approvals[0].call_id, approve=True)
            elif look.turn is None:
                await house.registry.go_on(ID)
        except PerdureError:
            pass  # it moved meanwhile
        await asyncio.sleep(0.002)
    raise AssertionError(look)


@pytest.mark.parametrize("seed", range(24))
async def test_a_session_stays_whole(seed: int) -> None:
    chance = random.Random(seed)
    real = MemoryStore()
    flaky: Any = Flaky(real, chance)
    loop = Counted(chance)
    limits = Limits(
        max_live_actors=1, idle_after_s=0.01, turn_limit_s=chance.choice([None, None, 0.004])
    )
    house = House(flaky, Loops(loop), limits, Careful())
    await house.create()
    await house.registry.create("other")
    flaky.rate = chance.choice([0.02, 0.1, 0.3])
    clients = [Client(n, house, real, chance) for n in range(CLIENTS)]
    tasks = [asyncio.create_task(each.play()) for each in clients]
    for task in tasks:
        if chance.random() < 0.2:
            asyncio.get_running_loop().call_later(chance.random() * 0.02, task.cancel)
    await asyncio.wait(tasks)
    assert [task.exception() for task in tasks if not task.cancelled() and task.exception()] == []
    flaky.rate = 0.0
    await house.registry.reopen(ID)
    await come_to_rest(house)
    log = await real.load_entries(ID)
    views = [each.view for each in log]
    started = Counter(view.turn_id for view in views if isinstance(view, TurnStarted))
    ended = Counter(view.turn_id for view in views if isinstance(view, TurnEnded))
    assert started == ended
    assert set(started.values()) <= {1}
    assert loop.most <= 1
    known = {each.id for each in log}
    known |= {view.message_id for view in views if isinstance(view, MessageDiscarded)}
    assert known >= set().union(*(each.accepted for each in clients))
    assert decode_state((await real.look(ID)).summary) == fold(State(), log)
    await house.close()
