"""Notes each turn that starts and ends here, from the statuses that a feed is told.

Who listens (the log, metrics, traces) hears of a turn's start once and of its end once, after the
entries that say so are stored. A listener decides nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from perdure import clock
from perdure.server.session.look import SessionLook
from perdure.server.session.port import FeedInFront, FeedPort

log = logging.getLogger("perdure.turn")


class RunningTurn(Struct, frozen=True):
    """A turn that runs here. `loop` is the name of its loop, None for the default."""

    session_id: str
    turn_id: str
    loop: str | None
    started_s: float


class TurnListener(Protocol):
    """Hears of turns; synchronous, cheap, and never raises."""

    def started(self, turn: RunningTurn, /) -> None:
        """A turn has started."""

    def ended(self, turn: RunningTurn, reason: str, cause: str | None, seconds: float, /) -> None:
        """It has ended, for this reason."""


class TurnLog:
    """Writes each turn into the log, with its session and its turn."""

    def started(self, turn: RunningTurn, /) -> None:
        log.info("turn %s of session %r started", turn.turn_id, turn.session_id, extra=_of(turn))

    def ended(self, turn: RunningTurn, reason: str, cause: str | None, seconds: float, /) -> None:
        said = f"turn {turn.turn_id} of session {turn.session_id!r} {reason} after {seconds:.1f} s"
        extra = {**_of(turn), "reason": reason, "seconds": round(seconds, 3)}
        log.info("%s%s", said, f": {cause}" if cause else "", extra=extra)


def _of(turn: RunningTurn) -> dict[str, object]:
    return {"session_id": turn.session_id, "turn_id": turn.turn_id}


class Observer(FeedInFront):
    """A FeedPort in front of another one."""

    def __init__(self, feed: FeedPort, listeners: Sequence[TurnListener]) -> None:
        super().__init__(feed)
        self._listeners = listeners
        self._turns: dict[str, RunningTurn] = {}
        self._waiting: set[str] = set()
        self._rest = asyncio.Event()
        self._rest.set()

    @property
    def running(self) -> int:
        """How many turns run here; those that wait for a person do not."""
        return len(self._turns) - len(self._waiting)

    async def until_rest(self) -> None:
        """Returns when no turn runs."""
        await self._rest.wait()

    def status(self, look: SessionLook, /) -> None:
        """A session's status changed."""
        super().status(look)
        before = self._turns.get(look.session_id)
        turn_id = look.turn.turn_id if look.turn is not None else None
        if before is not None and before.turn_id != turn_id:
            last = look.last_turn
            is_told = last is not None and last.turn_id == before.turn_id
            reason, cause = (last.reason, last.cause) if last and is_told else ("interrupted", None)
            self._end(before, reason, cause)
        if turn_id is not None and (before is None or before.turn_id != turn_id):
            turn = RunningTurn(look.session_id, turn_id, look.loop, clock.monotonic())
            self._turns[look.session_id] = turn
            for listener in self._listeners:
                listener.started(turn)
        if look.status == "waiting":
            self._waiting.add(look.session_id)
        else:
            self._waiting.discard(look.session_id)
        self._settle()

    def gone(self, session_id: str, /) -> None:
        """Somebody else deleted the session; its turn, if one runs here, stores nothing more."""
        if (turn := self._turns.get(session_id)) is not None:
            self._end(turn, "interrupted", "the session was deleted")
            self._settle()

    def _end(self, turn: RunningTurn, reason: str, cause: str | None) -> None:
        del self._turns[turn.session_id]
        self._waiting.discard(turn.session_id)
        seconds = clock.monotonic() - turn.started_s
        for listener in self._listeners:
            listener.ended(turn, reason, cause, seconds)

    def _settle(self) -> None:
        if self.running:
            self._rest.clear()
        else:
            self._rest.set()
