"""A server's workflows in a test: real sessions, a store, and a clock that is moved."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any

from perdure import clock
from perdure.entry import Message
from perdure.server.journal import JournalStore
from perdure.server.runtime.runtimes import Runtimes
from perdure.server.session.limit import Limits
from perdure.server.session.port import takes_commands
from perdure.server.workflow.check import CheckedTurn, Functions
from perdure.server.workflow.look import StepLook, WorkflowBrief, WorkflowLook
from perdure.server.workflow.registry import WorkflowRegistry
from perdure.server.workflow.workspace import Workspaces
from perdure.testing import ManualClock
from perdure.workflow import Retry, Step, Workflow
from tests.crash.step_loop import step_loop
from tests.server.house import House, Loops

START = datetime(2026, 1, 5, 8, 0, tzinfo=UTC)
SAY = '[{"do": "say", "text": "done"}]'
HANG = '[{"do": "hang"}]'
FAIL = '[{"do": "fail", "message": "broken"}]'
ONCE = Retry(attempts=1)

CHECKS = ("tests.server.workflow_house:second_time", "tests.server.workflow_house:says_why")
SECOND_TIME, SAYS_WHY = CHECKS


def second_time(turn: CheckedTurn) -> bool:
    """Passes the second attempt."""
    return turn.attempt >= 2


async def says_why(turn: CheckedTurn) -> str:
    """Passes nothing."""
    return f"{turn.step} said {turn.output!r}"


def step(step_id: str, prompt: str = SAY, **fields: Any) -> Step:
    """A step."""
    return Step(step_id, prompt, **fields)


class WorkflowHouse:
    """One process of a server: a registry of sessions, and the workflows beside it."""

    def __init__(
        self, store: JournalStore, loops: Loops | None = None, limits: Limits | None = None
    ) -> None:
        self.house = House(store, loops or Loops(step_loop), limits)
        self.store = store
        self.runtimes = Runtimes({}, {}, workspace=".")
        self.workflows = WorkflowRegistry(
            store,
            self.house.registry,
            Workspaces(self.runtimes),
            check_loop=self.house.loops.prepare,
            takes_commands=partial(takes_commands, self.house.loops),
            check_runtime=self.runtimes.check,
            functions=Functions(CHECKS),
        )

    @property
    def keeper(self) -> Any:
        return self.workflows.keeper

    async def start(
        self, *steps: Step, inputs: Mapping[str, Any] | None = None, **fields: Any
    ) -> WorkflowLook:
        """A workflow `w` of these steps; it runs by the time this returns."""
        workflow = Workflow("a workflow", steps, **fields)
        _, is_new = await self.workflows.create(workflow, inputs, workflow_id="w")
        assert is_new
        await self.rest()
        return await self.look()

    async def look(self) -> WorkflowLook:
        return await self.workflows.look("w")

    async def said(self) -> dict[str, str]:
        """How each step stands."""
        return {each.step: each.status for each in (await self.look()).steps}

    async def reasons(self, name: str) -> list[str | None]:
        """How the attempts at a step ended."""
        return [each.reason for each in (await self.of(name)).attempts]

    async def of(self, name: str) -> StepLook:
        (found,) = (each for each in (await self.look()).steps if each.step == name)
        return found

    async def prompts(self, name: str) -> list[str]:
        """What a step's session was sent."""
        session_id = (await self.of(name)).attempts[0].session_id
        assert session_id is not None
        views = [each.view for each in await self.store.load_entries(session_id)]
        return [each.text for each in views if isinstance(each, Message) and each.role == "user"]

    async def rest(self) -> None:
        """Waits until nothing moves any more."""
        for _ in range(40):
            for _ in range(25):
                await asyncio.sleep(0)
            await self.keeper.until_rest()
            checks = [task for work in self.keeper.kept() for task in work.checks.values()]
            if checks:
                await asyncio.wait(checks)

    async def close(self) -> None:
        await self.house.close()
        await self.runtimes.close()


async def until(holds: Callable[[], bool]) -> None:
    """Waits, a while at most, for what happens outside this process."""
    for _ in range(2000):
        if holds():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never came to this")


async def move(house: WorkflowHouse, manual: ManualClock, seconds: float) -> None:
    """Moves the clock on, due time by due time, and lets everything happen at its time."""
    end = manual.now().timestamp() + seconds
    while True:
        await house.rest()
        left = end - manual.now().timestamp()
        if left <= 0:
            return
        heap = house.keeper.timer._heap
        due = min((each[0].timestamp() for each in heap), default=end)
        await manual.advance(max(0.001, min(left, due - manual.now().timestamp())))


@asynccontextmanager
async def living(
    store: JournalStore, loops: Loops | None = None, limits: Limits | None = None
) -> AsyncIterator[WorkflowHouse]:
    """A server on this store, from its start to its clean end."""
    house = WorkflowHouse(store, loops, limits)
    await house.keeper.load()
    try:
        async with house.keeper.keeping():
            await house.rest()
            yield house
            await house.rest()
    finally:
        await house.close()


@asynccontextmanager
async def timed() -> AsyncIterator[ManualClock]:
    """A clock that the test moves."""
    manual = ManualClock(START)
    with clock.use(manual):
        yield manual


async def brief(house: WorkflowHouse) -> WorkflowBrief:
    (found,), _ = await house.workflows.list()
    return found
