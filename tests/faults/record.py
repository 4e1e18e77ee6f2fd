"""What a store was asked and what it answered, in the order in which it happened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from perdure.codec import Draft, Entry, StoredEntry, seal_all
from perdure.errors import (
    AppendUncertainError,
    SessionExistsError,
    StoreUnavailableError,
)
from perdure.store import ClosingStore, Receipt, Session, SessionStore, Verified


@dataclass(frozen=True, slots=True)
class Asked:
    """A batch that a store was asked to append, or, with `creates`, a session with its entries."""

    session_id: str
    entries: tuple[Entry, ...]
    creates: bool

    @property
    def raws(self) -> list[bytes]:
        return [entry.raw for entry in self.entries]


@dataclass(slots=True)
class Known:
    """What must be in a store, and what may be."""

    acknowledged: dict[str, dict[int, bytes]] = field(default_factory=dict)
    maybe: list[Asked] = field(default_factory=list)
    deleted: set[str] = field(default_factory=set)
    maybe_deleted: set[str] = field(default_factory=set)

    def note(self, kind: str, asked: Asked, first_seq: int = 1) -> None:
        """Takes in `ask`, `ack`, `void` (certainly not stored), `ask to delete` or `delete`."""
        match kind:
            case "ask to delete":
                self.maybe_deleted.add(asked.session_id)
            case "ask":
                self.maybe.append(asked)
            case "ack":
                self.maybe = [other for other in self.maybe if other != asked]
                self.deleted.discard(asked.session_id)
                there = self.acknowledged.setdefault(asked.session_id, {})
                there.update(enumerate(asked.raws, first_seq))
            case "void":  # and what an earlier try of the same may have stored stays uncertain
                self.maybe.remove(asked)
            case "delete":
                self.acknowledged.pop(asked.session_id, None)
                self.maybe_deleted.discard(asked.session_id)
                self.deleted.add(asked.session_id)
                of_it = self.asked_of(asked.session_id)
                self.maybe = [other for other in self.maybe if other not in of_it]
            case _:
                raise ValueError(kind)

    @property
    def key(self) -> str:
        """Equal where the same is known."""
        uncertain = [(asked.session_id, asked.raws, asked.creates) for asked in self.maybe]
        return repr((self.acknowledged, uncertain, self.deleted, self.maybe_deleted))

    def asked_of(self, session_id: str) -> list[Asked]:
        """What of this session is uncertain, each once."""
        asked = dict.fromkeys(asked for asked in self.maybe if asked.session_id == session_id)
        return list(asked)

    def session_ids(self) -> list[str]:
        """Every session that is there, or may be."""
        return sorted({*self.acknowledged, *(asked.session_id for asked in self.maybe)})

    def check(self, session_id: str, found: Sequence[StoredEntry] | None) -> None:
        """Fails unless all that was acknowledged was found, and each uncertain batch whole or not.

        `found` is None where there is no such session.
        """
        if found is None:
            is_due = session_id in self.acknowledged and session_id not in self.maybe_deleted
            assert not is_due, f"{session_id} was acknowledged"
            return
        assert [stored.seq for stored in found] == list(range(1, len(found) + 1))
        raws = [stored.raw for stored in found]
        assert len(set(raws)) == len(raws), "an entry is there twice"
        expected = self.acknowledged.get(session_id, {})
        for seq, raw in expected.items():
            assert raws[seq - 1 : seq] == [raw], f"seq {seq} was acknowledged and is not there"
        seq = 1
        while seq <= len(raws):
            if seq in expected:
                seq += 1
                continue
            whole = [
                asked.raws
                for asked in self.asked_of(session_id)
                if asked.raws and raws[seq - 1 : seq - 1 + len(asked.raws)] == asked.raws
            ]
            assert whole, f"seq {seq} is what nobody asked for, or part of a batch"
            seq += len(whole[0])


class Note(Protocol):
    def __call__(self, kind: str, asked: Asked, first_seq: int = 1) -> None: ...


class Recorder(ClosingStore):
    """A store that tells `note` what it is asked and answers; else the store below."""

    def __init__(self, store: SessionStore, note: Note) -> None:
        self.store = store
        self.note = note

    async def create_session(
        self,
        session_id: str,
        *,
        parent_id: str | None = None,
        entries: Sequence[Draft | Entry] = (),
        **more: Any,
    ) -> Session:
        asked = Asked(session_id, seal_all(entries), creates=True)
        self.note("ask", asked)
        try:
            session = await self.store.create_session(
                session_id, parent_id=parent_id, entries=asked.entries, **more
            )
        except (StoreUnavailableError, SessionExistsError):
            self.note("void", asked)
            raise
        self.note("ack", asked)
        return session

    async def delete_session(self, session_id: str) -> None:
        asked = Asked(session_id, (), creates=False)
        self.note("ask to delete", asked)
        await self.store.delete_session(session_id)  # type: ignore[attr-defined]  # where it has it
        self.note("delete", asked)

    async def load_session(self, session_id: str) -> Session:
        return await self.store.load_session(session_id)

    async def load_entries(self, session_id: str, *, after: int = 0) -> Sequence[StoredEntry]:
        return await self.store.load_entries(session_id, after=after)

    async def append_entries(
        self, session_id: str, entries: Sequence[Draft | Entry], **conditions: Any
    ) -> Receipt:
        asked = Asked(session_id, seal_all(entries), creates=False)
        self.note("ask", asked)
        try:
            receipt = await self.store.append_entries(session_id, asked.entries, **conditions)
        except AppendUncertainError:
            raise
        except BaseException:
            self.note("void", asked)
            raise
        self.note("ack", asked, receipt.first_seq)
        return receipt

    async def verify_session(self, session_id: str) -> Verified:
        verified: Verified = await self.store.verify_session(session_id)  # type: ignore[attr-defined]
        return verified

    async def close(self) -> None:
        await self.store.close()
