"""Holds what is committed to account: no registry's host, no machine's path, no stray file."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MAX_BYTES = 1_000_000

# Written apart, so that this file does not find itself.
HOSTS = ["py" + "pi.org", "python" + "hosted.org", "npm" + "js.org", "npm" + "js.com"]
HOSTS += [
    "yarn" + "pkg.com",
    "npm" + "mirror.com",
    "g" + "hcr.io",
    "docker" + ".io",
    "crates" + ".io",
]
FOLDERS = ["wo" + "rk", "ro" + "ot", r"home/\w+", r"Users/\w+", "opt/(?:wheels|py" + "pi)"]

REGISTRY = re.compile("|".join(re.escape(host) for host in HOSTS))
MACHINE = re.compile(r"(?<![\w.%~/-])/(?:" + "|".join(FOLDERS) + r")(?![\w.-])")
STRAY = re.compile(
    r"(^|/)(\.venv|node_modules|__pycache__|dist|build|static|\.env|\.DS_Store)(/|$)"
    r"|\.(pyc|whl|log|db|db-wal|db-shm|orig|rej|swp)$"
)


def committed() -> list[str]:
    """The paths that git tracks."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return [path for path in listed.stdout.split("\0") if path]


def complaints(path: str) -> list[str]:
    """What is wrong with one committed file."""
    is_golden = path.startswith("tests/golden/")  # released bytes, kept for ever
    found = ["a generated or private file"] if STRAY.search(path) and not is_golden else []
    file = ROOT / path
    if not file.is_file():
        return found
    data = file.read_bytes()
    if len(data) > MAX_BYTES:
        found.append(f"{len(data)} bytes")
    for number, line in enumerate(data.decode("utf-8", "replace").split("\n"), 1):
        if REGISTRY.search(line):
            found.append(f"line {number} names a package registry")
        if MACHINE.search(line):
            found.append(f"line {number} names a path of somebody's machine")
    return found


def main() -> int:
    """Prints each complaint; 1 if there is one."""
    found = [f"{path}: {what}" for path in committed() for what in complaints(path)]
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
