"""The actor of a live session: its owner, and the one turn that it runs at a time.

A turn starts and ends with an append, in the actor's mailbox, and so does all that its run stores.
Each turn gets one end: by its run, by a run that does not let go, or by the next replay.

What commands mean is in command.py; this is how anything at all is done.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime
from typing import Any, Literal

from perdure import clock
from perdure.codec import Draft
from perdure.entry import ToolCall
from perdure.errors import (
    PerdureError,
    ServerClosingError,
    SessionDeletedError,
    SessionNotFoundError,
    StoreError,
    TurnRunningError,
)
from perdure.fact import LeafMoved, MessageQueued, TurnReason
from perdure.server.session.batch import Input, input_of, never_made, started
from perdure.server.session.idempotency import turn_id_of
from perdure.server.session.path import load_open_calls
from perdure.server.session.player import Player
from perdure.server.session.replay import replay_all
from perdure.server.session.state import QueuedMessage
from perdure.server.session.surroundings import EndSource, Scope
from perdure.server.session.turn import GRACE_S, Turn, describe
from perdure.store import Receipt

_log = logging.getLogger("perdure.server")


class Actor(Player):
    """A player whose turns end, each once, and whose session comes and goes."""

    @property
    def is_busy(self) -> bool:
        """Whether a turn is open: it runs, or it waits for an approval."""
        return self._turn is not None or self.state.turn is not None

    @property
    def open_turn_id(self) -> str | None:
        """The id of the turn that is open."""
        return self.state.turn.turn_id if self.state.turn is not None else None

    def check_idle(self) -> None:
        """Refuses what cannot be done while a turn is open.

        Raises:
            TurnRunningError: one is.

        """
        if (turn_id := self.open_turn_id) is not None:
            raise TurnRunningError(self.session_id, turn_id)

    def _attend(self, turn: Turn) -> None:
        turn.accompany(self._let_go(turn))
        if (limit_s := self._limits.turn_limit_s) is not None:
            turn.accompany(self._expire(turn, limit_s))
        watcher = asyncio.create_task(self._watch(turn))
        self._watchers.add(watcher)
        watcher.add_done_callback(self._watchers.discard)

    async def _watch(self, turn: Turn) -> None:
        """Ends the turn when its run is over. The outermost frame of a turn."""
        either: list[asyncio.Future[Any]] = [turn.task, turn.ended]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not turn.task.done():
            return  # it ended without its run, which was left behind
        damage = turn.damage

        async def step() -> list[ToolCall]:
            if self._turn is turn and damage is not None:
                self.fail(damage)
            elif self._turn is turn and turn.left.calls and not turn.is_asked_to_end:
                return await self._rest_somehow(turn)
            elif self._turn is turn:
                await self._end_somehow(turn, self._end_as_it_went(turn))
            return []

        if asked := await self._mailbox.do(step):
            await self._notify(turn.turn_id, asked)

    async def _rest_somehow(self, turn: Turn) -> list[ToolCall]:
        """Stores what the turn waits for; then nothing of it is alive."""
        asked: list[ToolCall] = []

        async def rest() -> None:
            path = await load_open_calls(self.store, self.session_id, self.state.leaf_id)
            calls = {call.call_id: call for call in path}
            waiting, said = turn.left
            asked.extend(calls[each.call_id] for each in waiting)
            requests = [
                self.new_request(turn.turn_id, call, each.reason, changed=each.arguments)
                for call, each in zip(asked, waiting, strict=True)
            ]
            await self.append([*said, *requests])
            self._turn = None
            self._partials.clear()
            turn.rest()
            self._on_rest(self.session_id)

        await self._end_somehow(turn, rest())
        if self._turn is not None or self._state is None:
            return []
        self._notices += 1
        return asked

    async def _notify(self, turn_id: str, asked: Sequence[ToolCall]) -> None:
        try:
            if self._state is None:  # lost meanwhile: whoever wakes it finds that it waits
                return
            scope = self._scope_of_session()._replace(turn_id=turn_id)  # the turn may be over first
            await self._surroundings.waits(scope, asked)
        except PerdureError as error:
            _log.warning(
                "session %r waits, and nobody was told: %s",
                self.session_id,
                error,
                extra={"session_id": self.session_id, "turn_id": turn_id},
            )
        finally:
            self._notices -= 1
            self._on_rest(self.session_id)

    async def _end_somehow(self, turn: Turn, ending: Coroutine[Any, Any, None]) -> None:
        """Ends the turn, or loses it: one that nobody ends would run for ever."""
        try:
            await ending
        except PerdureError as error:
            said = (turn.turn_id, self.session_id, error)
            _log.warning("turn %s of session %r: %s", *said, extra=turn.about)
            if self._turn is turn:
                self.fail(error)
        except Exception as error:
            whose = (turn.turn_id, self.session_id)
            _log.exception("turn %s of session %r", *whose, extra=turn.about)
            self.fail(StoreError(f"the turn's end could not be stored: {describe(error)}"))

    async def _expire(self, turn: Turn, limit_s: float) -> None:
        """Asks a turn to end that outlives its time limit."""
        await clock.sleep(limit_s)
        whose = (turn.turn_id, self.session_id)
        _log.warning("turn %s of session %r: time limit", *whose, extra=turn.about)
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
                extra=turn.about,
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

    async def end_waiting(
        self, reason: Literal["stopped"], cause: str | None, instead: MessageQueued | None = None
    ) -> Receipt:
        """Ends the turn that waits for an approval: its calls were not made.

        A message that takes its place is queued in the same batch, the first of its entries.
        """
        turn = self.state.turn
        assert turn is not None
        open_calls = await load_open_calls(self.store, self.session_id, self.state.leaf_id)
        kept = never_made(open_calls, reason)
        drafts = [*kept, self._ended(turn.turn_id, reason, cause)]
        if instead is None:
            return await self._store_end(turn.turn_id, drafts, None)
        earlier = self.state.queue[:1]
        is_next = not earlier or earlier[0].policy != "interrupt"
        given = input_of(instead) if is_next else await self.load_queued(earlier[0])
        return await self._store_end(turn.turn_id, [instead, *drafts], given)

    async def _end_as_it_went(self, turn: Turn) -> None:
        reason, cause = turn.outcome()
        kept: Sequence[Draft] = ()
        if reason == "refused":
            kept = await self._withdrawal()
        elif turn.left.calls:  # it was asked to end in the moment in which it began to wait
            path = await load_open_calls(self.store, self.session_id, self.state.leaf_id)
            kept = never_made(path, reason)
        await self._end(turn, reason, cause, kept)

    async def _end(
        self, turn: Turn, reason: TurnReason, cause: str | None, kept: Sequence[Draft]
    ) -> None:
        following = self._following(reason, gives_way=turn.gives_way)
        given = await self.load_queued(following) if following is not None else None
        drafts = [*kept, self._ended(turn.turn_id, reason, cause)]
        await self._store_end(turn.turn_id, drafts, given)
        turn.ended.set_result(reason)

    async def _withdrawal(self) -> list[Draft]:
        """Takes the input of a refused turn out of the conversation, and what hooks said of it."""
        assert self.state.turn is not None
        stored = await self.store.load_entry(self.session_id, self.state.turn.message_id)
        parent_id = stored.entry.parent_id
        before = parent_id if isinstance(parent_id, str) else None
        return [LeafMoved(from_id=self.state.leaf_id, leaf_id=before)]

    async def _store_end(
        self, turn_id: str, drafts: Sequence[Draft], following: Input | None
    ) -> Receipt:
        """Appends the turn's end, and in the same batch the start of the message that is next."""
        if following is None:
            receipt = await self.append(drafts)
            self._turn = None
        else:
            receipt = await self._end_and_start(drafts, following)
        self._partials.clear()
        self._ended_here = turn_id
        if self._turn is None:
            self._on_rest(self.session_id)
        return receipt

    async def _end_and_start(self, drafts: Sequence[Draft], given: Input) -> Receipt:
        message = given.message
        turn_id = turn_id_of(self.session.incarnation, message.id)
        drafts = [*drafts, started(turn_id, given), message]
        try:
            loop = await self.build_loop()
        except PerdureError as error:
            ended = self._ended(turn_id, "failed", describe(error))
            receipt = await self.append([*drafts, ended])
            self._turn = None
            return receipt
        return await self._launch(loop, turn_id, drafts, given)

    def _following(self, reason: TurnReason, *, gives_way: bool) -> QueuedMessage | None:
        """The waiting message that runs next by itself: after `completed`, or in its place."""
        if not self.state.queue or self._refusal is not None:
            return None
        return self.state.queue[0] if reason == "completed" or gives_way else None

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
        await self._tell_ended("shutdown")
        await self.keeper.close()

    async def delete(self) -> None:
        """Stops the running turn, then deletes the session; it is not woken for that."""
        refusal = SessionDeletedError(self.session_id)
        await self._quiesce(refusal, "stopped", "the session was deleted")
        await self._delete(refusal)

    async def _delete(self, refusal: PerdureError) -> None:
        """Deletes a session that takes no more commands, after those who wait for that are told."""
        await self._tell_ended("delete")

        async def step() -> None:
            try:
                await self.store.delete_session(self.session_id)
            except (SessionNotFoundError, SessionDeletedError):
                raise  # somebody was faster; what is made of this id later has another actor
            except PerdureError:
                self._refusal = None
                raise
            self.fail(refusal)

        await self._mailbox.do(step)
        await self._surroundings.deleted(self.session_id)

    async def offload(self, let_go: Callable[[], bool]) -> bool:
        """Tells that the session leaves memory, then lets go of it; see `Owner.offload`."""
        if self.is_at_rest:
            await self._tell_ended("offload")
        return await super().offload(let_go)

    async def _tell_ended(self, source: EndSource) -> None:
        """Tells those who were told of the session's start; its next turn is a start again."""
        if not self._has_begun or self._state is None:
            return
        self._has_begun = False
        self._starts = "resume"
        try:
            async with self._ending:
                await self._surroundings.ended(self._scope_of_session(), source)
        except PerdureError as error:
            said = (self.session_id, error)
            about = {"session_id": self.session_id}
            _log.warning("session %r ended, and a hook failed: %s", *said, extra=about)

    async def before_compaction(self) -> None:
        """Asks whether the session may be compacted.

        Raises:
            HookRefusedError: it may not.

        """
        await self._surroundings.compacting(await self.command(self._give_scope))

    async def _give_scope(self, again: bool) -> Scope:
        return self._scope_of_session()

    def has_compacted(self) -> None:
        """A compaction was stored: the next turn is a start, for that reason."""
        self._starts = self._starts or "compact"

    async def expire(self, before: datetime) -> bool:
        """Deletes the session if nothing happened in it since, and no turn runs.

        It is not woken for that. What came first is done by then, and counts; what comes later
        finds no session.
        """
        refusal = SessionDeletedError(self.session_id)

        async def step() -> bool:
            if self._turn is not None or self._dying or self._refusal is not None:
                return False
            look = await self.store.look(self.session_id)
            state = self._state or await replay_all(self.store, look)
            if (state.last_activity or look.session.created_at) >= before:
                return False
            self._refusal = refusal
            return True

        if not await self._mailbox.do(step):
            return False
        await self._delete(refusal)
        return True
