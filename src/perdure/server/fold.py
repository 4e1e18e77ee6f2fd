"""A state is what its journal comes to: folded from the entries in the order of `seq`, and pure.

Each kind of journal says what its facts decide; what makes a fold trustworthy is the same for all:
no entry is missing or doubled, a fact that decides is never passed over because it cannot be read,
and the bytes of a state carry their schema and a digest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from perdure.codec import Entry, StoredEntry, encode
from perdure.entry import Opaque
from perdure.errors import StateUnreplayableError
from perdure.snapshot import Upcast, read_sealed, seal


class Folded(Struct, frozen=True):
    """A state; `last_seq` is the `seq` of the newest entry that is in it."""

    schema: int = 0
    last_seq: int = 0


S = TypeVar("S", bound=Folded)

Changes = dict[str, Any]
"""The fields of a state that an entry changes."""


def nothing(state: Any, stored: StoredEntry) -> Changes:
    """What an entry changes that decides nothing."""
    return {}


@dataclass(frozen=True, slots=True)
class Fold(Generic[S]):
    """How the journals of one kind come to a state, and how it is written down.

    `decide` is asked of each fact of a `decisive` type, and `note` of every entry.
    """

    empty: S
    decisive: frozenset[str]
    decide: Callable[[S, StoredEntry], Changes]
    note: Callable[[S, StoredEntry], Changes] = nothing
    upcasts: Mapping[int, Upcast] | None = None

    def encode(self, state: S) -> bytes:
        """The state as the bytes of a summary or a snapshot, sealed."""
        return seal(encode(state))

    def decode(self, summary: bytes | None) -> S | None:
        """The state of a summary's bytes; None where there is none that this version can read."""
        if summary is None:
            return None
        schema, upcasts = self.empty.schema, self.upcasts or {}
        return read_sealed(summary, type(self.empty), schema=schema, upcasts=upcasts)

    def place(self, state: S, entries: Sequence[Entry]) -> list[StoredEntry]:
        """The entries as they will be stored after this state."""
        return [StoredEntry(state.last_seq + n, entry) for n, entry in enumerate(entries, 1)]

    def fold(self, state: S, entries: Iterable[StoredEntry]) -> S:
        """Applies entries in order.

        Raises:
            StateUnreplayableError: as `apply`.

        """
        for stored in entries:
            state = self.apply(state, stored)
        return state

    def apply(self, state: S, stored: StoredEntry) -> S:
        """The state after the journal's next entry; entries of other types only move `last_seq`.

        Raises:
            StateUnreplayableError: a `seq` is missing or comes twice, or a fact that decides cannot
                be read, or cannot come here.

        """
        if stored.seq != state.last_seq + 1:
            raise StateUnreplayableError(
                f"seq {stored.seq} follows {state.last_seq}: an entry is missing or doubled"
            )
        changes = self.note(state, stored)
        if stored.type in self.decisive and not stored.entry.in_tree:
            if isinstance(stored.view, Opaque):
                raise broken(stored, f"this version cannot read its {stored.type!r}")
            changes |= self.decide(state, stored)
        return replace(state, last_seq=stored.seq, **changes)


def broken(stored: StoredEntry, detail: str) -> StateUnreplayableError:
    """The error that says which entry does not fold, and why."""
    return StateUnreplayableError(f"the entry {stored.id!r} at seq {stored.seq}: {detail}")
