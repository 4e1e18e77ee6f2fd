"""A loop some of whose calls wait for a person, whatever stands around it says."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from fnmatch import fnmatchcase
from typing import Any

from perdure.entry import ToolCall
from perdure.loop import Allowed, Loop, LoopContext, LoopEvent, LoopFactory, Verdict, Waits


class _Context:
    """A run's context whose permission waits for a person where a pattern says so."""

    def __init__(self, context: LoopContext, patterns: Sequence[str]) -> None:
        self._context = context
        self._patterns = patterns

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    async def permit(self, call: ToolCall) -> Verdict:
        """What is said around the run, and a wait where it says yes and a pattern fits."""
        verdict = await self._context.permit(call)
        if not isinstance(verdict, Allowed):
            return verdict
        if not any(fnmatchcase(call.name, pattern) for pattern in self._patterns):
            return verdict
        return Waits(None, verdict.arguments if verdict.arguments != call.arguments else None)


class Approving:
    """A factory with patterns of approval around it; else it is the factory that it was given."""

    def __init__(self, factory: LoopFactory, patterns: Sequence[str]) -> None:
        self._factory = factory
        self._patterns = tuple(patterns)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._factory, name)

    def __call__(self) -> Loop:
        """The loop of one run."""
        loop = self._factory()

        def approving_loop(context: LoopContext, /) -> AsyncGenerator[LoopEvent, None]:
            around: Any = _Context(context, self._patterns)
            return loop(around)

        return approving_loop


def approving(factory: LoopFactory, patterns: Sequence[str]) -> LoopFactory:
    """The factory, whose calls of tools that a pattern fits wait for a person's approval."""
    return Approving(factory, patterns)
