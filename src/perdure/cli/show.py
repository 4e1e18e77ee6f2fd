"""`perdure show`: a session's transcript, its raw entries, or its tree; changes nothing."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

from perdure.cli.place import add_store_to, open_for_reading
from perdure.cli.render import body, call_text, local_time, summary_line, title
from perdure.cli.terminal import Terminal, one_line
from perdure.codec import StoredEntry
from perdure.tree import Tree
from perdure.view import open_calls, transcript_view

_LINE = 72


def add_to(verbs: Any) -> None:
    """Adds the verb to the command line."""
    verb = verbs.add_parser("show", help="print a session")
    verb.add_argument("session_id", metavar="SESSION")
    form = verb.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="every entry as it is stored, one a line")
    form.add_argument("--tree", action="store_true", help="all branches; * marks the leaf")
    add_store_to(verb)
    verb.set_defaults(run=run)


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Prints the path to the leaf as a person reads it, or what was asked for instead."""
    entries = asyncio.run(_load(options))
    if options.json:
        for stored in entries:
            # White space between tokens is all that a newline can be in JSON.
            terminal.say(stored.raw.replace(b"\n", b" ").decode(errors="replace"))
        return 0
    lines = tree_lines if options.tree else transcript_lines
    for line in lines(Tree(entries, session_id=options.session_id)):
        terminal.say(line)
    return 0


async def _load(options: argparse.Namespace) -> Sequence[StoredEntry]:
    async with open_for_reading(options) as store:
        return await store.load_entries(options.session_id)


def transcript_lines(tree: Tree) -> Iterator[str]:
    """The transcript, an empty line between entries, and what was left open."""
    path = tree.path(tree.leaf_id)
    for number, entry in enumerate(transcript_view(path)):
        if number:
            yield ""
        yield f"── {title(entry)} · {local_time(entry.created_at)}"
        if said := body(entry):
            yield said
    for call in open_calls(path):
        yield ""
        yield f"(no result yet, or interrupted: {call_text(call.name, call.arguments)})"


def tree_lines(tree: Tree) -> Iterator[str]:
    """A line for each tree entry; a chain stays in its column, branches are indented."""
    stack = [(root, "", "") for root in reversed(tree.children(None))]
    while stack:
        entry_id, first, rest = stack.pop()
        mark = "* " if entry_id == tree.leaf_id else "  "
        yield f"{mark}{first}{summary_line(tree[entry_id], _LINE)}  [{one_line(entry_id)}]"
        children = tree.children(entry_id)
        if len(children) == 1:
            stack.append((children[0], rest, rest))
            continue
        for index, child in reversed(list(enumerate(children))):
            last = index == len(children) - 1
            stack.append(
                (child, rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  "))
            )
