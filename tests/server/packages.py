"""Packages that are installed for a test: a module and its metadata in a folder on the path."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest


def install(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    name: str,
    version: str,
    plugins: Mapping[str, str],
    source: str,
) -> None:
    """Installs the module `name` with this source, and its entry points for plugins."""
    (folder / f"{name}.py").write_text(source)
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    entries = "\n".join(f"{each} = {value}" for each, value in plugins.items())
    (info / "entry_points.txt").write_text(f"[perdure.plugins]\n{entries}\n")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, name, raising=False)
