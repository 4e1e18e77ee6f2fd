"""Loops whose runs are known to the log and to traces while they go on."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, cast

from perdure.loop import Loop, LoopContext, LoopEvent, LoopFactory
from perdure.server.session.port import Loops

Enter = Callable[[LoopContext], None]
"""Called in the task of a run, before its loop is."""


class _ObservedFactory:
    """A loop factory, with all that was said of it."""

    def __init__(self, factory: LoopFactory, enters: Sequence[Enter]) -> None:
        self._factory = factory
        self._enters = enters

    def __getattr__(self, name: str) -> Any:
        return getattr(self._factory, name)

    def __call__(self) -> Loop:
        loop = self._factory()

        def observed(context: LoopContext, /) -> AsyncGenerator[LoopEvent, None]:
            if context.purpose == "turn":
                for enter in self._enters:
                    enter(context)
            return loop(context)

        return observed


class _ObservedLoops:
    def __init__(self, loops: Loops, enters: Sequence[Enter]) -> None:
        self._loops = loops
        self._enters = enters

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loops, name)

    def factory(self, name: str, /) -> LoopFactory:
        return _ObservedFactory(self._loops.factory(name), self._enters)


def observe_loops(loops: Loops, enters: Sequence[Enter]) -> Loops:
    """The same loops; each run is told to these first. The sequence may still grow."""
    return cast("Loops", _ObservedLoops(loops, enters))
