"""One turn, from where it begins to where it rests: hooks, then runs of the loop until none is due.

A run may leave calls to somebody's approval: then the turn rests, open, and its next opening has
the answers. A reason to go on, once a run is through, starts another run of the same turn.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from perdure.entry import Message
from perdure.fact import SessionStarted
from perdure.loop import Answer, Loop
from perdure.run import Driver, OpenCall
from perdure.server.session.around import TurnAround
from perdure.server.session.batch import Input
from perdure.server.session.surroundings import StartSource, Surroundings
from perdure.server.session.turn import Rest


class Opening(NamedTuple):
    """Where a turn takes up: at its beginning, or with the answers to the calls that waited.

    `said` is stored behind these calls and joins once they have their results. `again` is how often
    the turn went on by then because somebody had a reason to.
    """

    answers: Mapping[str, Answer] = MappingProxyType({})
    answered: Sequence[OpenCall] = ()
    said: Sequence[Message] = ()
    again: int = 0


class Script(NamedTuple):
    """What a turn is played from; `make_driver` gives the driver of its next run.

    `relieve` compacts the conversation where it has to be; whether it did. `next_start` says why
    the session's hooks hear of a start now, None where they did already; `has_begun` is told when
    the fact of that is stored: a turn that ends before leaves the start to the next one.
    """

    given: Input
    around: TurnAround
    surroundings: Surroundings
    build_loop: Callable[[], Awaitable[Loop]]
    make_driver: Callable[[Opening], Driver]
    relieve: Callable[[], Awaitable[bool]]
    next_start: Callable[[], Awaitable[StartSource | None]]
    has_begun: Callable[[], None]

    async def play(self, loop: Loop, opening: Opening) -> Rest:
        """Runs the turn; returns what it waits for, no calls where it is complete.

        Raises:
            HookRefusedError: a hook refused the message. Whatever a run raises comes out.

        """
        self.around.know(opening.answers, opening.said)
        await self._open(opening)
        again = opening.again
        while True:
            driver = self.make_driver(opening)
            await driver.run(loop)
            if driver.waiting:
                return Rest(driver.waiting, self.around.take_said())
            said = next((m.text for m in reversed(driver.messages) if m.role == "assistant"), "")
            reason = await self.surroundings.finish(self.around.scope, said, again)
            if reason is not None:
                self.around.say([reason])
            await self.around.flush()
            if reason is None:
                return Rest()
            again += 1
            opening = Opening()
            loop = await self.build_loop()

    async def _start(self, source: StartSource) -> None:
        scope = self.around.scope
        await scope.note([SessionStarted(source=source)])
        self.has_begun()
        await self.surroundings.started(scope, source)

    async def _open(self, opening: Opening) -> None:
        scope = self.around.scope
        if (source := await self.next_start()) is not None:
            await self._start(source)
        if opening.answered:
            return  # what was said joins once these calls have their results
        if await self.relieve() and self.surroundings.hears_starts:
            await self._start("compact")
        await self.surroundings.begin(scope, self.given)
        await self.around.flush()
