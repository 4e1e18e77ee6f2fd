"""Replay: a journal, read in pages, through the one fold, from the newest state that is kept.

The newest is the summary, which was stored in one transaction with the entry it stands at; then
come the snapshots; then the beginning. Whichever it is, the state at the end is the same.
"""

from __future__ import annotations

from perdure.errors import JournalCorruptError, StateUnreplayableError
from perdure.server.journal import JournalStore
from perdure.server.state import State, decode_state, fold, read_snapshot
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
