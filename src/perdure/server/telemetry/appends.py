"""Every append that this server makes, as those hear of it who count, trace and watch the disk.

What was appended happened, so this is where a model's answer and a tool's result are noticed: no
loop and no actor has to tell. A listener hears after the fact and decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, cast

from perdure import clock
from perdure.errors import (
    AppendUncertainError,
    PerdureError,
    SessionDeletedError,
    SessionNotFoundError,
    StoreError,
    StoreUnavailableError,
)
from perdure.server.journal import JournalStore
from perdure.store import Receipt

TRY_S = 2.0


class AppendListener(Protocol):
    """Hears of appends; synchronous, cheap, and never raises."""

    def stored(self, session_id: str, receipt: Receipt, seconds: float, /) -> None:
        """A batch is stored; so long it took."""

    def failed(self, session_id: str, error: PerdureError, /) -> None:
        """A batch was refused, or may be stored or not."""


class DiskWatch:
    """Whether the store takes what is appended, from the outcome of the last append.

    A conflict, a refused entry or a session that is gone says nothing of the store.
    """

    def __init__(self) -> None:
        self.refusal: str | None = None
        """Why the last append failed; None where it did not."""
        self._tried_at = 0.0

    def stored(self, session_id: str, receipt: Receipt, seconds: float, /) -> None:
        """The store takes appends."""
        self.refusal = None

    def failed(self, session_id: str, error: PerdureError, /) -> None:
        """The store may refuse all of them."""
        if isinstance(error, StoreUnavailableError | AppendUncertainError) or (
            type(error) is StoreError
        ):
            self.refusal = str(error)
            self._tried_at = clock.monotonic()

    async def try_again(self, store: JournalStore) -> None:
        """After a failed append: returns if the store can be written again.

        It is tried at most once in `TRY_S`, with a write that changes nothing. A store that has no
        such write is given the benefit of the doubt after `TRY_S`: the next append decides.

        Raises:
            StoreUnavailableError, AppendUncertainError: it still refuses.

        """
        if (refusal := self.refusal) is None:
            return
        if clock.monotonic() - self._tried_at < TRY_S:
            raise StoreUnavailableError(f"the last append failed: {refusal}")
        self._tried_at = clock.monotonic()
        if (try_write := getattr(store, "try_write", None)) is not None:
            await try_write()
        self.refusal = None


class _Gone(Protocol):
    def gone(self, session_id: str, /) -> None: ...


class GoneWatch:
    """Tells an observer of sessions that somebody else deleted while a turn ran here."""

    def __init__(self, observer: _Gone) -> None:
        self._observer = observer

    def stored(self, session_id: str, receipt: Receipt, seconds: float, /) -> None:
        """It is there."""

    def failed(self, session_id: str, error: PerdureError, /) -> None:
        """It may be gone."""
        if isinstance(error, SessionDeletedError | SessionNotFoundError):
            self._observer.gone(session_id)


class _ObservedStore:
    """A store whose appends are heard of; everything else is the store's own."""

    def __init__(self, store: JournalStore, listeners: Sequence[AppendListener]) -> None:
        self._store = store
        self._listeners = listeners

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def append_entries(self, session_id: str, *given: Any, **options: Any) -> Receipt:
        start = clock.monotonic()
        try:
            receipt = await self._store.append_entries(session_id, *given, **options)
        except PerdureError as error:
            for listener in self._listeners:
                listener.failed(session_id, error)
            raise
        seconds = clock.monotonic() - start
        for listener in self._listeners:
            listener.stored(session_id, receipt, seconds)
        return receipt


def observe_appends(store: JournalStore, listeners: Sequence[AppendListener]) -> JournalStore:
    """The same store, whose appends these hear of; the sequence may still grow."""
    return cast("JournalStore", _ObservedStore(store, listeners))
