"""Results that could not be handed over: kept until whoever asked for them has stored them.

A result is *unconfirmed* from when it is sent until the other side says that it is stored. When the
link is lost, unconfirmed results, and those of calls that still run, become *late* ones: they are
given to the next link, again and again, until it says that they are stored. So a late result can
come twice, and can be one that had arrived; who takes it must be able to tell. Bounded: the oldest
are dropped first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator

from msgspec import Struct

from perdure.entry import ToolResult
from perdure.runtimes.contract import CallOrigin
from perdure.runtimes.seen import size_of

log = logging.getLogger(__name__)

MAX_LATE = 1_000
MAX_LATE_CHARS = 256 << 20


class LateCall(Struct, frozen=True):
    """A result that came after its link was lost.

    It is what a runtime says: who stores it checks that the session's call was dispatched with this
    key, and has no result of its own.
    """

    origin: CallOrigin
    result: ToolResult


OnLate = Callable[[LateCall], Awaitable[None]]
"""Is told of a late result, and returns when it is stored; the same one may be told again."""


class LateResults:
    """What one life of a runtime has still to hand over."""

    def __init__(self) -> None:
        self._unconfirmed: dict[str, LateCall] = {}
        self._late: dict[str, LateCall] = {}
        self._changed = asyncio.Event()

    def sent(self, call: LateCall) -> None:
        """A result is on its way over the link."""
        if call.origin.key:
            self._unconfirmed[call.origin.key] = call
            for dropped in _drop_oldest(self._unconfirmed):
                log.warning("nobody said that a result is stored: %s", dropped.result.call_id)

    def missed(self, call: LateCall) -> None:
        """A result has no link to go over."""
        if not call.origin.key:
            return
        self._unconfirmed.pop(call.origin.key, None)
        self._late[call.origin.key] = call
        self._changed.set()
        for dropped in _drop_oldest(self._late):
            log.warning("a late result is dropped: %s", dropped.result.call_id)

    def stored(self, key: str) -> None:
        """The other side has this result; it is forgotten here."""
        self._unconfirmed.pop(key, None)
        self._late.pop(key, None)

    def lost(self) -> None:
        """The link is over: what was not confirmed is late."""
        for call in tuple(self._unconfirmed.values()):
            self.missed(call)

    async def next(self) -> LateCall:
        """A late result, as soon as there is one; it stays until it is `stored`.

        They come in turn, so that one which cannot be stored is in nobody's way.
        """
        while not self._late:
            self._changed.clear()
            await self._changed.wait()
        key = next(iter(self._late))
        late = self._late[key] = self._late.pop(key)
        return late


def _drop_oldest(kept: dict[str, LateCall]) -> Iterator[LateCall]:
    """Drops what does not fit; the newest one always does."""
    chars = sum(size_of(call.result) for call in kept.values())
    while len(kept) > 1 and (len(kept) > MAX_LATE or chars > MAX_LATE_CHARS):
        dropped = kept.pop(next(iter(kept)))
        chars -= size_of(dropped.result)
        yield dropped
