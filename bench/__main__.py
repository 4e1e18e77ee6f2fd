"""Asks every question and prints what came of the targets.

    python -m bench [--rounds N] [--folder DIR] [QUESTION ...]

Each benchmark runs in a process of its own and writes `bench/results/<question>.json`; the
summary goes to `bench/results/summary.json`. Under ten minutes in all.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

from bench.report import RESULTS, Figure, machine, table

QUESTIONS = (
    *("append", "opening", "many", "disk", "big", "waking"),
    *("fanout", "busy", "first", "history", "peers"),
)
OTHERS = ("server", "import_time")
"""Benchmarks with tables of their own, and no targets."""


def ask(question: str, arguments: list[str]) -> bool:
    """Runs one benchmark; whether it came to its end."""
    command = [sys.executable, "-m", f"bench.{question}", *arguments]
    return subprocess.run(command, cwd=Path(__file__).parents[1]).returncode == 0


def figures_of(question: str) -> list[Figure]:
    """What it wrote."""
    lines = json.loads((RESULTS / f"{question}.json").read_text())["figures"]
    return [
        Figure(**{name: value for name, value in line.items() if name != "is_met"})
        for line in lines
    ]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("questions", nargs="*", metavar="QUESTION", help="default: all of them")
    parser.add_argument("--rounds")
    parser.add_argument("--folder")
    options = parser.parse_args()
    arguments = [f"--folder={options.folder}"] if options.folder else []
    rounds = [f"--rounds={options.rounds}"] if options.rounds else []
    start = time.monotonic()
    asked = options.questions or [*QUESTIONS, *OTHERS]
    failed = [each for each in asked if not ask(each, _accepted(each, arguments, rounds))]
    judged = [
        figure
        for question in asked
        if question in QUESTIONS and question not in failed
        for figure in figures_of(question)
        if figure.is_met is not None
    ]
    taken = time.monotonic() - start
    print(f"\nThe targets, after {taken:.0f} s\n")
    print(table(sorted(judged, key=lambda figure: bool(figure.is_met))))
    summary = {
        **machine(),
        "seconds": round(taken),
        "failed": failed,
        "met": sum(bool(figure.is_met) for figure in judged),
        "missed": [figure.case for figure in judged if not figure.is_met],
    }
    (RESULTS / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    print(f"\n{summary['met']} of {len(judged)} met; all figures are in bench/results/")
    if failed:
        print(f"did not come to their end: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _accepted(question: str, folder: list[str], rounds: list[str]) -> list[str]:
    return [] if question == "import_time" else [*folder, *rounds]


if __name__ == "__main__":
    sys.exit(main())
