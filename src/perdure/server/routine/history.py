"""The run history: a routine's journal read from its newest end, one item for each due time.

What belongs to a run stands behind its claim, and is found by ids that follow from it; so a page
costs what it shows, wherever in the journal it lies.
"""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from perdure.codec import StoredEntry
from perdure.errors import CursorVoidError, EntryNotFoundError
from perdure.fact import (
    RoutineFired,
    RoutineMissed,
    RoutineRunEnded,
    RoutineRunStarted,
    RoutineSkipped,
)
from perdure.server.journal import JournalStore
from perdure.server.routine.identity import ended_id_of, run_id_of, started_id_of
from perdure.server.routine.look import RunLook, with_end
from perdure.server.routine.routine import Routine

_PAGE = 200


class RunPage(Struct, frozen=True):
    """Some runs, newest first; `next` is the `after` of the page that follows, None on the last."""

    runs: tuple[RunLook, ...]
    next: str | None


async def load_runs(routine: Routine, *, limit: int = 50, after: str | None = None) -> RunPage:
    """A page of the run history, newest first.

    Raises:
        CursorVoidError: `after` is not the `next` of a page.
        RoutineNotFoundError, StoreError, UnrecoverableError.

    """
    before = _bound(after)
    store, id_ = routine.store, routine.routine_id
    found: list[tuple[int, RunLook]] = []
    later: dict[str, StoredEntry] = {}
    has_more = True
    while has_more and len(found) <= limit:
        page = await store.page_entries(id_, before=before, limit=_PAGE)
        has_more = page.has_more
        for stored in reversed(page.entries):
            before = stored.seq
            later[stored.id] = stored
            look = await _look(store, routine, stored, later)
            if look is not None:
                found.append((stored.seq, look))
            if len(found) > limit:
                break
    shown = found[:limit]
    following = str(shown[-1][0]) if len(found) > limit else None
    return RunPage(tuple(look for _, look in shown), following)


def _bound(after: str | None) -> int | None:
    if after is None:
        return None
    if not (after.isascii() and after.isdecimal() and len(after) < 19):
        raise CursorVoidError(after, "it is not from a page of runs")
    return int(after)


async def _look(
    store: JournalStore, routine: Routine, stored: StoredEntry, later: dict[str, StoredEntry]
) -> RunLook | None:
    match stored.view:
        case RoutineFired() as fired:
            return await _run(store, routine, fired, later)
        case RoutineSkipped(due_at=due, why=why):
            return RunLook(run_id_of(due), due, "skipped", why=why, ended_at=stored.created_at)
        case RoutineMissed(first_at=first, last_at=last, count=count):
            why = "nobody was there: the server was down, or its clock was set forward"
            until = last if last != first else None
            return RunLook(
                run_id_of(first),
                first,
                "missed",
                why=why,
                ended_at=stored.created_at,
                until_at=until,
                count=count,
            )
        case _:
            return None


async def _run(
    store: JournalStore, routine: Routine, fired: RoutineFired, later: dict[str, StoredEntry]
) -> RunLook:
    run_id = fired.run_id if fired.run_id is not None else fired.due_at
    look = RunLook(run_id, datetime.fromisoformat(fired.due_at), "claimed", fired.cause)
    id_, incarnation = routine.routine_id, routine.incarnation

    async def find(entry_id: str) -> StoredEntry | None:
        if entry_id in later:
            return later[entry_id]
        try:
            return await store.load_entry(id_, entry_id)
        except EntryNotFoundError:
            return None

    attempt = 1
    while (stored := await find(started_id_of(incarnation, run_id, attempt))) is not None:
        if isinstance(fact := stored.view, RoutineRunStarted):
            look = replace(
                look,
                status="started",
                session_id=fact.session_id,
                message_id=fact.message_id,
                turn_id=fact.turn_id,
                attempts=attempt,
                started_at=look.started_at or stored.created_at,
            )
        attempt += 1
    stored = await find(ended_id_of(incarnation, run_id))
    if stored is not None and isinstance(end := stored.view, RoutineRunEnded):
        look = with_end(look, end)
    return look


async def load_run(routine: Routine, fired_id: str) -> RunLook | None:
    """One run, by the id of its claim; None where there is none."""
    try:
        stored = await routine.store.load_entry(routine.routine_id, fired_id)
    except EntryNotFoundError:
        return None
    view = stored.view
    return await _run(routine.store, routine, view, {}) if isinstance(view, RoutineFired) else None
