"""The Store contract: three verbs, and what they promise.

- An append is *atomic* (after a crash the whole batch is there or none of it), *durable* when it
  returns, and *idempotent* by entry id: the same batch of the same bytes stores nothing and
  returns the same receipt. That is checked before `expected_seq`.
- Each stored entry has a `seq` (1, 2, 3, no gap, never reused) and a running sum beside it.
- `perdure.testing.StoreContract` is the suite that every store passes.

What stores share (ids, headers, batches against what is there) is here; where bytes go is theirs.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from types import TracebackType
from typing import Literal, Protocol, Self, TypeVar, cast, runtime_checkable

import msgspec
from msgspec import Struct

from perdure import clock
from perdure.codec import Draft, Entry, StoredEntry, encode, first_sum
from perdure.completion import Told
from perdure.errors import (
    AppendConflictError,
    AppendRejectedError,
    ConfigurationError,
    FormatTooNewError,
    InvalidSessionIdError,
    SessionDeletedError,
)
from perdure.fact import SessionOwned

FORMAT = 1
"""The number of the log format that this version writes."""

Kind = Literal["session", "routine", "workflow"]
"""What a journal is the journal of; an id is unique within its kind."""

MAX_SESSION_ID_BYTES = 512

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_HEAD = re.compile(r"(0|[1-9][0-9]{0,18}) +([0-9a-fA-F]{32})")


def check_session_id(session_id: object) -> str:
    """Returns the id unchanged if it is one: 1 to 512 UTF-8 bytes, compared byte for byte.

    Raises:
        InvalidSessionIdError: it is not a string, empty, too long, '.' or '..', or has control
            characters or lone surrogates. The same on every verb and store.
    """
    if not isinstance(session_id, str):
        raise InvalidSessionIdError(session_id, f"it is a {type(session_id).__name__}")
    return _checked(session_id)


@lru_cache(maxsize=1024)
def _checked(session_id: str) -> str:
    try:
        size = len(session_id.encode())
    except UnicodeEncodeError:
        raise InvalidSessionIdError(session_id, "it has a lone surrogate") from None
    if size == 0:
        raise InvalidSessionIdError(session_id, "it is empty")
    if size > MAX_SESSION_ID_BYTES:
        raise InvalidSessionIdError(session_id, f"it has {size} bytes")
    if session_id in {".", ".."}:
        raise InvalidSessionIdError(session_id, f"it is {session_id!r}")
    if _CONTROL.search(session_id):
        raise InvalidSessionIdError(session_id, "it has control characters")
    return session_id


class _SessionHeader(Struct, tag="session_init", tag_field="type"):
    id: str
    parent_id: str | None
    created_at: datetime
    incarnation: str
    format: int


@dataclass(frozen=True, slots=True)
class Session:
    """A session's identity. `incarnation` is random: a new session of a deleted id has another.

    `header` is its JSON, the first line of a JSON-lines journal and the start of the running sum;
    where it is not given it is that of the other fields.
    """

    id: str
    parent_id: str | None
    created_at: datetime
    incarnation: str
    header: bytes = field(default=b"", repr=False)
    format: int = FORMAT

    def __post_init__(self) -> None:
        if not self.header:
            fields = _SessionHeader(
                self.id, self.parent_id, self.created_at, self.incarnation, self.format
            )
            object.__setattr__(self, "header", encode(fields))

    @property
    def first_sum(self) -> bytes:
        """The running sum before the first entry."""
        return first_sum(self.header)

    def check_writable(self) -> None:
        """Raises FormatTooNewError if a newer version wrote this log: it can be read only."""
        if self.format > FORMAT:
            raise FormatTooNewError(f"session {self.id!r}", self.format, FORMAT)

    def check_incarnation(self, incarnation: str | None) -> None:
        """Raises SessionDeletedError if the caller holds another incarnation than this one."""
        if incarnation is not None and incarnation != self.incarnation:
            raise SessionDeletedError(self.id, incarnation)


def new_session(session_id: str, parent_id: str | None = None) -> Session:
    """A session that is about to be created: now, with a new incarnation.

    Raises:
        InvalidSessionIdError: `session_id` or `parent_id` is not one.
    """
    check_session_id(session_id)
    if parent_id is not None:
        check_session_id(parent_id)
    return Session(session_id, parent_id, clock.now(), clock.new_id())


def read_session(header: bytes) -> Session:
    """The session of its header's bytes. Unknown fields stay in `header`.

    Raises:
        ValueError: these bytes are not the header of a session.
    """
    try:
        header.decode()
        fields = msgspec.json.decode(header, type=_SessionHeader)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"not the header of a session: {error}") from error
    return Session(
        fields.id, fields.parent_id, fields.created_at, fields.incarnation, header, fields.format
    )


class Receipt(Struct, frozen=True, gc=False):
    """Proof that these entries are stored, durably, with these `seq`s.

    An append of nothing has a receipt without entries, whose `last_seq` is where the log stands.
    """

    entries: tuple[StoredEntry, ...]
    first_seq: int
    last_seq: int


def receipt_of(entries: Sequence[StoredEntry], last_seq: int = 0) -> Receipt:
    """The receipt of stored entries; of none, at `last_seq`."""
    if not entries:
        return Receipt((), last_seq + 1, last_seq)
    return Receipt(tuple(entries), entries[0].seq, entries[-1].seq)


def owner_after(entries: Iterable[Entry]) -> str | None:
    """The principal whose session it is after these entries; None where they do not say."""
    owner = None
    for entry in entries:
        if entry.type == "session_owned":
            view = entry.view
            owner = view.principal if isinstance(view, SessionOwned) else None
    return owner or None


@dataclass(frozen=True, slots=True)
class Page:
    """Consecutive entries of a journal, ascending; `last_seq` is where the journal stands.

    `incarnation` says of which session of this id: it may have been made anew since the last page.
    """

    entries: tuple[StoredEntry, ...]
    has_more: bool
    last_seq: int
    incarnation: str


@dataclass(frozen=True, slots=True)
class PathPage:
    """Consecutive entries of a path, root side first; `has_more`: the path goes on to the root."""

    entries: tuple[StoredEntry, ...]
    has_more: bool


@dataclass(frozen=True, slots=True)
class Look:
    """What can be said of a session without reading its entries.

    `damage` says why its header cannot be read; of `session` only id and incarnation are true then.
    """

    session: Session
    last_seq: int
    summary: bytes | None
    damage: str | None = None


@dataclass(frozen=True, slots=True)
class LookPage:
    """A page of a listing; `next` is the `after` of the next page, None on the last."""

    sessions: tuple[Look, ...]
    next: str | None


@dataclass(frozen=True, slots=True)
class Head:
    """Where a log stands and its running sum there: who keeps it can tell any change before it."""

    seq: int
    sum: bytes

    def __str__(self) -> str:
        return f"{self.seq} {self.sum.hex()}"


def read_head(text: str) -> Head:
    """The head of its text, `SEQ SUM`.

    Raises:
        ConfigurationError: it is not the text of a head.
    """
    found = _HEAD.fullmatch(text.strip())
    if found is None:
        raise ConfigurationError(
            f"{text!r} is not a head: that is a seq and a sum of 32 hexadecimal digits, "
            '"12 0123456789abcdef0123456789abcdef", as perdure export prints it'
        )
    return Head(int(found[1]), bytes.fromhex(found[2].lower()))


@dataclass(frozen=True, slots=True)
class Verified:
    """A log that was read to its last byte without finding damage.

    `torn`: what stands after its end and was never acknowledged, unless damage made it look so.
    `unproven`: how many entries have no sum to hold them against, since other programs wrote them.
    """

    head: Head
    torn: str | None = None
    unproven: int = 0


@runtime_checkable
class Store(Protocol):
    """What the durable agent needs of a store. Safe to call from many tasks of one event loop."""

    async def create_session(
        self,
        session_id: str,
        *,
        parent_id: str | None = None,
        entries: Sequence[Draft | Entry] = (),
    ) -> Session:
        """Creates the session with these entries, in one atomic and durable step.

        Raises:
            InvalidSessionIdError: not an id; nothing stored.
            SessionExistsError: the id is taken; nothing stored.
            AppendRejectedError: an entry is not valid; nothing stored, no session either.
            AppendUncertainError: may be stored: try to load it.
            StoreUnavailableError: nothing was attempted.
        """
        ...

    async def load_entries(self, session_id: str, *, after: int = 0) -> Sequence[StoredEntry]:
        """The entries with a `seq` above `after`, in order; none where the log ends before.

        Raises:
            InvalidSessionIdError, SessionNotFoundError, StoreUnavailableError.
            JournalCorruptError: the log is damaged; never a silently shorter conversation.
        """
        ...

    async def append_entries(
        self,
        session_id: str,
        entries: Sequence[Draft | Entry],
        *,
        expected_seq: int | None = None,
        incarnation: str | None = None,
    ) -> Receipt:
        """Appends the batch atomically and durably; the same batch again changes nothing.

        With `expected_seq` only if the log stands there; with `incarnation` only to that one.

        Raises:
            InvalidSessionIdError, SessionNotFoundError: nothing stored.
            SessionDeletedError: that incarnation is gone; nothing stored.
            AppendRejectedError: an entry is not valid, or an id is taken; nothing stored.
            AppendConflictError: the log stands elsewhere; nothing stored.
            AppendUncertainError: may be stored: reload and compare ids.
            FormatTooNewError, JournalCorruptError, StoreUnavailableError: nothing stored.
        """
        ...


class Asking(Store, Protocol):
    """A store that can be asked to append without a coroutine; an agent then does that.

    Its `ask_append` is marked with `begins`.
    """

    def ask_append(
        self, session_id: str, batch: Sequence[Entry], *, incarnation: str | None = None
    ) -> Told[Receipt]:
        """Begins `append_entries` of a batch that is sealed; what comes back tells its outcome.

        What is wrong with the call itself is raised at once; nothing is stored then.
        """
        ...


_Ask = TypeVar("_Ask", bound=Callable[..., Told[Receipt]])


def begins(append_entries: Callable[..., Awaitable[Receipt]]) -> Callable[[_Ask], _Ask]:
    """Marks an `ask_append` as what begins this `append_entries`, and no other in its place."""

    def mark(ask: _Ask) -> _Ask:
        ask.__dict__["begins"] = append_entries
        return ask

    return mark


def appending(store: Store) -> Callable[..., Awaitable[Receipt] | Told[Receipt]]:
    """How to append to it: `ask_append`, if that begins the `append_entries` that it has now.

    A subclass may have another one, and a class or an object may have been given another one.
    """
    kind = type(store)
    begun = getattr(getattr(kind, "ask_append", None), "begins", store)
    if begun is kind.append_entries and "append_entries" not in getattr(store, "__dict__", ()):
        return cast("Asking", store).ask_append
    return store.append_entries


class SessionStore(Store, Protocol):
    """A Store that also says what a session is, and is closed in the end: `open_store` gives one.

    An agent on a store that does not say it has no incarnation to hold on to of a session that was
    there before: where it was deleted and made anew meanwhile, the store has to tell.
    """

    async def load_session(self, session_id: str) -> Session:
        """The session of this id.

        Raises:
            InvalidSessionIdError, SessionNotFoundError, JournalCorruptError, StoreUnavailableError.
        """
        ...

    async def close(self) -> None:
        """Waits for appends under way and frees everything; idempotent."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class ClosingStore:
    """Makes a store an async context manager that closes it on leaving."""

    async def close(self) -> None:
        """Frees everything; idempotent."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


def place_batch(
    session: Session,
    entries: Sequence[Entry],
    known: Mapping[str, StoredEntry],
    *,
    last_seq: int,
    expected_seq: int | None,
    incarnation: str | None,
) -> Receipt | None:
    """Holds a sealed batch against a log; the one place where idempotency is decided.

    `known` has the stored entries of those ids of the batch that the log has already. Returns the
    receipt of a batch that is stored already (or is empty), None if it has to be appended now.

    Raises:
        SessionDeletedError, FormatTooNewError, AppendRejectedError, AppendConflictError.
    """
    if incarnation != session.incarnation:
        session.check_incarnation(incarnation)
    session.check_writable()
    if known and (stored := [known[entry.id] for entry in entries if entry.id in known]):
        for entry, old in zip((e for e in entries if e.id in known), stored, strict=True):
            if entry.raw != old.raw:
                raise AppendRejectedError(
                    f"entry id {entry.id!r} is taken in session {session.id!r}, at seq {old.seq}, "
                    "by other bytes; to append the same content again make a new entry"
                )
        first = stored[0].seq
        if len(stored) < len(entries) or [old.seq for old in stored] != list(
            range(first, first + len(stored))
        ):
            raise AppendRejectedError(
                f"the batch overlaps in part with what session {session.id!r} has: "
                "a retry appends exactly the same batch"
            )
        return receipt_of(stored)
    if expected_seq is not None and expected_seq != last_seq:
        raise AppendConflictError(session.id, expected_seq, last_seq)
    return None if entries else receipt_of((), last_seq)
