"""`perdure export`: a session as a file of JSON lines, and its head; changes nothing."""

from __future__ import annotations

import argparse
import asyncio
import sys
from typing import Any

from perdure.cli.place import add_store_to, open_for_reading
from perdure.cli.terminal import Terminal
from perdure.interchange import Export, export_session, write_export


def add_to(verbs: Any) -> None:
    """Adds the verb to the command line."""
    verb = verbs.add_parser("export", help="write a session to a file, and print its head")
    verb.add_argument("session_id", metavar="SESSION")
    verb.add_argument("file", metavar="FILE", help="the file to make; - is standard output")
    verb.add_argument("--force", action="store_true", help="replace a file that is there")
    add_store_to(verb)
    verb.set_defaults(run=run)


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Writes the file whole or not at all; the head goes to standard output, or beside it."""
    asyncio.run(_export(options, terminal))
    return 0


async def _export(options: argparse.Namespace, terminal: Terminal) -> None:
    async with open_for_reading(options) as store:
        export = await export_session(store, options.session_id)
        if options.file == "-":
            await _say(export, terminal)
            sys.stdout.flush()
            sys.stderr.write(f"{export.head}\n")
        else:
            await write_export(export, options.file, replace=options.force)
            terminal.say(str(export.head))
        if export.verified.torn is not None:
            sys.stderr.write(
                f"perdure: not exported, since they are no whole entries: {export.verified.torn}\n"
            )


async def _say(export: Export, terminal: Terminal) -> None:
    async for line in export:
        if terminal.is_terminal:
            terminal.write(line.decode(errors="replace"))
        else:
            sys.stdout.buffer.write(line)
