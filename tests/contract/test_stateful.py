"""Any sequence of verbs gives the same on every store as on the memory store."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from perdure.codec import Entry, StoredEntry, import_entry, seal
from perdure.entry import Custom, Message, Part, Reasoning, Text, ToolCall, ToolResult
from perdure.errors import PerdureError
from perdure.fact import LeafMoved
from perdure.server.journal import JournalStore
from perdure.store import Page, PathPage, Receipt, Session, SessionStore
from perdure.stores.jsonl import JsonlStore
from perdure.stores.jsonl_name import name_of
from perdure.stores.memory import MemoryStore
from perdure.stores.sqlite import SqliteStore

MADE_AT = datetime(2026, 1, 2, 3, 4, 5, 678, UTC)
SESSION_IDS = ("a", "A", "caf\u00e9")
ENTRY_IDS = ("e0", "e1", "E1", "e2", "é", "e\u0301", "\x00", "'", " ")

session_ids = st.sampled_from(SESSION_IDS)
entry_ids = st.sampled_from(ENTRY_IDS) | st.integers(0, 999).map(str)
nasty = st.sampled_from('\x00\n\r\u2028\u2029\x85\ud800\udfff\ufeff\uffff"\\{},')
texts = st.text(nasty | st.characters(), max_size=12)
numbers = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats()
json_values = st.recursive(
    numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
parts: st.SearchStrategy[Part] = st.one_of(
    st.builds(Text, texts),
    st.builds(Reasoning, texts, provider=json_values),
    st.builds(ToolCall, texts, texts, json_values),
    st.builds(ToolResult, texts, st.lists(st.builds(Text, texts), max_size=2)),
)
places = st.sampled_from(["e0", "e1", "e2"]) | entry_ids
parents = st.none() | places
messages = st.builds(
    lambda entry_id, role, found, meta, parent_id: seal(
        Message(role, tuple(found), meta=meta, id=entry_id, created_at=MADE_AT), parent_id
    ),
    entry_ids,
    st.sampled_from(["system", "user", "assistant", "tool"]),
    st.lists(parts, max_size=3),
    st.booleans(),
    parents,
)
customs = st.builds(
    lambda entry_id, kind, data, parent_id: seal(
        Custom(kind=kind, data=data, id=entry_id, created_at=MADE_AT), parent_id
    ),
    entry_ids,
    texts,
    json_values,
    parents,
)
facts = st.builds(
    lambda entry_id, leaf_id: seal(
        LeafMoved(from_id=None, leaf_id=leaf_id, id=entry_id, created_at=MADE_AT)
    ),
    entry_ids,
    parents,
)
unknown = st.builds(
    lambda n, rest: import_entry(
        b'{"id":"u%d", "created_at":"2026-01-01T00:00:00Z","type":"new"%s}' % (n, rest)
    ),
    st.integers(0, 3),
    st.sampled_from([b"", b',"parent_id":null', b',"x":1.50', b',"parent_id":"e0","y":NaN']),
)
batches = st.lists(messages | customs | facts | unknown, max_size=4, unique_by=lambda e: e.id)
CHAIN = [
    seal(Message("user", (Text("hi"),), id=f"e{n}", created_at=MADE_AT), f"e{n - 1}" if n else None)
    for n in range(3)
]
Expected = Literal["any", "right", "wrong"]


@dataclass
class Subject:
    """A store under test, and what it called the incarnations of the model's sessions."""

    open: Callable[[], SessionStore]
    store: SessionStore
    incarnations: dict[str, str] = field(default_factory=dict)


class StoresAgree(RuleBasedStateMachine):
    """Does everything to all stores and holds what they say against the memory store."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = Path(tempfile.mkdtemp(prefix="perdure-stateful-"))
        memory = MemoryStore()
        self.subjects = [
            Subject(lambda: memory, memory),
            *(
                Subject(make, make())
                for make in (
                    lambda: SqliteStore(self.folder / "sessions.db"),
                    lambda: JsonlStore(self.folder / "lines"),
                )
            ),
        ]
        self.sessions: dict[str, Session] = {}
        self.deleted: list[Session] = []
        self.batches: dict[str, list[list[Entry]]] = {}

    def teardown(self) -> None:
        for subject in self.subjects:
            self.runner.run(subject.store.close())
        self.runner.close()
        shutil.rmtree(self.folder)

    def ask(self, call: Callable[[Subject], Coroutine[Any, Any, Any]], count: int = 3) -> Any:
        """What the first `count` stores say: it has to be the same."""

        async def answer(subject: Subject) -> Any:
            try:
                return await call(subject)
            except PerdureError as error:
                return type(error)

        answers = [self.runner.run(answer(subject)) for subject in self.subjects[:count]]
        for other in answers[1:]:
            assert _comparable(other) == _comparable(answers[0])
        return answers[0]

    @initialize(batch=batches)
    def begin(self, batch: list[Entry]) -> None:
        self.create("a", CHAIN)
        self.create("A", batch)

    @rule(session_id=session_ids, batch=batches)
    def create(self, session_id: str, batch: list[Entry]) -> None:
        made: dict[int, Session] = {}

        async def create(subject: Subject) -> tuple[str, str | None]:
            session = await subject.store.create_session(session_id, parent_id="p", entries=batch)
            made[id(subject)] = session
            return session.id, session.parent_id

        if self.ask(create) == (session_id, "p"):
            session = self.sessions[session_id] = made[id(self.subjects[0])]
            self.batches[session_id] = [batch]
            for subject in self.subjects:
                subject.incarnations[session.incarnation] = made[id(subject)].incarnation

    @rule(
        session_id=session_ids,
        batch=batches,
        expected=st.sampled_from(["any", "right", "wrong"]),
        is_owner=st.booleans(),
    )
    def append(
        self, session_id: str, batch: list[Entry], expected: Expected, is_owner: bool
    ) -> None:
        expected_seq = self.expected_seq(session_id, expected)
        session = self.sessions.get(session_id)

        async def append(subject: Subject) -> Receipt:
            incarnation = subject.incarnations[session.incarnation] if session else None
            return await subject.store.append_entries(
                session_id,
                batch,
                expected_seq=expected_seq,
                incarnation=incarnation if is_owner else None,
            )

        if isinstance(self.ask(append), Receipt):
            self.batches[session_id].append(batch)

    @rule(session_id=session_ids, data=st.data())
    def retry(self, session_id: str, data: st.DataObject) -> None:
        stored = [batch for batch in self.batches.get(session_id, []) if batch]
        if not stored:
            return
        batch = data.draw(st.sampled_from(stored))
        expected_seq = self.expected_seq(session_id, data.draw(st.sampled_from(["any", "wrong"])))
        receipt = self.ask(
            lambda subject: subject.store.append_entries(
                session_id, batch, expected_seq=expected_seq
            )
        )
        assert isinstance(receipt, Receipt)
        assert [entry.raw for entry in receipt.entries] == [entry.raw for entry in batch]

    @rule(session_id=session_ids, waiting=st.lists(batches, min_size=2, max_size=5))
    def append_at_once(self, session_id: str, waiting: list[list[Entry]]) -> None:
        async def append(subject: Subject) -> list[Any]:
            outcomes = await asyncio.gather(
                *(subject.store.append_entries(session_id, batch) for batch in waiting),
                return_exceptions=True,
            )
            return [type(o) if isinstance(o, Exception) else o for o in outcomes]

        for batch, outcome in zip(waiting, self.ask(append), strict=True):
            if isinstance(outcome, Receipt):
                self.batches[session_id].append(batch)

    @rule(session_id=session_ids)
    def delete(self, session_id: str) -> None:
        async def delete(subject: Subject) -> None:
            store = subject.store
            if isinstance(store, JsonlStore):
                (self.folder / "lines" / f"{name_of(session_id)}.jsonl").unlink(missing_ok=True)
            else:
                assert isinstance(store, MemoryStore | SqliteStore)
                await store.delete_session(session_id)

        self.ask(delete, count=2)
        self.runner.run(delete(self.subjects[2]))
        session = self.sessions.pop(session_id, None)
        self.batches.pop(session_id, None)
        if session is not None:
            self.deleted.append(session)

    @rule(data=st.data(), batch=batches)
    def append_as_a_ghost(self, data: st.DataObject, batch: list[Entry]) -> None:
        if self.deleted:
            ghost = data.draw(st.sampled_from(self.deleted))
            self.ask(
                lambda subject: subject.store.append_entries(
                    ghost.id, batch, incarnation=subject.incarnations[ghost.incarnation]
                ),
                count=2,
            )

    @rule(session_id=session_ids, batch=batches)
    def delete_and_create(self, session_id: str, batch: list[Entry]) -> None:
        self.delete(session_id)
        self.create(session_id, batch)

    @rule()
    def reopen(self) -> None:
        for subject in self.subjects[1:]:
            self.runner.run(subject.store.close())
            subject.store = subject.open()

    @rule(session_id=session_ids, after=st.integers(-1, 6))
    def load(self, session_id: str, after: int) -> None:
        self.ask(lambda subject: subject.store.load_entries(session_id, after=after))

    @invariant()
    def all_have_the_same_newest_entries(self) -> None:
        for session_id in self.sessions:
            stands = self.stands(session_id)
            self.ask(partial(_load_after, session_id, max(stands - 2, 0)))

    @rule(
        session_id=session_ids,
        before=st.none() | st.integers(0, 12),
        after=st.none() | st.integers(0, 12),
        limit=st.integers(1, 5),
    )
    def page(self, session_id: str, before: int | None, after: int | None, limit: int) -> None:
        self.ask(
            lambda subject: _journal(subject).page_entries(
                session_id, before=before, after=after, limit=limit
            ),
            count=2,
        )

    @rule(session_id=session_ids, leaf_id=places, limit=st.integers(1, 5), until=places)
    def path(self, session_id: str, leaf_id: str, limit: int, until: str) -> None:
        async def path(subject: Subject, stop: str | None) -> PathPage:
            return await _journal(subject).load_path(session_id, leaf_id, limit=limit, until=stop)

        self.ask(partial(path, stop=None), count=2)
        self.ask(partial(path, stop=until), count=2)

    @rule(session_id=session_ids, entry_id=entry_ids, seq=st.integers(0, 12))
    def look_around(self, session_id: str, entry_id: str, seq: int) -> None:
        self.ask(lambda subject: _journal(subject).load_entry(session_id, entry_id), count=2)
        self.ask(lambda subject: _journal(subject).load_entry(session_id, seq), count=2)
        self.ask(
            lambda subject: _journal(subject).children(session_id, [None, *ENTRY_IDS]), count=2
        )

    @invariant()
    def all_list_the_same_sessions_in_the_same_order(self) -> None:
        async def listing(subject: Subject) -> list[tuple[str, int]]:
            page = await _journal(subject).list_sessions()
            return [(look.session.id, look.last_seq) for look in page.sessions]

        self.ask(listing, count=2)

    @invariant()
    def files_of_lines_are_sound(self) -> None:
        lines = self.subjects[2].store
        assert isinstance(lines, JsonlStore)
        assert sorted(self.runner.run(lines.session_ids())) == sorted(self.sessions)
        for session_id in self.sessions:
            self.runner.run(lines.verify_session(session_id))

    def expected_seq(self, session_id: str, expected: Expected) -> int | None:
        if expected == "any":
            return None
        stands = self.stands(session_id)
        return stands if expected == "right" else stands + 1

    def stands(self, session_id: str) -> int:
        if session_id not in self.sessions:
            return 0
        return len(self.runner.run(self.subjects[0].store.load_entries(session_id)))


async def _load_after(session_id: str, after: int, subject: Subject) -> Sequence[StoredEntry]:
    return await subject.store.load_entries(session_id, after=after)


def _journal(subject: Subject) -> JournalStore:
    assert isinstance(subject.store, MemoryStore | SqliteStore)
    return subject.store


def _comparable(answer: object) -> object:
    if isinstance(answer, Sequence) and not isinstance(answer, str):
        return [_comparable(item) for item in answer]
    if isinstance(answer, Page):  # each store's session has an incarnation of its own
        return replace(answer, incarnation="")
    return answer


TestStoresAgree = StoresAgree.TestCase
TestStoresAgree.settings = settings(
    max_examples=int(os.environ.get("PERDURE_STATEFUL_EXAMPLES", "20")),
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
