"""Replay: a journal, read in pages, through the one fold."""

from __future__ import annotations

from perdure.server.journal import JournalStore
from perdure.server.state import State, fold

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
