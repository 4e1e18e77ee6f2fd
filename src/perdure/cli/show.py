"""`perdure show`: a session's transcript, its journal, or its tree; changes nothing."""

from __future__ import annotations

import argparse
import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from perdure.cli.place import add_store_to, open_for_reading
from perdure.cli.render import body, call_text, local_time, summary_line, title
from perdure.cli.terminal import Terminal, one_line
from perdure.cli.turns import told_on
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
    form.add_argument(
        "--everything",
        action="store_true",
        help="every entry in append order, facts and what the model is told among them",
    )
    form.add_argument("--leaf", metavar="ENTRY", help="the transcript of another branch")
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
    tree = Tree(entries, session_id=options.session_id)
    if options.everything:
        lines = journal_lines(entries)
    elif options.tree:
        lines = tree_lines(tree)
    else:
        lines = transcript_lines(tree, entries, options.session_id, leaf_id=options.leaf)
    for line in lines:
        terminal.say(line)
    return 0


async def _load(options: argparse.Namespace) -> Sequence[StoredEntry]:
    async with open_for_reading(options) as store:
        return await store.load_entries(options.session_id)


def transcript_lines(
    tree: Tree, entries: Sequence[StoredEntry], session_id: str, *, leaf_id: str | None = None
) -> Iterator[str]:
    """The transcript with what became of its turns, an empty line between, and what is open.

    Raises:
        EntryNotFoundError: `leaf_id` is no tree entry.

    """
    path = tree.path(tree.leaf_id if leaf_id is None else leaf_id)
    path_ids = {entry.id for entry in path}
    seqs = {stored.id: stored.seq for stored in entries}
    told = deque(told_on(entries, path_ids, session_id))
    is_first = True
    for entry in transcript_view(path):
        while told and told[0][0] < seqs[entry.id]:
            yield from _apart(told.popleft()[1], is_first=is_first)
            is_first = False
        yield from _apart(f"── {title(entry)} · {local_time(entry.created_at)}", is_first=is_first)
        is_first = False
        if said := body(entry):
            yield said
    for _, line in told:
        yield from _apart(line, is_first=is_first)
        is_first = False
    for call in open_calls(path):
        yield ""
        yield f"(no result yet, or interrupted: {call_text(call.name, call.arguments)})"


def _apart(line: str, *, is_first: bool) -> Iterator[str]:
    if not is_first:
        yield ""
    yield line


def journal_lines(entries: Sequence[StoredEntry]) -> Iterator[str]:
    """Every entry, whole, with its `seq`."""
    for number, stored in enumerate(entries):
        entry = stored.entry
        yield from _apart(
            f"── {stored.seq} · {title(entry)} · {local_time(entry.created_at)}",
            is_first=number == 0,
        )
        if said := body(entry):
            yield said


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
