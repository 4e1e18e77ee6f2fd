"""What a benchmark found: a table that a person can read, and JSON beside it.

A figure is a ratio of two things that were measured in turns; where there is a target, it says
whether it is met. Bare numbers stand beside it to be understood, and not to be quoted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import sys
import tempfile
import textwrap
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True, slots=True)
class Figure:
    """One line: `ours`, what it is held against (`limit`), and the ratio of the two.

    The target is `at_least` or `at_most`; a figure with neither only informs.
    """

    case: str
    ours: float
    unit: str
    reference: str
    limit: float
    ratio: float
    at_least: float | None = None
    at_most: float | None = None

    @property
    def is_met(self) -> bool | None:
        """Whether the target is met; None where there is none."""
        if self.at_least is not None:
            return self.ratio >= self.at_least
        return None if self.at_most is None else self.ratio <= self.at_most

    @property
    def target(self) -> str:
        """The target, and whether it is met."""
        if self.is_met is None:
            return ""
        bound = f">= {self.at_least:g}" if self.at_least is not None else f"<= {self.at_most:g}"
        return f"{bound:<8} {'met' if self.is_met else 'MISSED'}"


def _number(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if value >= 1 else f"{value:.3f}"


def table(figures: Iterable[Figure]) -> str:
    """The figures, one a line, in columns."""
    rows = [
        (
            figure.case,
            f"{_number(figure.ours)} {figure.unit}".strip(),
            figure.reference,
            f"{_number(figure.limit)} {figure.unit}".strip() if figure.reference else "",
            f"{figure.ratio:.2f}" if figure.reference else "",
            figure.target,
        )
        for figure in figures
    ]
    rows.insert(0, ("", "ours", "held against", "", "ratio", "target"))
    widths = [max(len(row[n]) for row in rows) for n in range(6)]
    aligned = "<><>><"
    return "\n".join(
        "  ".join(f"{cell:{aligned[n]}{widths[n]}}" for n, cell in enumerate(row)).rstrip()
        for row in rows
    )


def machine() -> dict[str, object]:
    """What kind of machine this is."""
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cores": os.cpu_count(),
    }


def write(question: str, figures: Sequence[Figure], notes: Sequence[str]) -> Path:
    """Writes `results/<question>.json`."""
    RESULTS.mkdir(exist_ok=True)
    place = RESULTS / f"{question}.json"
    lines = [asdict(figure) | {"is_met": figure.is_met} for figure in figures]
    found = {"question": question, **machine(), "figures": lines, "notes": list(notes)}
    place.write_text(json.dumps(found, indent=1) + "\n")
    return place


Measured = tuple[Sequence[Figure], Sequence[str]]
"""The figures, and notes to be printed under the table."""


def run(question: str, text: str, measure: Callable[[Path, int], Awaitable[Measured]]) -> None:
    """The command line of one benchmark: `measure` gets an empty folder and the rounds to do."""
    parser = argparse.ArgumentParser(
        prog=f"python -m bench.{question}",
        description=text,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=7, help="medians are over these (default 7)")
    parser.add_argument("--folder", type=Path, help="on the disk to measure; default: temporary")
    options = parser.parse_args()
    print(f"\n{text.partition(chr(10))[0]}\n")
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        figures, notes = asyncio.run(_measured(measure(Path(name), options.rounds)))
    print(table(figures))
    for note in notes:
        print(textwrap.fill(note, 100, initial_indent="  ", subsequent_indent="  "))
    sys.stdout.flush()
    write(question, figures, notes)


async def _measured(measured: Awaitable[Measured]) -> Measured:
    return await measured
