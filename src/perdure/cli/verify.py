"""`perdure verify`: every byte, sum and path of every session, of one, or of a file.

It changes nothing. With a head that somebody kept it tells a log that was rewritten or cut off.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from typing import Any, cast

from perdure.cli.place import ReadingStore, add_store_to, open_for_reading
from perdure.cli.terminal import Terminal, one_line
from perdure.errors import ConfigurationError, SessionNotFoundError, UnrecoverableError
from perdure.interchange import check_head, verify_file
from perdure.server.journal import JournalStore
from perdure.server.session.replay import check_kept
from perdure.store import Head, Look, Verified, read_head
from perdure.tree import check_paths


def add_to(verbs: Any) -> None:
    """Adds the verb to the command line."""
    verb = verbs.add_parser("verify", help="check every session of a store for damage")
    verb.add_argument(
        "session_id",
        metavar="SESSION|FILE",
        nargs="?",
        help="one session, or an exported file; else all sessions",
    )
    verb.add_argument("--head", metavar='"SEQ SUM"', help="what perdure export printed: check it")
    add_store_to(verb)
    verb.set_defaults(run=run)


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Prints each damage it finds; 1 if there is any."""
    name: str | None = options.session_id
    head = None if options.head is None else read_head(options.head)
    if head is not None and name is None:
        raise ConfigurationError("a head is of one session: name it, or its file, before --head")
    if name is not None and options.store is None and os.path.isfile(name):
        return asyncio.run(_verify_file(name, head, terminal))
    return asyncio.run(_verify(options, name, head, terminal))


async def _verify_file(name: str, head: Head | None, terminal: Terminal) -> int:
    try:
        file = await verify_file(name, head=head)
    except UnrecoverableError as error:
        terminal.say(f"damaged: {error}")
        terminal.say("1 file checked, 1 damaged")
        return 1
    _say_unproven(terminal, file.session.id, file.verified)
    terminal.say(f"session {one_line(file.session.id)}, head {file.verified.head}")
    terminal.say("1 file checked, no damage found")
    return 0


async def _verify(
    options: argparse.Namespace, name: str | None, head: Head | None, terminal: Terminal
) -> int:
    damages: list[str] = []
    torn: list[str] = []
    async with open_for_reading(options) as store:
        ids = [name] if name is not None else sorted(await store.session_ids())
        elsewhere = [] if name is not None else await store.verify_store()
        for session_id in ids:
            try:
                verified = await _verify_one(store, session_id, head)
            except UnrecoverableError as error:
                damages.append(f"damaged: {error}")
            except SessionNotFoundError:
                if name is not None:
                    raise
                continue  # deleted since it was listed
            else:
                _say_unproven(terminal, session_id, verified)
                if verified.torn is not None:
                    torn.append(_torn(session_id, verified.torn))
        damages += [f"damaged: {damage}" for damage in elsewhere]
    for line in (*damages, *torn):
        terminal.say(line)
    counts = [f"{len(ids)} session{'' if len(ids) == 1 else 's'} checked"]
    counts += [f"{len(damages)} damaged"] if damages else []
    counts += [f"{len(torn)} with a torn tail"] if torn else []
    counts += [] if damages or torn else ["no damage found"]
    terminal.say(", ".join(counts))
    return 1 if damages or torn else 0


async def _verify_one(store: ReadingStore, session_id: str, head: Head | None) -> Verified:
    if head is not None:
        verified = await check_head(store, session_id, head)
    else:
        verified = await store.verify_session(session_id)
    look: Look | None = await store.look(session_id) if hasattr(store, "look") else None
    entries = await store.load_entries(session_id)
    check_paths(entries, session_id=session_id)
    if look is not None:
        await check_kept(cast("JournalStore", store), look, entries)
    return verified


def _torn(session_id: str, torn: str) -> str:
    return (
        f"torn: session {session_id!r}, {torn} after its last whole entry. A crash in mid-append "
        "leaves that, and the next append moves it aside; damage to its last entries looks the "
        "same, and a head that was kept tells"
    )


def _say_unproven(terminal: Terminal, session_id: str, verified: Verified) -> None:
    if verified.unproven:
        terminal.say(
            f"unproven: session {session_id!r} has {verified.unproven} entries without a sum, "
            "as other programs write them: a change of their text cannot be found"
        )
