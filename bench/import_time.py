"""How long `import perdure` takes in a fresh interpreter, against an empty interpreter.

    python -m bench.import_time [--rounds 20]

Every round starts both, one after the other; the figures are medians. The bound is 100 ms.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

SRC = Path(__file__).parents[1] / "src"
STATEMENTS = {
    "nothing": "pass",
    "msgspec": "import msgspec",
    "asyncio": "import asyncio",
    "perdure": "import perdure",
    "perdure.cli": "import perdure.cli",
}


def start(statement: str) -> float:
    """Seconds from the start of an interpreter to its end."""
    code = f"import sys; sys.path.insert(0, {str(SRC)!r}); {statement}"
    started = time.perf_counter()
    subprocess.run([sys.executable, "-I", "-c", code], check=True)
    return time.perf_counter() - started


def main() -> None:
    """Prints, for each statement, what it adds to an empty interpreter."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=20)
    rounds = options.parse_args().rounds
    taken: dict[str, list[float]] = {name: [] for name in STATEMENTS}
    for _ in range(rounds):
        for name, statement in STATEMENTS.items():
            taken[name].append(start(statement))
    bare = statistics.median(taken["nothing"])
    print(f"an empty interpreter: {bare * 1000:.0f} ms; on top of it:")
    for name, times in taken.items():
        if name != "nothing":
            print(f"  import {name:<12} {(statistics.median(times) - bare) * 1000:6.0f} ms")


if __name__ == "__main__":
    main()
