"""Replay: a journal, read in pages, through the one fold, from the newest state that is kept.

The newest is the summary, which was stored in one transaction with the entry it stands at; then
come the snapshots; then the beginning. Whichever it is, the state at the end is the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from perdure.codec import StoredEntry
from perdure.errors import JournalCorruptError, StateUnreplayableError
from perdure.server.journal import JournalStore
from perdure.server.session.state import State, decode_state, fold, read_snapshot
from perdure.store import Look

PAGE = 512


async def replay(store: JournalStore, session_id: str, state: State) -> State:
    """The state at the end of the journal, from a state inside it; O(what lies between).

    Raises:
        StateUnreplayableError, JournalCorruptError, SessionNotFoundError, StoreUnavailableError.

    """
    while True:
        page = await store.page_entries(session_id, after=state.last_seq, limit=PAGE)
        state = fold(state, page.entries)
        if not page.has_more:
            return state


async def load_state(store: JournalStore, look: Look) -> State:
    """The newest state of this journal that can be read, which may be its beginning."""
    state = decode_state(look.summary)
    if state is not None and state.last_seq <= look.last_seq:
        return state
    session_id, incarnation = look.session.id, look.session.incarnation
    at_most = look.last_seq
    while True:
        try:
            snapshot = await store.load_snapshot(session_id, at_most=at_most)
        except JournalCorruptError:
            return State()  # damage to what only saves time; the entries decide
        if snapshot is None:
            return State()
        state = read_snapshot(snapshot, incarnation=incarnation, last_seq=look.last_seq)
        if state is not None:
            return state
        at_most = min(snapshot.seq, at_most) - 1


async def replay_all(store: JournalStore, look: Look) -> State:
    """The state at the end of the journal; O(what was appended since the newest that is kept).

    Raises:
        StateUnreplayableError: from its beginning, too. And what `replay` raises.

    """
    state = await load_state(store, look)
    try:
        return await replay(store, look.session.id, state)
    except StateUnreplayableError:
        if state.last_seq == 0:
            raise
        return await replay(store, look.session.id, State())


async def check_kept(store: JournalStore, look: Look, entries: Sequence[StoredEntry]) -> None:
    """Holds the states that are kept, the summary and each snapshot, against a fold of the entries.

    `entries` is the whole journal, read after the look. What counts as absent harms nobody.

    Raises:
        JournalCorruptError: a state that would be believed is not what its entries come to.

    """
    session_id, incarnation = look.session.id, look.session.incarnation
    kept = {"its summary": decode_state(look.summary)}
    at_most = look.last_seq
    while (snapshot := await store.load_snapshot(session_id, at_most=at_most)) is not None:
        state = read_snapshot(snapshot, incarnation=incarnation, last_seq=look.last_seq)
        kept[f"its snapshot at seq {snapshot.seq}"] = state
        at_most = snapshot.seq - 1
    for place, state in kept.items():
        if state is None or state.last_seq > look.last_seq:
            continue
        if state != fold(State(), entries[: state.last_seq]):
            raise JournalCorruptError(
                session_id, state.last_seq, place, "it is not what its entries come to"
            )
