"""Paths from a JournalStore, read back from the leaf as far as a question needs."""

from __future__ import annotations

from perdure.codec import Entry
from perdure.entry import Compaction, Message
from perdure.errors import JournalCorruptError
from perdure.server.journal import JournalStore
from perdure.view import OpenCalls

PAGE = 256
FIRST_PAGE = 16

MOST_REPAIRED = 1024
"""How far back from the leaf the last batch of calls is looked for; the model view looks on."""


async def load_whole_path(store: JournalStore, session_id: str, leaf_id: str | None) -> list[Entry]:
    """The path from the root to `leaf_id`; O(its length)."""
    return await _load(store, session_id, leaf_id, until_compaction=False)


async def load_model_path(store: JournalStore, session_id: str, leaf_id: str | None) -> list[Entry]:
    """The path as far back as a model view needs it: to the newest compaction's first kept entry.

    Where a compaction's first kept entry is not on the path it is the whole path.
    """
    return await _load(store, session_id, leaf_id, until_compaction=True)


async def _load(
    store: JournalStore, session_id: str, leaf_id: str | None, *, until_compaction: bool
) -> list[Entry]:
    pages: list[list[Entry]] = []
    met: set[str] = set()
    newest: Compaction | None = None
    at = leaf_id
    while at is not None:
        page = await store.load_path(
            session_id, at, limit=PAGE, until=newest.first_kept_id if newest else None
        )
        entries = [stored.entry for stored in page.entries]
        if entries[0].id in met:
            raise JournalCorruptError(session_id, None, f"entry {at!r}", "its path is a circle")
        met.update(entry.id for entry in entries)
        pages.append(entries)
        if until_compaction and newest is None:
            newest = _newest_compaction(entries)
        if newest is not None and (
            newest.first_kept_id is None
            or any(entry.id == newest.first_kept_id for entry in entries)
        ):
            break
        parent_id = entries[0].parent_id
        at = parent_id if isinstance(parent_id, str) else None
    return [entry for entries in reversed(pages) for entry in entries]


def _newest_compaction(entries: list[Entry]) -> Compaction | None:
    for entry in reversed(entries):
        if entry.type == "compaction" and isinstance(view := entry.view, Compaction):
            return view
    return None


async def load_open_calls(store: JournalStore, session_id: str, leaf_id: str | None) -> OpenCalls:
    """The calls without a result in the last batch of calls before the leaf; O(that batch).

    Messages of the assistant come whole and one after the other, so only the last can have open
    calls. It is not looked for further back than `MOST_REPAIRED` entries.
    """
    return OpenCalls(await _load_tail(store, session_id, leaf_id))


async def load_said(store: JournalStore, session_id: str, leaf_id: str | None) -> list[Message]:
    """The `meta` messages at the leaf, with nothing behind them, back to a batch of calls."""
    said: list[Message] = []
    for entry in reversed(await _load_tail(store, session_id, leaf_id)):
        view = entry.view if entry.type == "message" else None
        if not isinstance(view, Message) or not view.meta:
            break
        said.append(view)
    return said[::-1]


async def _load_tail(store: JournalStore, session_id: str, leaf_id: str | None) -> list[Entry]:
    """The end of a path, from the last message of the assistant or before it."""
    tail: list[Entry] = []
    at, limit = leaf_id, FIRST_PAGE
    while at is not None and len(tail) < MOST_REPAIRED:
        page = await store.load_path(session_id, at, limit=limit)
        entries = [stored.entry for stored in page.entries]
        tail[:0] = entries
        if any(_is_spoken(entry) for entry in entries):
            break
        parent_id = entries[0].parent_id
        at, limit = (parent_id if isinstance(parent_id, str) else None), PAGE
    return tail


async def has_result(
    store: JournalStore, session_id: str, leaf_id: str | None, message_id: str, call_id: str
) -> bool:
    """Whether the call of this message has a result of its own on the path.

    It stands behind the message, and before the next one that makes a call of the same id. It is
    looked for among the newest `MOST_REPAIRED` entries.
    """
    if leaf_id is None:
        return False
    page = await store.load_path(session_id, leaf_id, limit=MOST_REPAIRED)
    is_its = all(stored.id != message_id for stored in page.entries)
    for stored in page.entries:
        if not isinstance(message := stored.view, Message):
            continue
        if message.id == message_id:
            is_its = True
        elif any(call.call_id == call_id for call in message.tool_calls):
            is_its = False
        if is_its and any(
            each.call_id == call_id and not each.interrupted for each in message.tool_results
        ):
            return True
    return False


def _is_spoken(entry: Entry) -> bool:
    view = entry.view if entry.type == "message" else None
    return isinstance(view, Message) and view.role == "assistant"
