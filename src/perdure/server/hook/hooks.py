"""Asks the hooks of an event, all at once, stores what each came to, and makes one outcome of it.

What each event gets and may answer stands with its type in `perdure.hook`; what a command gets is
`wire.py`, what its answer means `answer.py`. Who fires an event:

- appends `session_started` before a SessionStart, so that a `startup` runs at most once whatever
  crashes;
- puts a UserPromptSubmit before the first run of a turn, whose `refused` ends the turn `refused`;
- asks PreToolUse in `permit`, before people are: `deny` becomes the call's result, `ask` makes it
  wait, `allow` runs it; `changed_input` is what runs, or what people are shown;
- stores `context` as `meta` messages before the next request of the model;
- ends the turn where `ends` is given;
- goes on after a Stop with `goes_on` as a `meta` message, MAX_GO_ONS times in a turn at most.

A fire ends: each handler has its time limit, and what it leaves running is ended with it. Nothing
that goes wrong in a handler leaves `fire`; an error of `note` does, for then the journal failed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Sequence
from pathlib import Path

from perdure.clock import monotonic
from perdure.completion import complete
from perdure.encoding import kept
from perdure.entry import Json
from perdure.errors import PerdureError
from perdure.fact import HookRan
from perdure.hook import (
    HookEvent,
    HookOutcome,
    Notification,
    PreCompact,
    PreToolUse,
    SessionEnd,
    SessionStart,
    UserPromptSubmit,
)
from perdure.server.hook.answer import refusal
from perdure.server.hook.handler import Fired, Handler, Ran
from perdure.server.hook.matcher import subjects_of
from perdure.server.hook.merge import merge

log = logging.getLogger(__name__)

Note = Callable[[HookRan], Awaitable[None]]
"""Stores the fact of one hook that ran."""

Transcript = Callable[[], Awaitable[str]]
"""Where the conversation is as a file, as it stands now; empty where it cannot be one."""

MAX_GO_ONS = 8
"""So often in one turn a Stop hook may ask to go on; after that the turn ends all the same."""

MAX_AT_ONCE = 16
"""So many handlers of one event run at the same time."""

MAX_ASIDE = 256
"""So many handlers that nobody waits for run at once; any more are waited for."""

MAX_RUNNING = 256
"""So many handlers of all sessions run at the same time; others wait, outside their time limit."""


class Hooks:
    """The handlers that there are, in the order in which their answers count.

    `folder` is the workspace: where commands run.
    """

    def __init__(
        self, handlers: Sequence[Handler], *, folder: Path, max_running: int = MAX_RUNNING
    ) -> None:
        self._running = asyncio.Semaphore(max_running)
        self._aside = set[asyncio.Task[None]]()
        self._is_closed = False
        self.folder = folder.absolute()
        self._by_event: dict[str, list[Handler]] = {}
        for handler in handlers:
            self._by_event.setdefault(handler.event_name, []).append(handler)

    def has(self, event: type[HookEvent]) -> bool:
        """Whether anything would run at this event, for some matcher."""
        return event.__name__ in self._by_event

    @property
    def read_files(self) -> bool:
        """Whether any handler may read the file of a conversation."""
        return any(each.reads_files for handlers in self._by_event.values() for each in handlers)

    async def fire(
        self,
        event: HookEvent,
        *,
        note: Note,
        transcript: Transcript | None = None,
        later: Note | None = None,
    ) -> HookOutcome:
        """Asks every handler that matches, once, and returns what they come to together.

        `transcript` is asked for the file of the conversation where a handler may read it. Each
        run's fact is given to `note`, one at a time, as soon as that run has ended; so is
        that of a run which is cut off because the fire is cancelled. With `later`, which stores
        facts after the event, too, handlers that nobody waits for run beside all that follows.
        """
        handlers = self._matching(event)
        if not handlers:
            return HookOutcome()
        path = ""
        if transcript is not None and any(handler.reads_files for handler in handlers):
            path = await transcript()
        fired = Fired(event, self.folder, path)
        if later is not None:
            handlers = [each for each in handlers if not self._run_aside(each, fired, later)]
        noting, room = asyncio.Lock(), asyncio.Semaphore(MAX_AT_ONCE)

        async def ask(handler: Handler) -> HookOutcome:
            async with room, self._running:
                outcome = await _ask(handler, fired, lambda fact: _locked(noting, note, fact))
                return HookOutcome() if handler.is_aside else outcome

        asking = [asyncio.create_task(ask(handler)) for handler in handlers]
        try:
            await asyncio.gather(*asking)
        except BaseException:
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
            raise
        outcome = merge([task.result() for task in asking])
        for notice in outcome.notices:
            log.info("%s hook, session %r: %s", event.name, event.session_id, notice[:1000])
        return outcome

    def _run_aside(self, handler: Handler, fired: Fired, later: Note) -> bool:
        """Starts a handler that nobody waits for; False: it has to be waited for after all."""
        if not handler.is_aside or self._is_closed or len(self._aside) >= MAX_ASIDE:
            return False
        task = asyncio.create_task(self._ask_aside(handler, fired, later))
        self._aside.add(task)
        task.add_done_callback(self._aside.discard)
        return True

    async def _ask_aside(self, handler: Handler, fired: Fired, later: Note) -> None:
        try:
            async with self._running:
                outcome = await _ask(handler, fired, later)
        except PerdureError as error:
            what = (fired.event.name, handler.label, fired.event.session_id, error)
            log.warning("the %s hook %s of session %r ran, and its fact is not stored: %s", *what)
            return
        for notice in outcome.notices:
            log.info("%s hook, session %r: %s", fired.event.name, fired.event.session_id, notice)

    async def close(self) -> None:
        """Ends what runs and is not waited for; from here on everything is waited for."""
        self._is_closed = True
        aside = tuple(self._aside)
        for task in aside:
            task.cancel()
        await asyncio.gather(*aside, return_exceptions=True)

    def _matching(self, event: HookEvent) -> Sequence[Handler]:
        subjects = subjects_of(event)
        found: dict[Hashable, Handler] = {}
        for handler in self._by_event.get(event.name, ()):
            if handler.concerns(event, subjects, self.folder):
                found.setdefault(handler.key, handler)
        return tuple(found.values())


async def _locked(lock: asyncio.Lock, note: Note, fact: HookRan) -> None:
    async with lock:
        await note(fact)


async def _ask(handler: Handler, fired: Fired, note: Note) -> HookOutcome:
    began = monotonic()
    try:
        ran = await handler.run(fired)
    except asyncio.CancelledError:
        cut = Ran(failure="cut off: what it was asked about was ended")
        await complete(note(_fact(handler, fired, cut, monotonic() - began)))
        raise
    except Exception as error:  # the outermost frame of a handler
        log.exception("the hook %s failed", handler.label)
        ran = Ran(failure=f"{type(error).__name__}: {error}")
    await complete(note(_fact(handler, fired, ran, monotonic() - began)))
    if ran.failure is None:
        return ran.outcome
    log.warning(
        "the %s hook %s failed in session %r: %s",
        fired.event.name,
        handler.label,
        fired.event.session_id,
        ran.failure[:1000],
    )
    can_block = isinstance(fired.event, PreToolUse | UserPromptSubmit | PreCompact)
    if handler.on_failure == "block" and can_block:
        return refusal(fired.event, f"the hook {handler.label} failed: {ran.failure}")
    return HookOutcome()


def _fact(handler: Handler, fired: Fired, ran: Ran, seconds: float) -> HookRan:
    output: dict[str, Json] = dict(ran.output) if isinstance(ran.output, dict) else {}
    if ran.failure is not None:
        output["failure"] = ran.failure
    if ran.unsupported:
        output["unsupported"] = list(ran.unsupported)
    return HookRan(
        event=fired.event.name,
        handler=handler.label,
        input=kept(handler.told(fired)),
        output=kept(output) if output else None,
        exit=ran.exit,
        seconds=round(seconds, 3),
        source=_source_of(fired.event),
    )


def _source_of(event: HookEvent) -> str | None:
    match event:
        case SessionStart(source=source) | SessionEnd(reason=source):
            return source
        case PreCompact(trigger=source) | Notification(notification_type=source):
            return source
        case _:
            return None


def go_on(outcome: HookOutcome, *, so_far: int, session_id: str) -> str | None:
    """What a turn goes on for after its Stop hooks; None: it ends. `so_far` it went on before."""
    if outcome.goes_on is not None and so_far >= MAX_GO_ONS:
        log.warning(
            "a Stop hook asked for more in session %r after the turn went on %d times, which is "
            "the most; the turn ends: %s",
            session_id,
            so_far,
            outcome.goes_on[:1000],
        )
        return None
    return outcome.goes_on
