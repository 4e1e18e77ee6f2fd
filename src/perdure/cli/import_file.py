"""`perdure import`: a session of an exported file's entries, checked whole before it is stored."""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from perdure.cli.place import add_store_to, open_for_writing
from perdure.cli.terminal import Terminal, one_line
from perdure.interchange import import_session
from perdure.store import read_head


def add_to(verbs: Any) -> None:
    """Adds the verb to the command line."""
    verb = verbs.add_parser("import", help="make a session of an exported file")
    verb.add_argument("file", metavar="FILE", help="what was exported; - is standard input")
    verb.add_argument("--as", metavar="NEW_ID", dest="new_id", help="the id to give it")
    verb.add_argument("--head", metavar='"SEQ SUM"', help="refuse a file of another log than this")
    add_store_to(verb)
    verb.set_defaults(run=run)


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Stores the session in one step, and says under which id."""
    with _file(options.file) as path:
        terminal.say(asyncio.run(_import(options, path)))
    return 0


async def _import(options: argparse.Namespace, path: str) -> str:
    head = None if options.head is None else read_head(options.head)
    async with open_for_writing(options.store) as store:
        session = await import_session(store, path, new_id=options.new_id, head=head)
    return f"imported: {one_line(session.id)}"


@contextmanager
def _file(name: str) -> Iterator[str]:
    """The file; standard input becomes one, since it is checked before it is stored."""
    if name != "-":
        yield name
        return
    with tempfile.NamedTemporaryFile(prefix="perdure-import-") as copy:
        shutil.copyfileobj(sys.stdin.buffer, copy)
        copy.flush()
        yield os.path.abspath(copy.name)
