"""Starts and plays turns: what a turn's beginning appends, and what its runs ask of their actor."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import timedelta

from perdure import clock
from perdure.codec import Draft, clean_text
from perdure.completion import complete
from perdure.context import RunContext
from perdure.entry import Json, Message, ToolCall
from perdure.errors import (
    EntryNotFoundError,
    LoopError,
    NothingToResendError,
    StoreUnavailableError,
)
from perdure.events import MessageUpdate, RunEvent, RunNotice
from perdure.fact import (
    ApprovalAnswered,
    ApprovalRequested,
    Fact,
    LeafMoved,
    MessageJoined,
    MessageQueued,
    Source,
    TurnStarted,
)
from perdure.loop import Allowed, Answer, Loop, Refused
from perdure.run import Driver, OpenCall
from perdure.server.session.approval import WaitingCall
from perdure.server.session.around import Say, TurnAround
from perdure.server.session.attempt import told_of
from perdure.server.session.batch import Input, input_of, started
from perdure.server.session.idempotency import (
    answered_id_of,
    joined_id_of,
    turn_id_of,
)
from perdure.server.session.owner import Owner
from perdure.server.session.path import load_model_path, load_open_calls, load_said
from perdure.server.session.port import can_steer, make_loop
from perdure.server.session.relief import relieve
from perdure.server.session.script import Opening, Script
from perdure.server.session.seen import count_goings_on
from perdure.server.session.state import OpenTurn, QueuedMessage
from perdure.server.session.surroundings import End, Note, Scope, StartSource
from perdure.server.session.turn import Rest, Turn, describe
from perdure.store import Receipt
from perdure.view import model_view, repairs


def _unheard(_: object) -> None:
    """Nothing runs that could read what is said, or that could be ended."""


class Player(Owner, ABC):
    """An owner that plays turns; how they end is its heir's."""

    _has_begun = False

    @property
    def loop_name(self) -> str:
        """The name of the loop that this session's turns run."""
        return self.state.loop or self._loops.default

    async def build_loop(self) -> Loop:
        """The loop of one run, before anything of that run is stored.

        Raises:
            LoopError: the loop cannot start. ConfigurationError, MissingExtraError: nor be found.

        """
        await self._loops.prepare(self.loop_name)
        return make_loop(self._loops, self.loop_name)

    async def can_steer(self) -> bool:
        """Whether a running turn takes in messages."""
        await self._loops.prepare(self.loop_name)
        return can_steer(self._loops, self.loop_name)

    async def start(self, given: Input, *, before: Sequence[Draft] = ()) -> tuple[Receipt, str]:
        """Starts the first turn of a message, in one batch; returns the receipt and the turn's id.

        The batch: `before`, the repairs of open calls at the leaf, `turn_started`, the message.
        """
        loop = await self.build_loop()
        message = given.message
        turn_id = turn_id_of(self.session.incarnation, message.id)
        drafts = [*before, *await self._repairs(), started(turn_id, given), message]
        return await self._launch(loop, turn_id, drafts, given), turn_id

    async def start_again(self, message_id: str, turn_id: str, resends: str) -> Receipt:
        """Moves the leaf back to a turn's input and starts a new turn there, in one batch.

        A model that is to do it once more is told what the attempts before were seen to do.
        """
        loop = await self.build_loop()
        given = Input(await self._load_message(message_id), await self._source_of(resends))
        drafts: list[Draft] = []
        if self.state.leaf_id != message_id:
            drafts.append(LeafMoved(from_id=self.state.leaf_id, leaf_id=message_id))
        if (told := await told_of(self.store, self.session_id, resends)) is not None:
            drafts.append(told)
        drafts.append(started(turn_id, given, resends=resends))
        return await self._launch(loop, turn_id, drafts, given)

    async def answer(self, call: WaitingCall, fact: ApprovalAnswered) -> None:
        """Stores the answer to a call of the open turn; the last one that is missing resumes it."""
        turn = self.state.turn
        assert turn is not None
        others = (each for each in turn.unanswered if each.call_id != call.call_id)
        if call.in_run or any(not each.in_run for each in others):
            await self.append([fact])
            asked = self._turn.asked_of.pop(call.call_id, None) if self._turn else None
            if asked is not None and not asked[1].done():
                asked[1].set_result(_answer_of(fact, asked[0].arguments))
            return
        await self._resume(turn, fact)

    async def _resume(self, turn: OpenTurn, fact: ApprovalAnswered) -> None:
        """Takes up a turn that waited, with all its answers."""
        loop = await self.build_loop()
        message = await self._load_message(turn.message_id)
        leaf_id = self.state.leaf_id
        open_calls = await load_open_calls(self.store, self.session_id, leaf_id)
        said = await load_said(self.store, self.session_id, leaf_id)
        answers: dict[str, Answer] = {}
        answered: list[OpenCall] = []
        for message_id, call in open_calls.callers:
            if (waiting := turn.waiting_call(call.call_id)) is None or waiting.in_run:
                continue
            is_last = call.call_id == fact.call_id
            given = fact if is_last else await self.load_answer(turn.turn_id, waiting)
            asked = await self.store.load_entry(self.session_id, waiting.seq)
            assert isinstance(asked.view, ApprovalRequested)
            answers[call.call_id] = _answer_of(given, asked.view.arguments)
            answered.append(OpenCall(message_id, call))
        self._starting = turn.turn_id
        try:
            await self.append([fact])
            again = await count_goings_on(self.store, self.session_id, turn.turn_id)
            opening = Opening(answers, answered, said, again)
            self._turn = self._play(loop, turn.turn_id, Input(message), opening)
        finally:
            self._starting = None

    def new_answer(
        self,
        turn_id: str,
        call: WaitingCall,
        *,
        approve: bool,
        reason: str | None,
        arguments: Json,
    ) -> ApprovalAnswered:
        """The one answer of this call."""
        return ApprovalAnswered(
            id=self._answer_id(turn_id, call),
            turn_id=turn_id,
            call_id=call.call_id,
            approve=approve,
            reason=reason,
            arguments=arguments,
        )

    def new_request(
        self,
        turn_id: str,
        call: ToolCall,
        reason: str | None,
        *,
        changed: Json = None,
        in_run: bool = False,
    ) -> ApprovalRequested:
        """The request for an answer to this call; it expires where the limits say so."""
        limit_s = self._limits.approval_limit_s
        expires_at = clock.now() + timedelta(seconds=limit_s) if limit_s is not None else None
        return ApprovalRequested(
            turn_id=turn_id,
            call_id=call.call_id,
            name=call.name,
            arguments=call.arguments if changed is None else changed,
            reason=reason,
            in_run=in_run,
            expires_at=expires_at,
        )

    async def load_queued(self, queued: QueuedMessage) -> Input:
        """The message of a `message_queued`, whole."""
        stored = await self.store.load_entry(self.session_id, queued.seq)
        fact = stored.view
        assert isinstance(fact, MessageQueued)
        return input_of(fact)

    async def _load_message(self, message_id: str) -> Message:
        stored = await self.store.load_entry(self.session_id, message_id)
        if not isinstance(message := stored.view, Message):
            raise NothingToResendError(self.session_id)
        return message

    async def _source_of(self, turn_id: str) -> Source:
        try:
            stored = await self.store.load_entry(self.session_id, turn_id)
        except EntryNotFoundError:  # a journal of other programs, whose facts have ids of their own
            return "user"
        return stored.view.source if isinstance(stored.view, TurnStarted) else "user"

    def _answer_id(self, turn_id: str, call: WaitingCall) -> str:
        return answered_id_of(self.session.incarnation, turn_id, call.call_id, call.seq)

    async def load_answer(self, turn_id: str, call: WaitingCall) -> ApprovalAnswered:
        """The answer that this call of a turn has."""
        entry_id = self._answer_id(turn_id, call)
        stored = await self.store.load_entry(self.session_id, entry_id)
        assert isinstance(stored.view, ApprovalAnswered)
        return stored.view

    async def _repairs(self) -> list[Message]:
        """The interrupted results of the calls that are open at the leaf."""
        return repairs(await load_open_calls(self.store, self.session_id, self.state.leaf_id))

    async def _launch(
        self, loop: Loop, turn_id: str, drafts: Sequence[Draft], given: Input
    ) -> Receipt:
        """Appends what starts a turn, then plays it; a look never finds it open and not alive."""
        self._starting = turn_id
        try:
            receipt = await self.append(drafts)
            for stored in receipt.entries:
                if stored.id == given.message.id and isinstance(stored.view, Message):
                    given = Input(stored.view, given.source)
            self._turn = self._play(loop, turn_id, given, Opening())
        finally:
            self._starting = None
        return receipt

    def _play(self, loop: Loop, turn_id: str, given: Input, opening: Opening) -> Turn:
        message = given.message

        async def emit(event: RunEvent) -> None:
            if self._turn is not turn or turn.is_asked_to_end:
                raise asyncio.CancelledError
            if isinstance(event, MessageUpdate):
                self._partials.add(event)
                self._feed.delta(self.session_id, turn_id, event)
                await asyncio.sleep(0)
            elif isinstance(event, RunNotice):
                self._feed.notice(self.session_id, turn_id, event.text)

        def make_driver(opening: Opening) -> Driver:
            leaf_id = self.state.leaf_id

            async def messages() -> Sequence[Message]:
                path = await load_model_path(self.store, self.session_id, leaf_id)
                path = path[: len(path) - len(opening.said)]
                return await asyncio.to_thread(model_view, path, waiting=opening.answers.keys())

            context = RunContext(
                self.session_id,
                turn_id=turn_id,
                input=(message,),
                messages=messages,
                around=around,
                answers=opening.answers,
            )
            turn.enter(context)
            journal = _TurnJournal(self, turn_id)
            return Driver(context, journal, emit, answered=opening.answered, may_wait=True)

        async def play() -> Rest:
            try:
                return await script.play(loop, opening)
            except SystemExit as error:  # it would end the server, and with it every other turn
                raise LoopError(f"the loop failed: {describe(error)}") from error

        def make_scope(say: Say) -> Scope:
            return self._scope(turn_id, say)

        around = TurnAround(self, make_scope, self._surroundings)

        async def relieve_turn() -> bool:
            share = self._limits.compact_at
            if share is None or message.parent_id is None:
                return False
            has_compacted = await relieve(
                self.store,
                around.scope,
                self.state.leaf_id,
                share,
                surroundings=self._surroundings,
                build_loop=self.build_loop,
                append=lambda drafts: self.append_for(turn_id, drafts),
                notice=lambda text: self._feed.notice(self.session_id, turn_id, text),
            )
            if has_compacted:
                await self.keeper.prune()
            return has_compacted

        script = Script(
            given,
            around,
            self._surroundings,
            self.build_loop,
            make_driver,
            relieve_turn,
            self._next_start,
            self._begin,
        )
        turn = Turn(turn_id, play())
        self._attend(turn)
        return turn

    async def _next_start(self) -> StartSource | None:
        """Why the session's hooks hear of a start now: once for each waking.

        Those who are just being told of an end hear that to its end first.
        """
        if not self._surroundings.hears_starts:
            return None
        async with self._ending:
            pass
        is_told = self._starts == "startup" and self.state.has_started
        return "resume" if is_told else self._starts

    def _begin(self) -> None:
        self._starts, self._has_begun = None, True

    @abstractmethod
    def _attend(self, turn: Turn) -> None:
        """Sees to it that the turn ends."""

    def _scope(self, turn_id: str, say: Say = _unheard) -> Scope:
        async def note(facts: Sequence[Fact]) -> None:
            await self.append_for(turn_id, facts)

        def end(reason: str) -> None:
            if self._turn is not None and self._turn.turn_id == turn_id:
                self._turn.ask_to_end("stopped", reason)

        return self._make_scope(turn_id, note, say, end)

    def _scope_of_session(self) -> Scope:
        return self._make_scope(None, self._note_later, _unheard, _unheard)

    def _make_scope(self, turn_id: str | None, note: Note, say: Say, end: End) -> Scope:
        state, later = self.state, self._note_later
        about = (self.session_id, turn_id, self.loop_name, state.runtime, state.owner)
        return Scope(*about, note, say, end, later)

    async def _note_later(self, facts: Sequence[Fact]) -> None:
        await self._mailbox.do(lambda: self._append_awake(facts))

    async def _append_awake(self, facts: Sequence[Fact]) -> Receipt:
        if self._state is None:
            raise StoreUnavailableError(f"session {self.session_id!r} is not awake any more")
        return await self.append(facts)

    async def append_for(self, turn_id: str, drafts: Sequence[Draft]) -> Receipt:
        """An append of an open turn; refused once the turn is not this actor's any more."""

        async def step() -> Receipt:
            self._check_open(turn_id)
            return await self.append(drafts)

        return await self._mailbox.do(step)

    def _check_open(self, turn_id: str) -> None:
        state = self._state
        if state is None or state.turn is None or state.turn.turn_id != turn_id:
            raise StoreUnavailableError(f"turn {turn_id} was lost; nothing more is stored")

    async def join(
        self, turn_id: str, said: Sequence[Message], *, steered: bool
    ) -> Sequence[Message]:
        """Stores what was said at the leaf, and what was steered into the turn if that counts."""

        def waiting() -> list[QueuedMessage]:
            queue = self._state.queue if self._state is not None and steered else ()
            return [each for each in queue if each.policy == "steer"]

        if not said and not waiting():
            return ()

        async def step() -> Receipt:
            self._check_open(turn_id)
            drafts: list[Draft] = [*said]
            for queued in waiting():
                fact_id = joined_id_of(self.session.incarnation, queued.message_id)
                drafts.append(
                    MessageJoined(id=fact_id, turn_id=turn_id, message_id=queued.message_id)
                )
                drafts.append((await self.load_queued(queued)).message)
            return await self.append(drafts)

        receipt = await self._mailbox.do(step)
        return [view for each in receipt.entries if isinstance(view := each.view, Message)]

    async def ask(self, turn_id: str, call: ToolCall, reason: str | None) -> Answer:
        """Waits for a person's answer, in mid-run; a question nobody waits for is withdrawn."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

        async def step() -> None:
            self._check_open(turn_id)
            await self.append([self.new_request(turn_id, call, reason, in_run=True)])
            if self._turn is None:
                raise StoreUnavailableError(f"turn {turn_id} was lost; nobody is asked")
            self._turn.asked_of[clean_text(call.call_id)] = (call, future)

        try:
            await self._mailbox.do(step)
            await self._surroundings.waits(self._scope(turn_id), [call])
            return await future
        except asyncio.CancelledError:
            if self._turn is not None and not self._turn.is_asked_to_end:
                await complete(self._withdraw(turn_id, clean_text(call.call_id)))
            raise

    async def _withdraw(self, turn_id: str, call_id: str) -> None:
        async def step() -> None:
            turn = self._state.turn if self._state is not None else None
            if turn is None or turn.turn_id != turn_id:
                return
            call = turn.waiting_call(call_id)
            if call is not None and call.approved is None:
                why = "withdrawn: nobody waits for the answer any more"
                await self.append(
                    [self.new_answer(turn_id, call, approve=False, reason=why, arguments=None)]
                )

        await self._mailbox.do(step)

    def remembered(self, key: str) -> Json:
        """What a loop of this session remembered last with this key."""
        kept = self._state.remembered if self._state is not None else ()
        return next((value for name, value in kept if name == key), None)


class _TurnJournal:
    """What a run sees of its actor."""

    def __init__(self, player: Player, turn_id: str) -> None:
        self._player = player
        self._turn_id = turn_id

    @property
    def leaf_id(self) -> str | None:
        return self._player.state.leaf_id

    async def append(self, drafts: Sequence[Draft]) -> Receipt:
        return await self._player.append_for(self._turn_id, drafts)


def _answer_of(fact: ApprovalAnswered, arguments: Json) -> Answer:
    if not fact.approve:
        return Refused(fact.reason or "a person refused this call")
    return Allowed(arguments if fact.arguments is None else fact.arguments)
