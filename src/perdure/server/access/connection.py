"""Connections that stay open: so many of each principal, and none longer than its token counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from perdure.server.access.keyring import Keyring
from perdure.server.access.principal import Grant
from perdure.server.problem import Refused


class Hold:
    """One connection. What ends it is called once, when its token counts no more."""

    def __init__(self, grant: Grant) -> None:
        self.grant = grant
        self._end: Callable[[], object] | None = None
        self._is_over = False

    def ends_by(self, end: Callable[[], object]) -> None:
        """Says what ends the connection; it is called at once if that is due already."""
        self._end = end
        if self._is_over:
            end()

    def end(self) -> None:
        """Ends it."""
        if not self._is_over:
            self._is_over = True
            if self._end is not None:
                self._end()


class Connections:
    """The open connections of all principals."""

    def __init__(self, keyring: Keyring, most: int) -> None:
        self._keyring = keyring
        self._most = most
        self._held: dict[str, dict[Hold, None]] = {}

    @contextmanager
    def hold(self, grant: Grant) -> Iterator[Hold]:
        """Counts a connection inside the block.

        Raises:
            Refused: 429, the principal has as many as it may.

        """
        held = self._held.setdefault(grant.principal, {})
        if len(held) >= self._most:
            raise Refused(
                429,
                "too_many_streams",
                f"{grant.principal!r} has {len(held)} streams open, which is the most: close one "
                "(one stream can have many sessions), or raise the setting max_streams",
                headers={"retry-after": "5"},
                max_streams=self._most,
            )
        hold = Hold(grant)
        held[hold] = None
        try:
            if not self._keyring.is_valid(grant):
                hold.end()
            yield hold
        finally:
            del held[hold]
            if not held and self._held.get(grant.principal) is held:
                del self._held[grant.principal]

    def end_invalid(self) -> None:
        """Ends those whose token was revoked, has expired, or grants something else now."""
        for held in tuple(self._held.values()):
            for hold in tuple(held):
                if not self._keyring.is_valid(hold.grant):
                    hold.end()
