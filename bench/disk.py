"""How many bytes on disk is a message of 1 KiB, and is a tool result of 64 KiB there once?

Stored one by one without durability, the store closed, and everything in its place counted by the
blocks that it takes: the log of SQLite is in the file by then. The reference is the JSON itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import perdure
from bench import report
from bench.reference import CONTENT, KINDS, NAMES, fleeting, messages
from perdure.codec import Entry, seal

SIZES = (256, 1024, 4096)
MESSAGES = 20_000
RESULTS = 500
RESULT_TEXT = "x" * 65_536
FRAME = 1024 - len(CONTENT)


def results(number: int) -> list[Entry]:
    """Calls of a tool, each with its result of 64 KiB."""
    made: list[Entry] = []
    for n in range(number):
        call = perdure.ToolCall(f"call-{n}", "read", {"path": "a.txt"})
        part = perdure.ToolResult(call.call_id, (perdure.Text(RESULT_TEXT),))
        for message in (perdure.Message("assistant", (call,)), perdure.Message("tool", (part,))):
            made.append(seal(message, made[-1].id if made else None))
    return made


def bytes_under(folder: Path) -> int:
    """What the files take on disk."""
    return sum(each.stat().st_blocks * 512 for each in folder.rglob("*") if each.is_file())


async def measure(folder: Path, rounds: int) -> report.Measured:
    figures: list[report.Figure] = []
    work = {f"a message of {size:,} B": messages(MESSAGES, size - FRAME) for size in SIZES}
    work["a 64 KiB tool result and its call"] = results(RESULTS)
    for kind in KINDS:
        for n, (what, entries) in enumerate(work.items()):
            place = folder / f"{kind}-{n}"
            place.mkdir()
            await store_one_by_one(kind, place, entries)
            size, taken = sum(len(entry.raw) for entry in entries), bytes_under(place)
            number = RESULTS if "result" in what else MESSAGES
            case = f"{NAMES[kind]}, {what}"
            bound = 1.25 if "1,024" in what or "64 KiB" in what else None
            ours, limit = taken / number, size / number
            figures.append(
                report.Figure(case, ours, "B", "its JSON", limit, taken / size, at_most=bound)
            )
    return figures, [
        f"one run of {MESSAGES:,} messages of each size and {RESULTS} results: sizes do not vary; "
        "a page of SQLite holds whole entries, so one of about half a page takes all of it"
    ]


async def store_one_by_one(kind: str, place: Path, entries: Sequence[Entry]) -> None:
    async with fleeting(kind, place / "store") as store:
        await store.create_session("s")
        for entry in entries:
            await store.append_entries("s", [entry])


if __name__ == "__main__":
    report.run("disk", __doc__ or "", measure)
