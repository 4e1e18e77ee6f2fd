"""Whom a line of the log is about: the request, the session and the turn that it was written for.

A request is told only in lines that its own task writes, so a task that it leaves behind never
speaks in its name. A turn's run tells its session and turn in whatever it writes, its tools and the
libraries that it uses included. What a line says of itself counts first.
"""

from __future__ import annotations

import asyncio
import logging
from contextvars import ContextVar
from typing import Any

from perdure.loop import LoopContext
from perdure.server.telemetry.observer import RunningTurn

FIELDS = ("request_id", "session_id", "turn_id")


class RequestNote:
    """What is known of one request; made in its own task."""

    __slots__ = ("_task", "code", "request_id", "session_id")

    def __init__(self, request_id: str, session_id: str | None) -> None:
        self.request_id = request_id
        self.session_id = session_id
        self.code: str | None = None
        """The code of the problem that it was answered with."""
        self._task = asyncio.current_task()
        _request.set(self)

    @property
    def is_own(self) -> bool:
        """Whether this is asked in the task of the request."""
        try:
            return asyncio.current_task() is self._task
        except RuntimeError:  # in a thread
            return False


_request: ContextVar[RequestNote | None] = ContextVar("perdure_request", default=None)


class _RunNote:
    __slots__ = ("is_over", "session_id", "turn_id")

    def __init__(self, session_id: str, turn_id: str) -> None:
        self.session_id = session_id
        self.turn_id = turn_id
        self.is_over = False


_run: ContextVar[_RunNote | None] = ContextVar("perdure_run", default=None)


class RunNotes:
    """The turns that run here, as the log's lines tell them."""

    def __init__(self) -> None:
        self._notes: dict[str, _RunNote] = {}

    def enter(self, context: LoopContext) -> None:
        """From here on this task, and what it starts, speaks for its turn, until that ends."""
        note = _RunNote(context.session_id, context.turn_id)
        _run.set(self._notes.setdefault(context.turn_id, note))

    def started(self, turn: RunningTurn, /) -> None:
        """Its run will enter."""

    def ended(self, turn: RunningTurn, reason: str, cause: str | None, seconds: float, /) -> None:
        """Nobody speaks for it any more."""
        if (note := self._notes.pop(turn.turn_id, None)) is not None:
            note.is_over = True


class ToldFilter(logging.Filter):
    """Lets every record through, with `request_id`, `session_id`, `turn_id` where there is one."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Adds what the record does not say itself."""
        said: dict[str, Any] = vars(record)
        if "session_id" in said or "turn_id" in said:
            return True
        request, run = _request.get(), _run.get()
        if request is not None and request.is_own:
            said["request_id"] = request.request_id
            if request.session_id is not None:
                said["session_id"] = request.session_id
        elif run is not None and not run.is_over:
            said["session_id"], said["turn_id"] = run.session_id, run.turn_id
        return True
