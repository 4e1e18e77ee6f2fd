"""The one owner of a live session: wakes it, appends to it, and lets go of it.

Every step runs in the actor's mailbox, so one append is in flight at a time. An append carries the
`seq` it stands on, the incarnation, and the summary of the state it leads to; the state changes
only by `apply` of what was stored. When the store fails, the owner drops what it holds, and the
next command replays: it never carries on in memory only.

The turns that an owner runs are in actor.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from perdure.codec import Draft
from perdure.errors import (
    AppendConflictError,
    AppendRejectedError,
    PerdureError,
    SessionDeletedError,
    SessionNotFoundError,
    StoreError,
    StoreUnavailableError,
    UnrecoverableError,
)
from perdure.fact import Claimed, TurnEnded, TurnReason
from perdure.server.folder import without_folders
from perdure.server.journal import JournalStore
from perdure.server.session.batch import chain
from perdure.server.session.idempotency import ended_id_of
from perdure.server.session.keeper import Keeper
from perdure.server.session.limit import Limits
from perdure.server.session.look import SessionLook, cut_off, look_of
from perdure.server.session.mailbox import Mailbox
from perdure.server.session.partial import Partial, Partials
from perdure.server.session.port import FeedPort, Loops
from perdure.server.session.replay import replay, replay_all
from perdure.server.session.state import (
    State,
    encode_state,
    fold,
    place,
)
from perdure.server.session.surroundings import NOTHING, StartSource, Surroundings
from perdure.server.session.turn import Rest, Turn, describe
from perdure.store import Receipt, Session

_T = TypeVar("_T")

CLAIM_TRIES = 8
DYING_S = 5.0
"""How long a command waits, once, for the run of a lost turn to let go of its tools."""


class _LostError(Exception):
    """An append was refused, or is in doubt, and what the actor held is dropped."""


class _DyingError(Exception):
    """A run was lost while a step waited for its time: the step waits for that run, too."""


class Owner:
    """One session's owner in this process. Asleep until its first command wakes it.

    `failure` is why the session is unrecoverable, None while it is well.
    """

    def __init__(
        self,
        session_id: str,
        store: JournalStore,
        loops: Loops,
        feed: FeedPort,
        node_id: str,
        limits: Limits,
        on_rest: Callable[[str], None],
        surroundings: Surroundings = NOTHING,
    ) -> None:
        self.session_id = session_id
        self.failure: str | None = None
        self.store = store
        self.keeper = Keeper(store, session_id, limits.snapshot_every)
        self._loops = loops
        self._feed = feed
        self._node_id = node_id
        self._limits = limits
        self._on_rest = on_rest
        self._surroundings = surroundings
        self._mailbox = Mailbox()
        self._session: Session | None = None
        self._state: State | None = None
        self._turn: Turn | None = None
        self._starting: str | None = None
        self._ended_here: str | None = None
        self._lost: str | None = None
        self._dying: set[asyncio.Task[Rest]] = set()
        self._stuck: set[asyncio.Task[Rest]] = set()
        self._watchers: set[asyncio.Task[None]] = set()
        self._is_doubted = False
        self._partials = Partials()
        self._told: object = None
        self._refusal: PerdureError | None = None
        self._starts: StartSource | None = None
        self._ending = asyncio.Lock()
        self._notices = 0

    @property
    def state(self) -> State:
        """The state, inside a command."""
        assert self._state is not None
        return self._state

    @property
    def session(self) -> Session:
        """The session's identity, inside a command."""
        assert self._session is not None
        return self._session

    @property
    def turn(self) -> Turn | None:
        """The turn that runs here."""
        return self._turn

    @property
    def is_blank(self) -> bool:
        """Whether it holds nothing that a new one would not come to hold."""
        is_quiet = self._turn is None and not self._mailbox.is_busy and not self._dying
        return is_quiet and self._state is None and self.failure is None and self._lost is None

    @property
    def is_awake(self) -> bool:
        """Whether it holds the session's state."""
        return self._state is not None

    @property
    def is_at_rest(self) -> bool:
        """Whether it is awake and nothing runs; a loop that never lets go is not waited for.

        Nor is it while people are told that it waits for them.
        """
        is_quiet = self._turn is None and self._starting is None and self._dying <= self._stuck
        return is_quiet and not self._notices and self._state is not None

    @property
    def live(self) -> frozenset[str]:
        """The ids of turns that nobody has to be told were cut off.

        The running one, one being started, and the one that ended here last: a look may have read
        the store just before its end was stored.
        """
        turn_id = self._turn.turn_id if self._turn is not None else None
        ids = (turn_id, self._starting, self._ended_here)
        return frozenset(each for each in ids if each is not None)

    def look(self) -> SessionLook:
        """The session as it stands, inside a command."""
        return self._look_of(self.session, self.state)

    def _look_of(self, session: Session, state: State) -> SessionLook:
        return look_of(
            session,
            state,
            live=self.live,
            failure=self.failure,
            quarantine_after=self._limits.quarantine_after,
        )

    def partials(self) -> list[Partial]:
        """The text so far of each part in the making."""
        return self._partials.show(self._turn.turn_id) if self._turn is not None else []

    async def command(self, step: Callable[[bool], Awaitable[_T]]) -> _T:
        """Runs a step of an awake actor, in the mailbox, to its end even if the caller leaves.

        A step whose append was refused or is in doubt is decided once more, after a replay, unless
        the caller has left. It is told so (`step(True)`), and has to look for what it may have
        stored already. A run that was lost has some time to let go of its tools before that.

        Raises:
            StoreError, UnrecoverableError: the store refuses; the actor holds nothing now.
            ServerClosingError, SessionDeletedError, SessionNotFoundError: nothing was done.

        """
        try:
            return await self._decide(step, again=False)
        except _LostError:
            return await self._decide(step, again=True)

    async def _decide(self, step: Callable[[bool], Awaitable[_T]], *, again: bool) -> _T:
        async def attempt() -> _T:
            if self._dying - self._stuck:
                raise _DyingError
            try:
                await self._wake()
            except SessionNotFoundError as error:
                self._refusal = error  # a session of this id that is made later has another actor
                raise
            try:
                return await step(again)
            except StoreError as error:
                if again or self._state is not None:
                    raise
                raise _LostError from error  # not here: its run may want to store its last words
            except UnrecoverableError as error:
                self.fail(error)
                raise

        while True:
            if dying := self._dying - self._stuck:
                self._stuck |= (await asyncio.wait(dying, timeout=DYING_S))[1]
            try:
                return await self._mailbox.do(attempt)
            except _DyingError:
                continue

    async def _wake(self) -> None:
        """Replays the journal and claims the session; the turn that has no end gets one."""
        if self._refusal is not None:
            raise self._refusal
        if self._state is not None:
            return
        lost = self._lost
        try:
            look = await self.store.look(self.session_id)
            if self._is_doubted:  # damage was met, somewhere: it is looked for from the beginning
                state = await replay(self.store, self.session_id, State())
            else:
                state = await replay_all(self.store, look)
            for _ in range(CLAIM_TRIES):
                self._session, self._state = look.session, state
                if self._told is None and state.turn is None:  # a claim alone is no news
                    self._told = _news(self.look())
                try:
                    await self.append(self._claim(lost))
                except AppendConflictError:
                    state = await replay(self.store, self.session_id, state)
                    continue
                break
            else:
                raise StoreUnavailableError(
                    f"session {self.session_id!r} is being written by others all the time; "
                    "try again, or stop the other writer"
                )
        except (StoreError, UnrecoverableError) as error:
            self.fail(error)
            raise
        self.failure = self._lost = None
        self._is_doubted = False
        is_child = self.session.parent_id is not None
        first: StartSource = "fork" if is_child else "startup"
        self._starts = "resume" if self.state.has_started else first
        self._tell()

    def _claim(self, lost: str | None) -> list[Draft]:
        state = self.state
        drafts: list[Draft] = [Claimed(epoch=state.epoch + 1, node=self._node_id)]
        if state.turn is not None and not state.turn.is_at_rest:
            turn_id = state.turn.turn_id
            if lost is not None:
                cause = f"the server lost the session: {lost}"
                drafts.append(self._ended(turn_id, "interrupted", cause))
            else:
                reason, cause = cut_off(state.turn, self._limits.quarantine_after)
                drafts.append(self._ended(turn_id, reason, cause, crashed=True))
        return drafts

    def _ended(
        self, turn_id: str, reason: TurnReason, cause: str | None, *, crashed: bool = False
    ) -> TurnEnded:
        return TurnEnded(
            id=ended_id_of(self.session.incarnation, turn_id),
            turn_id=turn_id,
            reason=reason,
            cause=cause,
            crashed=crashed,
        )

    async def damage(self, error: UnrecoverableError) -> None:
        """A reader met damage: drops what is held; whether it is still there a replay will see."""

        async def step() -> None:
            self.fail(error)

        await self._mailbox.do(step)

    async def append(self, drafts: Sequence[Draft]) -> Receipt:
        """Stores the drafts as one batch, tree entries as a chain from the leaf; then applies it.

        Raises:
            AppendRejectedError: the drafts are not valid; nothing stored, nothing lost.
            PerdureError: the store failed; the actor has dropped what it held.

        """
        state, session = self.state, self.session
        batch = chain(drafts, state.leaf_id)
        after = fold(state, place(state, batch))
        try:
            receipt = await self.store.append_entries(
                self.session_id,
                batch,
                expected_seq=state.last_seq,
                incarnation=session.incarnation,
                summary=encode_state(after),
            )
        except AppendRejectedError:
            raise
        except PerdureError as error:
            self.fail(error)
            raise
        self._state = after
        for stored in receipt.entries:
            self._partials.drop(stored.id)
        self._tell()
        self.keeper.note(state, after, session)
        return receipt

    async def offload(self, let_go: Callable[[], bool]) -> bool:
        """Keeps a snapshot and drops the state, if nothing runs and `let_go()` then says so.

        A step that waits stays this actor's, even if nobody waits for it any more. Nothing is
        awaited between `let_go` and the end: whoever comes after it finds this actor
        gone from where it was, and has another one.
        """

        async def step() -> bool:
            if not self.is_at_rest:
                return False
            await self.keeper.save(self.state, self.session)
            await self.keeper.close()
            if self._mailbox.has_more or not self.is_at_rest or not let_go():
                return False
            self._state = self._session = None
            return True

        return await self._mailbox.do(step)

    def fail(self, error: PerdureError) -> None:
        """Drops what the actor holds. The session is unrecoverable while the store refuses it.

        A conflict, or a session that is gone, is no refusal of the store.
        """
        state, turn = self._state, self._turn
        self._state = self._turn = None
        self._partials.clear()
        self._lost = without_folders(describe(error))
        is_refusal = isinstance(error, StoreError | UnrecoverableError)
        if is_refusal and not isinstance(error, AppendConflictError):
            self.failure = self._lost
        if isinstance(error, UnrecoverableError):
            self._is_doubted = True
        if turn is not None:
            self._leave(turn)
            turn.lose(error)
        gone = isinstance(error, SessionDeletedError | SessionNotFoundError)
        if state is not None and self._session is not None and not gone:
            self._tell_look(self._look_of(self._session, state))

    def _leave(self, turn: Turn) -> None:
        """Lets a run end by itself: what it still wants to store is refused."""
        self._dying.add(turn.task)
        turn.task.add_done_callback(lambda task: task.cancelled() or task.exception())
        turn.task.add_done_callback(self._dying.discard)
        turn.task.add_done_callback(self._stuck.discard)

    def _tell(self) -> None:
        self._tell_look(self.look())

    def _tell_look(self, look: SessionLook) -> None:
        news = _news(look)
        if news != self._told:
            self._told = news
            self._feed.status(look)


def _news(look: SessionLook) -> object:
    """What of a look is told when it changes."""
    return look.status, look.cause, look.turn, look.queued, look.last_turn, look.approvals
