"""Searches files for a pattern. A program of its own, not imported by others.

    python -I -S search_program.py ROOT QUERY

It begins in the folder to search, which must be in ROOT, and follows no link. QUERY is JSON:
`pattern`, `literal`, `ignore_case`, `glob`, `only`, `prefix`, `max_matches`; `only` is null, or the
one file of the folder to search. It prints `path:line:text` for each match. A pattern can take for
ever; so this is a process, which can be killed, and not a thread, which cannot.
"""

import fnmatch
import json
import os
import re
import stat
import sys
from collections.abc import Iterator
from typing import Any, BinaryIO, TextIO

MAX_LINE_CHARS = 2_000
MAX_LINE_BYTES = 16 << 20
LOOK_BYTES = 8192


def main() -> int:
    """Searches, and prints; 1 where it cannot."""
    root, query = sys.argv[1], json.loads(sys.argv[2])
    with open(1, "w", encoding="utf-8", errors="replace", closefd=False) as out:
        return search(root, query, out)


def search(root: str, query: dict[str, Any], out: TextIO) -> int:
    """Prints each match to `out`."""
    here = os.getcwd()
    if here != root and not here.startswith(root.rstrip("/") + "/"):
        out.write("the folder is no longer in the workspace\n")
        return 1
    pattern = re.escape(query["pattern"]) if query["literal"] else query["pattern"]
    try:
        wanted = re.compile(pattern, re.IGNORECASE if query["ignore_case"] else 0)
    except (re.error, OverflowError, RecursionError) as error:
        out.write(f"the pattern is not valid: {error}\n")
        return 1
    left = query["max_matches"]
    for path, descriptor in files(query["glob"], query["only"]):
        with os.fdopen(descriptor, "rb") as file:
            head = file.read(LOOK_BYTES)
            if b"\0" in head:
                continue
            file.seek(0)
            for number, raw in lines(file):
                line = raw.decode("utf-8", "replace").rstrip("\r\n")
                if not wanted.search(line):
                    continue
                if not left:
                    out.write("[… there are more: narrow the search]\n")
                    return 0
                left -= 1
                shown = line if len(line) <= MAX_LINE_CHARS else line[:MAX_LINE_CHARS] + "…"
                out.write(f"{query['prefix']}{path}:{number}:{shown}\n")
    return 0


def lines(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Each line and its number; one that is longer than can be held comes in pieces."""
    number = 1
    while raw := file.readline(MAX_LINE_BYTES):
        yield number, raw
        number += raw.endswith(b"\n")


def files(glob: str, only: "str | None") -> Iterator[tuple[str, int]]:
    """Each regular file under this folder that the glob matches, opened, in order of names."""
    if only is not None:
        here = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        if (opened := opened_file(only, here)) is not None:
            yield only, opened
        return
    for folder, folders, names, descriptor in os.fwalk(".", follow_symlinks=False):
        folders[:] = sorted(name for name in folders if name != ".git")
        for name in sorted(names):
            path = os.path.normpath(os.path.join(folder, name))
            if not fnmatch.fnmatchcase(path if "/" in glob else name, glob):
                continue
            if (opened := opened_file(name, descriptor)) is not None:
                yield path, opened


def opened_file(name: str, folder: int) -> "int | None":
    """The regular file of that name in an open folder; None where there is none, or a link."""
    try:
        if not stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            return None
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        opened = os.open(name, flags, dir_fd=folder)
    except OSError:
        return None
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        os.close(opened)
        return None
    return opened


if __name__ == "__main__":
    sys.exit(main())
