"""A turn that is alive in this process: its task, what it was asked, and its one end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, NamedTuple

from perdure.context import RunContext
from perdure.entry import Ending, Message, ToolCall
from perdure.errors import HookRefusedError, PerdureError, RuntimeLostError, UnrecoverableError
from perdure.fact import TurnReason
from perdure.loop import Answer, CallWaits

_log = logging.getLogger("perdure.server")

GRACE_S = 10.0
"""How long a run that was asked to end may take to let go of its tools."""


class Rest(NamedTuple):
    """What a turn's runs left: the calls that wait for an approval, none where it is complete.

    `said` is what hooks said meanwhile, for the model to read once the calls have their results.
    """

    calls: Sequence[CallWaits] = ()
    said: Sequence[Message] = ()


class Turn:
    """One running turn. `ended` resolves to the reason that was stored, or to the store's error.

    `gives_way` is set when a message asked to run in this turn's place. `asked_of` are the calls
    for which its run waits, alive, until somebody answers.
    """

    def __init__(self, turn_id: str, run: Coroutine[Any, Any, Rest]) -> None:
        self.turn_id = turn_id
        self.gives_way = False
        self.asked_of: dict[str, tuple[ToolCall, asyncio.Future[Answer]]] = {}
        self.ended: asyncio.Future[TurnReason] = asyncio.get_running_loop().create_future()
        self.ended.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        self.task = asyncio.create_task(run)
        self.is_asked = asyncio.Event()
        self._context: RunContext | None = None
        self._asked: tuple[Ending, str | None] | None = None

    def enter(self, context: RunContext) -> None:
        """The turn's next run has this context."""
        self._context = context
        if self._asked is not None:
            context.ending = self._asked[0]

    @property
    def left(self) -> Rest:
        """What the finished run left to somebody's approval, also if the turn was asked to end."""
        is_through = not self.task.cancelled() and self.task.exception() is None
        return self.task.result() if is_through else Rest()

    def rest(self) -> None:
        """Nothing of it is alive any more; it is open, and another one takes it up."""
        self.ended.cancel()

    def accompany(self, companion: Coroutine[Any, Any, None]) -> None:
        """Runs something beside the turn until the turn's end is stored."""
        task = asyncio.create_task(companion)
        self.ended.add_done_callback(lambda _: task.cancel())

    @property
    def asked(self) -> tuple[Ending, str | None]:
        """Why it was asked to end."""
        return self._asked or ("interrupted", "the run was cancelled")

    @property
    def is_asked_to_end(self) -> bool:
        """Whether somebody asked it to end before it is through."""
        return self._asked is not None

    def ask_to_end(self, reason: Ending, cause: str | None) -> None:
        """Cancels the run; the first reason counts, and every asking cancels again."""
        if self._asked is None:
            self._asked = (reason, cause)
            if self._context is not None:
                self._context.ending = reason
            self.is_asked.set()
        self.task.cancel()

    @property
    def about(self) -> Mapping[str, str]:
        """What lines of the log about it tell of it."""
        about = {"turn_id": self.turn_id}
        return about if self._context is None else {"session_id": self._context.session_id} | about

    def outcome(self) -> tuple[TurnReason, str | None]:
        """How the finished run ended, and why; a loop's own error is logged with its stack."""
        if self.task.cancelled():
            return self.asked
        error = self.task.exception()
        if error is None:
            is_cut_off = self._asked is not None and self.task.result().calls
            return self.asked if is_cut_off else ("completed", None)
        if isinstance(error, HookRefusedError):
            return "refused", error.reason
        if isinstance(error, RuntimeLostError):
            return self._asked or ("interrupted", describe(error))
        if not isinstance(error, PerdureError):
            _log.error("turn %s: the loop failed", self.turn_id, exc_info=error, extra=self.about)
        return self._asked or ("failed", describe(error))

    @property
    def damage(self) -> UnrecoverableError | None:
        """The damage that the finished run met in its journal."""
        error = None if self.task.cancelled() else self.task.exception()
        return error if isinstance(error, UnrecoverableError) else None

    def lose(self, error: PerdureError) -> None:
        """The store failed: the run is cancelled, and who waits for the turn's end is told why."""
        self.task.cancel()
        if not self.ended.done():
            self.ended.set_exception(error)


def describe(error: BaseException) -> str:
    """An error as a cause that a person reads: its text, without a stack trace."""
    text = str(error)
    if isinstance(error, PerdureError) and text:
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
