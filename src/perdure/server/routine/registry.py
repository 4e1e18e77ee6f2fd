"""What can be asked of the server's routines, and told them: the verbs of the API.

Looking is free: it reads memory, and the journal for the run history. A routine belongs to the
principal who made it; `owner` is kept with it, and whoever knows principals checks it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC
from typing import Literal

from msgspec.structs import replace

from perdure import clock
from perdure.errors import (
    InvalidRoutineError,
    RoutineExistsError,
    RoutineNotFoundError,
    ServerClosingError,
    SessionExistsError,
    SessionNotFoundError,
)
from perdure.fact import Fact, Origin, RoutineFired, RoutineSwitched
from perdure.run import complete
from perdure.server.journal import JournalStore
from perdure.server.keeping.port import Sessions
from perdure.server.routine.definition import (
    Definition,
    Wanted,
    check_routine_id,
    define,
    make_schedule,
)
from perdure.server.routine.history import RunPage, load_run, load_runs
from perdure.server.routine.identity import asked_id_of, fired_id_of, run_id_of
from perdure.server.routine.keeper import Keeper
from perdure.server.routine.look import (
    SHOWN,
    DueLook,
    RoutineLook,
    RunLook,
    look_at,
    lost_look,
)
from perdure.server.routine.routine import Routine, create_routine
from perdure.server.routine.schedule import find_zone, say

Switch = Literal["enabled", "paused"]


class RoutineRegistry:
    """The server's routines, as they are asked for."""

    def __init__(
        self,
        store: JournalStore,
        sessions: Sessions,
        check_loop: Callable[[str], Awaitable[None]],
    ) -> None:
        self.keeper = Keeper(store, sessions)
        self._store = store
        self._sessions = sessions
        self._check_loop = check_loop

    def preview(self, wanted: Wanted) -> DueLook:
        """When this schedule would be due next.

        Raises:
            InvalidRoutineError: it is no schedule; says which field is wrong, and what is allowed.

        """
        now = clock.now()
        schedule = make_schedule(wanted, now)
        zone = find_zone(schedule.zone)
        due = schedule.upcoming(now, SHOWN)
        local = tuple(each.astimezone(zone).isoformat() for each in due)
        return DueLook(say(schedule), due, local)

    async def create(
        self,
        routine_id: str | None,
        wanted: Wanted,
        *,
        status: Switch = "enabled",
        owner: str | None = None,
        scope: str | None = None,
        origin: Origin = "api",
    ) -> tuple[RoutineLook, bool]:
        """Makes a routine, and its session; (its look, False) if the same one is there already.

        It is of the principal `owner`, and so are the sessions that it makes. With a `scope` it
        sends into sessions of this principal only.

        Raises:
            InvalidRoutineError, ConfigurationError, MissingExtraError: nothing stored.
            RoutineExistsError: another one has the id; nothing stored.
            SessionNotFoundError: there is no session to fork; nothing stored.
            SessionExistsError: the session is somebody else's; nothing stored.
            StoreError: nothing stored, or in doubt: the same call again finds out.

        """
        self._check_open()
        routine_id = clock.new_id() if routine_id is None else check_routine_id(routine_id)
        now = clock.now()
        definition = replace(define(routine_id, wanted, now), owner=owner, origin=origin)
        known = self._known(routine_id)
        if known is not None:
            return self._same(known, definition), False
        if origin == "api" and definition.schedule.next_after(now) is None:
            raise InvalidRoutineError("schedule", "it is never due: its time is in the past")
        definition = await self._resolve(definition, scope)
        facts: list[Fact] = [definition.as_fact(now)]
        if status == "paused":
            facts.append(RoutineSwitched(status="paused"))
        try:
            routine = await create_routine(self.keeper.journals, routine_id, facts)
        except SessionExistsError:
            await self.keeper.find(routine_id)
            return self._same(self.keeper.get(routine_id), definition), False
        kept = self.keeper.add(routine)
        return look_at(kept), True

    def _known(self, routine_id: str) -> Routine | None:
        try:
            return self.keeper.get(routine_id)
        except RoutineNotFoundError:
            return None

    @staticmethod
    def _same(routine: Routine, definition: Definition) -> RoutineLook:
        known = routine.state.definition
        is_whose = known is not None and known.owner == definition.owner
        if known is None or not is_whose or not known.does_what(definition):
            raise RoutineExistsError(routine.routine_id)
        return look_at(routine)

    async def _resolve(self, definition: Definition, scope: str | None) -> Definition:
        """The definition with the incarnation of its session, which is made if it is not there."""
        if definition.session_id is None and definition.loop is not None:
            await self._check_loop(definition.loop)
        if definition.incarnation is not None:
            return definition
        if definition.fork_of is not None:
            look = await self._sessions.look(definition.fork_of)
            if scope is not None and look.owner != scope:
                raise SessionNotFoundError(definition.fork_of)
        elif definition.session_id is not None:
            look, is_new = await self._sessions.create(
                definition.session_id, definition.loop, owner=definition.owner
            )
            if not is_new and scope is not None and look.owner != scope:
                raise SessionExistsError(definition.session_id)
        else:
            return definition
        return replace(definition, incarnation=look.cursor.partition(".")[2])

    def list(
        self, *, limit: int = 50, after: str | None = None, scope: str | None = None
    ) -> tuple[Sequence[RoutineLook], str | None]:
        """Routines in the order of their ids, and the `after` of the next page (None on the last).

        With a `scope` those of this principal. O(limit) looks; a routine whose journal cannot be
        read is among them, for who has all of them.
        """
        kept = {
            each.routine_id for each in self.keeper.kept() if scope is None or each.owner == scope
        }
        ids = sorted(kept if scope is not None else kept | self.keeper.lost.keys())
        found = [each for each in ids if after is None or each > after]
        shown = [self._look(each) for each in found[:limit]]
        return shown, found[limit - 1] if len(found) > limit else None

    def _look(self, routine_id: str) -> RoutineLook:
        if routine_id in self.keeper.lost:
            return lost_look(*self.keeper.lost[routine_id])
        return look_at(self.keeper.get(routine_id))

    def look(self, routine_id: str) -> RoutineLook:
        """The routine as it stands.

        Raises:
            RoutineNotFoundError: there is none.

        """
        return self._look(routine_id)

    def check_scope(self, routine_id: str, scope: str | None) -> None:
        """Returns if the principal has the routine; None has every one.

        Raises:
            RoutineNotFoundError: it is not there, or somebody else's.

        """
        if scope is None:
            return
        if routine_id in self.keeper.lost or self.keeper.get(routine_id).owner != scope:
            raise RoutineNotFoundError(routine_id)

    async def change(
        self,
        routine_id: str,
        wanted: Wanted,
        *,
        status: Switch | None = None,
        scope: str | None = None,
    ) -> RoutineLook:
        """Changes what was given; pauses it, or has it go on from now on.

        Another schedule counts from now on. A routine that stopped itself goes on with the session
        that has the id now, which is made if there is none.

        Raises:
            RoutineNotFoundError, InvalidRoutineError, SessionNotFoundError: nothing stored.
            StoreError: nothing stored, or in doubt.

        """
        self._check_open()
        routine = self.keeper.get(routine_id)
        known = routine.state.definition
        assert known is not None
        if known.origin == "configuration" and wanted != Wanted():
            raise InvalidRoutineError(
                "routine_id", f"routine {routine_id!r} is defined in perdure.toml: change it there"
            )
        await self.redefine(routine, wanted, status, scope=scope)
        return look_at(routine)

    async def redefine(
        self,
        routine: Routine,
        wanted: Wanted,
        status: Switch | None,
        *,
        scope: str | None = None,
        whole: bool = False,
    ) -> None:
        """As `change`, wherever it is defined; `whole`: what is not given has its default."""

        async def step() -> None:
            now = clock.now()
            known, state = routine.state.definition, routine.state
            assert known is not None
            made = define(routine.routine_id, wanted, now, None if whole else known)
            if whole:
                made = replace(made, owner=known.owner, origin=known.origin)
            is_new_schedule = made.schedule != known.schedule
            if is_new_schedule and not whole and made.schedule.next_after(now) is None:
                raise InvalidRoutineError("schedule", "it is never due: its time is in the past")
            if state.status == "stopped" and status == "enabled":
                made = replace(made, incarnation=None)
            made = await self._resolve(made, scope)
            facts: list[Fact] = []
            if made != known:
                after = now if is_new_schedule or state.after is None else state.after
                facts.append(made.as_fact(after))
            if status is not None and status != state.status:
                after_or_none = now if status == "enabled" else None
                facts.append(RoutineSwitched(status=status, after=after_or_none))
            if facts:
                await routine.append(*facts)

        await self.keeper.hold(routine, step)

    async def delete(self, routine_id: str) -> None:
        """Deletes the routine and its history; turns that it started go on.

        Raises:
            RoutineNotFoundError: there is none. InvalidRoutineError: a file defines it.
            StoreError: it may still be there.

        """
        self._check_open()
        if routine_id not in self.keeper.lost:
            routine = self.keeper.get(routine_id)
            definition = routine.state.definition
            if definition is not None and definition.origin == "configuration":
                raise InvalidRoutineError(
                    "routine_id",
                    f"routine {routine_id!r} is defined in perdure.toml: take it out there, and it "
                    "is paused; or pause it",
                )
            async with routine.lock:
                await self._delete(routine_id)
        else:
            await self._delete(routine_id)

    async def _delete(self, routine_id: str) -> None:
        try:
            await complete(self.keeper.journals.delete_session(routine_id))
        except SessionNotFoundError as error:
            self.keeper.forget(routine_id)
            raise RoutineNotFoundError(routine_id) from error
        self.keeper.forget(routine_id)

    async def run(self, routine_id: str, *, idempotency_key: str | None = None) -> RunLook:
        """Starts a run now, paused or not; the same key again gives what became of it.

        Raises:
            RoutineNotFoundError, RoutineBusyError, ServerClosingError: nothing stored.
            StoreError: nothing stored, or in doubt.

        """
        self._check_open()
        routine = self.keeper.get(routine_id)
        now = clock.now().astimezone(UTC)
        key = clock.new_id() if idempotency_key is None else idempotency_key
        run_id = asked_id_of(routine.incarnation, key)
        fired_id = fired_id_of(routine.incarnation, run_id)
        fired = RoutineFired(
            id=fired_id,
            routine_id=routine_id,
            due_at=run_id_of(now),
            run_id=run_id,
            cause="asked",
        )

        async def step() -> None:
            if await load_run(routine, fired_id) is None:
                await self.keeper.firing.ask(routine, fired, now)

        await self.keeper.hold(routine, step)
        run = await load_run(routine, fired_id)
        if run is None:
            raise RoutineNotFoundError(routine_id)
        return run

    async def runs(self, routine_id: str, *, limit: int = 50, after: str | None = None) -> RunPage:
        """A page of the run history, newest first.

        Raises:
            RoutineNotFoundError: there is none. CursorVoidError: `after` is of no page.
            StoreError, UnrecoverableError: it cannot be read.

        """
        try:
            return await load_runs(self.keeper.get(routine_id), limit=limit, after=after)
        except SessionNotFoundError as error:
            raise RoutineNotFoundError(routine_id) from error

    def _check_open(self) -> None:
        if self._sessions.is_closing:
            raise ServerClosingError
