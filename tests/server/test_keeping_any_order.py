"""Whatever a routine or a workflow is told while the store fails: in the end it has come through.

Every claim and every attempt has one end, no message starts two turns, and nothing is stuck.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest

from perdure.errors import PerdureError, StoreError
from perdure.fact import RoutineFired, RoutineRunEnded, StepEnded, StepStarted, TurnStarted
from perdure.server.routine.definition import Wanted
from perdure.stores.memory import MemoryStore
from perdure.workflow import Check, Retry, Step, Workflow
from tests.server import routine_house, workflow_house
from tests.server.faulty import Flaky
from tests.server.routine_house import RoutineHouse
from tests.server.workflow_house import SECOND_TIME, WorkflowHouse

SAY, FAIL = workflow_house.SAY, workflow_house.FAIL
SLOW = '[{"do": "wait", "delay_s": 3}]'
OVER = {"completed", "failed", "cancelled"}
TOLD = 25

Commands = Sequence[Callable[[], Awaitable[object]]]


async def tell(commands: Commands, chance: random.Random) -> None:
    """Tells it anything, in any order; what it refuses is not done."""
    for _ in range(TOLD):
        with suppress(PerdureError):
            await chance.choice(commands)()


async def some_session(house: RoutineHouse | WorkflowHouse, chance: random.Random) -> str:
    looks, _ = await house.house.registry.list()
    return chance.choice([each.session_id for each in looks] or ["none"])


async def check_turns(store: MemoryStore) -> None:
    turns: Counter[str] = Counter()
    for session_id in await store.session_ids():
        for stored in await store.load_entries(session_id):
            if isinstance(view := stored.view, TurnStarted) and view.resends is None:
                turns[view.message_id] += 1
    assert set(turns.values()) <= {1}, "a message started two turns"


def some_step(n: int, chance: random.Random, retry: Retry) -> Step:
    return Step(
        f"s{n}",
        chance.choice([SAY, SAY, FAIL, SLOW]),
        retry=retry,
        session=chance.choice([None, None, "shared"]),
        after=chance.choice([None, []]),
        limit_s=chance.choice([None, 2.0]),
        approve=chance.random() < 0.15,
        check=chance.choice([None, None, Check(function=SECOND_TIME)]),
    )


@pytest.mark.parametrize("seed", range(8))
async def test_a_workflow_comes_through(seed: int) -> None:
    chance, store = random.Random(seed), MemoryStore()
    flaky: Any = Flaky(store, chance)
    retry = Retry(attempts=chance.randint(1, 4), wait_s=chance.choice([0, 1, 5]))
    steps = [some_step(n, chance, retry) for n in range(chance.randint(2, 5))]
    async with workflow_house.timed() as clock, workflow_house.living(flaky) as house:
        workflows = house.workflows
        workflow = Workflow("a workflow", steps, parallel=chance.randint(1, 3))
        await workflows.create(workflow, workflow_id="w")

        def one() -> str:
            return chance.choice(steps).id

        async def move() -> None:
            await workflow_house.move(house, clock, chance.choice([0.5, 1, 5]))

        async def stop() -> None:
            await house.house.registry.stop(await some_session(house, chance))

        async def delete() -> None:
            await house.house.registry.delete(await some_session(house, chance))

        flaky.rate = chance.choice([0.02, 0.1, 0.25])
        commands: Commands = [
            *(move, move, move, move, stop, delete),
            lambda: workflows.pause("w"),
            lambda: workflows.resume("w"),
            lambda: workflows.retry("w", one()),
            lambda: workflows.skip("w", one(), reason="by chance"),
            lambda: workflows.answer("w", one(), approve=True),
        ]
        await tell(commands, chance)
        flaky.rate = 0.0
        for _ in range(60):
            with suppress(PerdureError):
                await workflows.resume("w")
            for step in steps:
                with suppress(PerdureError):
                    await workflows.answer("w", step.id, approve=True)
            await workflow_house.move(house, clock, 20)
            if (await house.look()).status in OVER:
                break
        assert (await house.look()).status in OVER
        assert house.keeper.find_kept("w") is None
    views = [each.view for each in await store.of_kind("workflow").load_entries("w")]
    started = Counter((v.step, v.attempt) for v in views if isinstance(v, StepStarted))
    ended = Counter((v.step, v.attempt) for v in views if isinstance(v, StepEnded))
    assert started == ended
    assert set(started.values()) <= {1}
    await check_turns(store)


@pytest.mark.parametrize("seed", range(8))
async def test_a_routine_comes_through(seed: int) -> None:
    chance, store = random.Random(seed), MemoryStore()
    flaky: Any = Flaky(store, chance)
    async with routine_house.timed() as clock, routine_house.living(flaky) as house:
        routines, registry = house.routines, house.house.registry
        await house.make(
            chance.choice([SAY, SAY, FAIL, SLOW]),
            every_s=chance.choice([60, 600, 3600]),
            overlap=chance.choice(["skip", "queue", "interrupt"]),
            new_session=chance.random() < 0.4,
            resends=chance.randint(0, 2),
            jitter_s=chance.choice([0, 0, 30]),
        )

        async def move() -> None:
            await routine_house.move(house, clock, chance.choice([30, 600]))

        async def stop() -> None:
            await registry.stop(await some_session(house, chance))

        flaky.rate = chance.choice([0.02, 0.1, 0.25])
        commands: Commands = [
            *(move, move, move, move, stop),
            lambda: routines.run("r"),
            lambda: routines.change("r", Wanted(), status="paused"),
            lambda: routines.change("r", Wanted(), status="enabled"),
            lambda: routines.change("r", Wanted(text=chance.choice([SAY, FAIL]))),
        ]
        await tell(commands, chance)
        flaky.rate = 0.0
        await routines.change("r", Wanted(text=SAY, every_s=3600), status="enabled")
        for session in (await registry.list())[0]:
            with suppress(StoreError):
                await registry.stop(session.session_id, discard_queued=True)
        await routine_house.move(house, clock, 2 * 3600 + 10)
        look = routines.look("r")
        assert (look.status, look.running) == ("enabled", ())
        assert [status for _, status in await house.said()][-1] == "succeeded"
    views = [each.view for each in await store.of_kind("routine").load_entries("r")]
    fired = Counter(v.run_id or v.due_at for v in views if isinstance(v, RoutineFired))
    ended = Counter(v.run_id for v in views if isinstance(v, RoutineRunEnded))
    assert fired == ended
    assert set(fired.values()) <= {1}
    await check_turns(store)
