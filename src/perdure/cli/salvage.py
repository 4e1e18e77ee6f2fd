"""`perdure salvage`: what is sound of a damaged session, as a new one; the old one stays."""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

from perdure.cli.place import (
    add_store_to,
    open_for_reading,
    open_for_writing,
    reading_store,
)
from perdure.cli.terminal import Terminal, one_line
from perdure.fact import Gap
from perdure.salvage import Salvaged, salvage_session


def add_to(verbs: Any) -> None:
    """Adds the verb to the command line."""
    verb = verbs.add_parser("salvage", help="copy what is sound of a damaged session to a new one")
    verb.add_argument("session_id", metavar="SESSION", help="its id, or its file's name, from ls")
    verb.add_argument("new_id", metavar="NEW", help="the id of the new session")
    verb.add_argument("--into", metavar="URL", help="the store of the new session (the same one)")
    add_store_to(verb)
    verb.set_defaults(run=run)


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Prints each gap, and how many entries the new session has of the old one."""
    salvaged = asyncio.run(_salvage(options))
    for gap in salvaged.gaps:
        terminal.say(f"gap: {_said(gap)}")
    count = f"{salvaged.kept} {'entry' if salvaged.kept == 1 else 'entries'}"
    gaps = f"{len(salvaged.gaps)} gap{'' if len(salvaged.gaps) == 1 else 's'}"
    terminal.say(f"salvaged: {one_line(salvaged.session.id)} has {count} and {gaps}")
    return 0


async def _salvage(options: argparse.Namespace) -> Salvaged:
    names = options.session_id, options.new_id
    async with open_for_reading(options) as store:
        if options.into is None:
            return await salvage_session(store, *names)
        async with reading_store(open_for_writing(options.into), options.into) as into:
            return await salvage_session(store, *names, into=into)


def _said(gap: Gap) -> str:
    lost = f" ({gap.lost_bytes} bytes)" if gap.lost_bytes else ""
    return f"{gap.place}{lost}: {gap.detail}"
