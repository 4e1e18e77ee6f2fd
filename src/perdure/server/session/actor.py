"""The actor of a live session: its owner, and the one turn that it runs at a time.

A turn starts and ends with an append, in the actor's mailbox, and so does all that its run stores.
Each turn gets one end: by its run, by a run that does not let go, or by the next replay.

What commands mean is in command.py; this is how anything at all is done.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from datetime import datetime
from typing import Any, Literal

from perdure import clock
from perdure.codec import Draft
from perdure.context import RunContext
from perdure.entry import Message
from perdure.errors import (
    LoopError,
    NothingToResendError,
    PerdureError,
    ServerClosingError,
    SessionDeletedError,
    StoreError,
    StoreUnavailableError,
)
from perdure.events import MessageUpdate, RunEvent
from perdure.fact import LeafMoved, MessageQueued, TurnReason
from perdure.loop import Loop
from perdure.run import Driver
from perdure.server.session.batch import started
from perdure.server.session.idempotency import turn_id_of
from perdure.server.session.owner import Owner
from perdure.server.session.path import load_model_path, load_open_calls
from perdure.server.session.port import make_loop
from perdure.server.session.replay import replay_all
from perdure.server.session.state import QueuedMessage
from perdure.server.session.turn import GRACE_S, Turn, describe
from perdure.store import Receipt
from perdure.view import model_view, repairs

_log = logging.getLogger("perdure.server")


class Actor(Owner):
    """An owner that runs turns."""

    async def build_loop(self) -> Loop:
        """The loop of one run, before anything of that run is stored.

        Raises:
            LoopError: the loop cannot start. ConfigurationError, MissingExtraError: nor be found.

        """
        name = self.state.loop or self._loops.default
        await self._loops.prepare(name)
        return make_loop(self._loops, name)

    async def start(self, message: Message, *, before: Sequence[Draft] = ()) -> tuple[Receipt, str]:
        """Starts the first turn of a message, in one batch; returns the receipt and the turn's id.

        The batch: `before`, the repairs of open calls at the leaf, `turn_started`, the message.
        """
        loop = await self.build_loop()
        turn_id = turn_id_of(self.session.incarnation, message.id)
        drafts = [*before, *await self._repairs(), started(turn_id, message), message]
        return await self._launch(loop, turn_id, drafts, message.id), turn_id

    async def _repairs(self) -> list[Message]:
        """The interrupted results of the calls that are open at the leaf."""
        return repairs(await load_open_calls(self.store, self.session_id, self.state.leaf_id))

    async def start_again(self, message_id: str, turn_id: str, resends: str) -> Receipt:
        """Moves the leaf back to a turn's input and starts a new turn there, in one batch."""
        loop = await self.build_loop()
        stored = await self.store.load_entry(self.session_id, message_id)
        if not isinstance(message := stored.view, Message):
            raise NothingToResendError(self.session_id)
        drafts: list[Draft] = []
        if self.state.leaf_id != message_id:
            drafts.append(LeafMoved(from_id=self.state.leaf_id, leaf_id=message_id))
        drafts.append(started(turn_id, message, resends=resends))
        return await self._launch(loop, turn_id, drafts, message_id, message)

    async def _launch(
        self,
        loop: Loop,
        turn_id: str,
        drafts: Sequence[Draft],
        message_id: str,
        message: Message | None = None,
    ) -> Receipt:
        """Appends what starts a turn, then runs it; a look never finds it open and not alive."""
        self._starting = turn_id
        try:
            receipt = await self.append(drafts)
            if message is None:
                stored = next(each for each in receipt.entries if each.id == message_id)
                assert isinstance(stored.view, Message)
                message = stored.view
            self._turn = self._run(loop, turn_id, message)
        finally:
            self._starting = None
        return receipt

    def _run(self, loop: Loop, turn_id: str, message: Message) -> Turn:
        async def messages() -> Sequence[Message]:
            path = await load_model_path(self.store, self.session_id, message.id)
            return await asyncio.to_thread(model_view, path)

        async def emit(event: RunEvent) -> None:
            if self._turn is not turn or turn.is_asked_to_end:
                raise asyncio.CancelledError
            if isinstance(event, MessageUpdate):
                self._partials.add(event)
                self._feed.delta(self.session_id, turn_id, event)
                await asyncio.sleep(0)

        async def run() -> Sequence[Message]:
            try:
                return await driver.run(loop)
            except SystemExit as error:  # it would end the server, and with it every other turn
                raise LoopError(f"the loop failed: {describe(error)}") from error

        context = RunContext(self.session_id, turn_id=turn_id, input=(message,), messages=messages)
        driver = Driver(context, _TurnJournal(self, turn_id), emit)
        turn = Turn(context, run())
        turn.accompany(self._let_go(turn))
        if (limit_s := self._limits.turn_limit_s) is not None:
            turn.accompany(self._expire(turn, limit_s))
        watcher = asyncio.create_task(self._watch(turn))
        self._watchers.add(watcher)
        watcher.add_done_callback(self._watchers.discard)
        return turn

    async def append_for(self, turn_id: str, drafts: Sequence[Draft]) -> Receipt:
        """An append of a running turn; refused once the turn is not this actor's any more."""

        async def step() -> Receipt:
            if self._turn is None or self._turn.turn_id != turn_id:
                raise StoreUnavailableError(f"turn {turn_id} was lost; nothing more is stored")
            return await self.append(drafts)

        return await self._mailbox.do(step)

    async def _watch(self, turn: Turn) -> None:
        """Ends the turn when its run is over. The outermost frame of a turn."""
        either: list[asyncio.Future[Any]] = [turn.task, turn.ended]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not turn.task.done():
            return  # it ended without its run, which was left behind
        reason, cause = turn.outcome()
        damage = turn.damage

        async def step() -> None:
            if self._turn is turn and damage is not None:
                self.fail(damage)
            elif self._turn is turn:
                await self._end_somehow(turn, self._end(turn, reason, cause))

        await self._mailbox.do(step)

    async def _end_somehow(self, turn: Turn, ending: Coroutine[Any, Any, None]) -> None:
        """Ends the turn, or loses it: one that nobody ends would run for ever."""
        try:
            await ending
        except PerdureError as error:
            _log.warning("turn %s of session %r: %s", turn.turn_id, self.session_id, error)
            if self._turn is turn:
                self.fail(error)
        except Exception as error:
            _log.exception("turn %s of session %r", turn.turn_id, self.session_id)
            self.fail(StoreError(f"the turn's end could not be stored: {describe(error)}"))

    async def _expire(self, turn: Turn, limit_s: float) -> None:
        """Asks a turn to end that outlives its time limit."""
        await clock.sleep(limit_s)
        _log.warning("turn %s of session %r: time limit", turn.turn_id, self.session_id)
        turn.ask_to_end("failed", f"it ran for more than {limit_s:g} s, the time limit of a turn")

    async def _let_go(self, turn: Turn) -> None:
        """Leaves a run behind that was asked to end and does not, `GRACE_S` later."""
        await turn.is_asked.wait()
        await clock.sleep(GRACE_S)
        await self._abandon(turn)

    async def _abandon(self, turn: Turn) -> None:
        """Ends a turn whose run does not let go: what it showed is kept, the run is left behind."""

        async def step() -> None:
            if self._turn is not turn:
                return
            _log.warning(
                "turn %s of session %r: its loop did not let go within %g s, and was left behind",
                turn.turn_id,
                self.session_id,
                GRACE_S,
            )
            self._leave(turn)
            self._stuck.add(turn.task)
            await self._end_somehow(turn, self._end_without_run(turn))

        await self._mailbox.do(step)

    async def _end_without_run(self, turn: Turn) -> None:
        reason, cause = turn.asked
        kept = [*self._partials.keep(reason), *await self._repairs()]
        stuck = f"the loop did not let go within {GRACE_S:g} s and was left behind"
        await self._end(turn, reason, f"{cause}; {stuck}" if cause else stuck, kept)

    async def _end(
        self, turn: Turn, reason: TurnReason, cause: str | None, kept: Sequence[Message] = ()
    ) -> None:
        """Appends the turn's end, and in the same batch the start of the message that is next."""
        drafts: list[Draft] = [*kept, self._ended(turn.turn_id, reason, cause)]
        following = self._following(turn, reason)
        if following is None:
            await self.append(drafts)
            self._turn = None
        else:
            await self._end_and_start(drafts, await self.load_queued(following))
        self._partials.clear()
        self._ended_here = turn.turn_id
        turn.ended.set_result(reason)
        if self._turn is None:
            self._on_rest(self.session_id)

    async def _end_and_start(self, drafts: list[Draft], message: Message) -> None:
        turn_id = turn_id_of(self.session.incarnation, message.id)
        drafts += [started(turn_id, message), message]
        try:
            loop = await self.build_loop()
        except PerdureError as error:
            await self.append([*drafts, self._ended(turn_id, "failed", describe(error))])
            self._turn = None
        else:
            await self._launch(loop, turn_id, drafts, message.id)

    def _following(self, turn: Turn, reason: TurnReason) -> QueuedMessage | None:
        """The waiting message that runs next by itself: after `completed`, or in its place."""
        if not self.state.queue or self._refusal is not None:
            return None
        return self.state.queue[0] if reason == "completed" or turn.gives_way else None

    async def load_queued(self, queued: QueuedMessage) -> Message:
        """The message of a `message_queued`, whole."""
        stored = await self.store.load_entry(self.session_id, queued.seq)
        assert isinstance(stored.view, MessageQueued)
        return Message("user", stored.view.parts, id=queued.message_id)

    async def _quiesce(
        self, refusal: PerdureError, reason: Literal["stopped", "interrupted"], cause: str
    ) -> None:
        """Refuses commands with `refusal` from now on, and ends the running turn.

        A loop that does not let go within `GRACE_S` is left behind.
        """
        self._refusal = refusal

        async def step() -> Turn | None:
            if self._turn is not None:
                self._turn.ask_to_end(reason, cause)
            return self._turn

        turn = await self._mailbox.do(step)
        running: set[asyncio.Future[Any]] = {*(self._dying - self._stuck)}
        if turn is not None:
            running.add(turn.ended)
        if running:
            await asyncio.wait(running, timeout=GRACE_S)
        if turn is not None and not turn.ended.done():
            await self._abandon(turn)

    async def close(self) -> None:
        """Ends the running turn as interrupted and takes no more commands."""
        await self._quiesce(ServerClosingError(), "interrupted", "the server was shut down")
        if self._watchers:
            await asyncio.wait(set(self._watchers), timeout=GRACE_S)
        await self.keeper.close()

    async def delete(self) -> None:
        """Stops the running turn, then deletes the session; it is not woken for that."""
        refusal = SessionDeletedError(self.session_id)
        await self._quiesce(refusal, "stopped", "the session was deleted")

        async def step() -> None:
            try:
                await self.store.delete_session(self.session_id)
            except PerdureError:
                self._refusal = None
                raise
            self.fail(refusal)

        await self._mailbox.do(step)

    async def expire(self, before: datetime) -> bool:
        """Deletes the session if nothing happened in it since, and no turn runs.

        It is not woken for that. What came first is done by then, and counts; what comes later
        finds no session.
        """

        async def step() -> bool:
            if self._turn is not None or self._dying or self._refusal is not None:
                return False
            look = await self.store.look(self.session_id)
            state = self._state or await replay_all(self.store, look)
            if (state.last_activity or look.session.created_at) >= before:
                return False
            await self.store.delete_session(self.session_id)
            self._refusal = SessionDeletedError(self.session_id)
            self.fail(self._refusal)
            return True

        return await self._mailbox.do(step)


class _TurnJournal:
    """What a run sees of its actor."""

    def __init__(self, actor: Actor, turn_id: str) -> None:
        self._actor = actor
        self._turn_id = turn_id

    @property
    def leaf_id(self) -> str | None:
        return self._actor.state.leaf_id

    async def append(self, drafts: Sequence[Draft]) -> Receipt:
        return await self._actor.append_for(self._turn_id, drafts)
