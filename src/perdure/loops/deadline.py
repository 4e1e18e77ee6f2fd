"""A time limit over a run, for each thing in it that is waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from perdure.clock import monotonic
from perdure.errors import LoopError

T = TypeVar("T")


class Deadline:
    """The end of `limit_s` seconds from now; None: there is none."""

    def __init__(self, limit_s: float | None) -> None:
        self._limit_s = limit_s
        self._end = None if limit_s is None else monotonic() + limit_s

    async def meet(self, awaitable: Awaitable[T]) -> T:
        """What it gives, if it does so in time; else it is cancelled.

        Raises:
            LoopError: the time is over.

        """
        if self._end is None:
            return await awaitable
        limit = asyncio.timeout(max(self._end - monotonic(), 0))
        try:
            async with limit:
                return await awaitable
        except TimeoutError:
            if limit.expired():
                raise LoopError(
                    f"the run took longer than {self._limit_s:g} s (max_run_s) and was ended; what "
                    "it did is stored. Send a message to let it go on"
                ) from None
            raise
