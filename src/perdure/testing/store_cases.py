"""What the cases of a contract share: the store to open, and entries that are always the same."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

import pytest

from perdure.codec import Entry, StoredEntry, seal
from perdure.entry import Message, Text
from perdure.errors import SessionNotFoundError
from perdure.store import Session, Store

STAMP = "2026-01-02T03:04:05.678901Z"
MADE_AT = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)


def raw_entry(entry_id: str, fields: str, entry_type: str = "message") -> bytes:
    """The bytes of an entry as another program might have written them."""
    head = f'{{"id":"{entry_id}", "type":"{entry_type}","created_at":"{STAMP}"'
    return f"{head}{',' if fields else ''}{fields}}}".encode()


def placed(entry_id: str, parent_id: str | None, content: str = "hello") -> Entry:
    """A sealed user message under this parent: the same arguments give the same bytes."""
    message = Message("user", (Text(content),), id=entry_id, created_at=MADE_AT)
    return seal(message, parent_id)


def messages(count: int, prefix: str = "m") -> list[Entry]:
    """Sealed user messages with the ids `prefix`0, `prefix`1, … in a chain, always the same."""
    return [
        placed(f"{prefix}{n}", f"{prefix}{n - 1}" if n else None, f"{prefix} says {n}")
        for n in range(count)
    ]


def seqs(entries: Sequence[StoredEntry]) -> list[int]:
    """The `seq`s of these entries."""
    return [stored.seq for stored in entries]


def raws(entries: Sequence[StoredEntry | Entry]) -> list[bytes]:
    """The bytes of these entries."""
    return [entry.raw for entry in entries]


class OpenStore(Store, Protocol):
    """What a suite is given: a store that is closed when it is left."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


def session_verbs(store: Store, session_id: str) -> list[Callable[[], Awaitable[object]]]:
    """`load_session`, if the store has it: it is no verb of the contract, and keeps to it."""
    load_session = getattr(store, "load_session", None)
    return [] if load_session is None else [lambda: load_session(session_id)]


async def check_session(store: Store, session: Session) -> None:
    """Checks that the store has this session, and says so where it can say it."""
    await store.load_entries(session.id)
    for verb in session_verbs(store, session.id):
        assert await verb() == session


async def check_no_session(store: Store, session_id: str) -> None:
    """Checks that the store has no session of this id."""
    for verb in (lambda: store.load_entries(session_id), *session_verbs(store, session_id)):
        with pytest.raises(SessionNotFoundError):
            await verb()


class StoreCases(ABC):
    """How to open a store; what a contract's cases are methods of."""

    durable = False
    """Whether a store that is opened again at the same path shows what was stored there."""

    @abstractmethod
    async def open_store(self, path: Path) -> OpenStore:
        """Opens the store that lives under `path`, an empty folder at first."""

    async def open_again(self, path: Path) -> OpenStore:
        """Opens a store that was closed once more; skips the case where nothing outlives it."""
        if not self.durable:
            pytest.skip("this store keeps nothing when it is closed")
        return await self.open_store(path)
