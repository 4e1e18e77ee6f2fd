"""`perdure verify`: every byte, sum and path of every session, or of one; changes nothing."""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

from perdure.cli.place import ListingStore, add_store_to, open_for_reading
from perdure.cli.terminal import Terminal
from perdure.codec import StoredEntry
from perdure.errors import JournalCorruptError, UnrecoverableError
from perdure.tree import Tree


def add_to(verbs: Any) -> None:
    """Adds the verb to the command line."""
    verb = verbs.add_parser("verify", help="check every session of a store for damage")
    verb.add_argument("session_id", metavar="SESSION", nargs="?", help="one session; else all")
    add_store_to(verb)
    verb.set_defaults(run=run)


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Prints each damage it finds; 1 if there is any."""
    return asyncio.run(_verify(options, terminal))


async def _verify(options: argparse.Namespace, terminal: Terminal) -> int:
    damaged = 0
    async with open_for_reading(options) as store:
        ids = [options.session_id] if options.session_id else sorted(await store.session_ids())
        for session_id in ids:
            for damage in await _damages(store, session_id):
                terminal.say(f"damaged: {damage}")
                damaged += 1
    checked = f"{len(ids)} session{'' if len(ids) == 1 else 's'} checked"
    terminal.say(f"{checked}, {damaged} damaged" if damaged else f"{checked}, no damage found")
    return 1 if damaged else 0


async def _damages(store: ListingStore, session_id: str) -> list[str]:
    try:
        await store.verify_session(session_id)
        _check_paths(session_id, await store.load_entries(session_id))
    except UnrecoverableError as error:
        return [str(error)]
    return []


def _check_paths(session_id: str, entries: object) -> None:
    """Every tree entry has its parent in the log, and the leaf's path ends at a root."""
    assert isinstance(entries, list | tuple)
    stored: list[StoredEntry] = list(entries)
    tree = Tree(stored, session_id=session_id)
    for entry in stored:
        if isinstance(entry.parent_id, str) and entry.parent_id not in tree:
            place, detail = f"entry {entry.id!r}", f"its parent {entry.parent_id!r} is not there"
            raise JournalCorruptError(session_id, entry.seq, place, detail)
    if tree.leaf_id is not None:
        tree.path(tree.leaf_id)
