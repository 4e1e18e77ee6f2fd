"""`perdure ls`: the sessions of a store, those with the newest activity first; changes nothing."""

from __future__ import annotations

import argparse
import asyncio
import json
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from perdure.cli.place import ReadingStore, add_store_to, open_for_reading
from perdure.cli.render import local_time
from perdure.cli.terminal import Terminal, one_line
from perdure.errors import SessionNotFoundError, UnrecoverableError
from perdure.server.session.look import look_of
from perdure.server.session.state import State, decode_state, fold
from perdure.store import Look, LookPage

AT_ONCE = 64
"""How many sessions are read at a time: each waits for a thread, and they do not wait in turns."""
PAGE = 500


@dataclass(frozen=True, slots=True)
class Row:
    """What is said of one session. `status` is None where no server ever ran a turn of it."""

    session_id: str
    parent_id: str | None = None
    created_at: str | None = None
    status: str | None = None
    cause: str | None = None
    last_seq: int | None = None
    last_activity: str | None = None


def add_to(verbs: Any) -> None:
    """Adds the verb to the command line."""
    verb = verbs.add_parser("ls", help="list the sessions of a store")
    verb.add_argument("--json", action="store_true", help="one JSON object a line")
    add_store_to(verb)
    verb.set_defaults(run=run)


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Prints a line for each session; one that is damaged is listed as `unrecoverable`."""
    rows = asyncio.run(_rows(options))
    if options.json:
        for row in rows:
            terminal.say(json.dumps(asdict(row), ensure_ascii=terminal.is_terminal))
        return 0
    if not rows:
        terminal.say("no sessions")
        return 0
    table = [("SESSION", "STATUS", "ENTRIES", "LAST ACTIVITY"), *map(_cells, rows)]
    widths = [max(len(line[column]) for line in table) for column in range(3)]
    for name, status, entries, activity in table:
        line = f"{name:<{widths[0]}}  {status:<{widths[1]}}  {entries:>{widths[2]}}  {activity}"
        terminal.say(line.rstrip())
    return 0


def _cells(row: Row) -> tuple[str, str, str, str]:
    return (
        one_line(row.session_id),
        row.status or "-",
        "-" if row.last_seq is None else str(row.last_seq),
        local_time(datetime.fromisoformat(row.last_activity)) if row.last_activity else "-",
    )


async def _rows(options: argparse.Namespace) -> list[Row]:
    async with open_for_reading(options) as store:
        looks = await _looks(store)
        session_ids = await store.session_ids()
        found: list[Row | None] = []
        for first in range(0, len(session_ids), AT_ONCE):
            part = session_ids[first : first + AT_ONCE]
            found += await asyncio.gather(*(_row(store, each, looks.get(each)) for each in part))
        rows = [row for row in found if row is not None]
        if (unlisted := getattr(store, "unlisted", None)) is not None:
            # What has lost its id is shown by the name of its file.
            rows += [_damaged(damage.session_id, damage) for damage in await unlisted()]
    return sorted(rows, key=lambda row: row.last_activity or "", reverse=True)


async def _looks(store: ReadingStore) -> dict[str, Look]:
    """What the store can say of many sessions at a time, where it can.

    One that is appended to meanwhile may be missing, and is looked at by itself.
    """
    looks: dict[str, Look] = {}
    list_sessions = getattr(store, "list_sessions", None)
    after = None
    while list_sessions is not None:
        page: LookPage = await list_sessions(limit=PAGE, after=after)
        looks |= {look.session.id: look for look in page.sessions if look.damage is None}
        after = page.next
        if after is None:
            break
    return looks


async def _row(store: ReadingStore, session_id: str, look: Look | None) -> Row | None:
    try:
        is_listed = look is not None
        if look is None:
            look = await _look(store, session_id)
        state = decode_state(look.summary) or State()
        if not is_listed or state.last_seq != look.last_seq:
            state = fold(state, list(await store.load_entries(session_id, after=state.last_seq)))
    except SessionNotFoundError:
        return None  # deleted since it was listed
    except UnrecoverableError as error:
        return _damaged(session_id, error)
    shown = look_of(look.session, state)
    return Row(
        session_id,
        look.session.parent_id,
        look.session.created_at.isoformat(),
        _status(state, shown.status),
        shown.cause if state.turn is None else None,
        state.last_seq,
        shown.last_activity.isoformat(),
    )


def _damaged(session_id: str, error: UnrecoverableError) -> Row:
    return Row(session_id, status="unrecoverable", cause=str(error))


def _status(state: State, status: str) -> str | None:
    """A turn without an end is running, if a server has this store, or it was interrupted."""
    if state.turn is not None:
        return "open turn"
    return status if state.last_turn is not None else None


async def _look(store: ReadingStore, session_id: str) -> Look:
    if (look := getattr(store, "look", None)) is not None:
        found = await look(session_id)
        assert isinstance(found, Look)
        return found
    return Look(await store.load_session(session_id), 0, None)
