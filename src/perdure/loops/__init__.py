"""Loops: one module per kind of inner agent, each imported when it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perdure.loops.shell import Shell

__all__ = ["Shell"]

_HOMES = {"Shell": "perdure.loops.shell"}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
