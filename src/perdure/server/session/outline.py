"""The tree of a session in outline: where each entry grows and how it begins, for a map of it."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from perdure.codec import StoredEntry
from perdure.entry import Compaction, Custom, Message
from perdure.server.journal import JournalStore

TEXT_CHARS = 120
"""How much of an entry's text is in the outline."""


class Outline(Struct, frozen=True):
    """One tree entry; `text` is the beginning of what it says."""

    seq: int
    id: str
    parent_id: str | None
    type: str
    role: str | None
    created_at: datetime
    text: str
    meta: bool = False


class OutlinePage(Struct, frozen=True):
    """Tree entries by `seq`; `next` is the `seq` to go on after, None on the last page."""

    entries: tuple[Outline, ...]
    next: int | None


async def load_outline(
    store: JournalStore, session_id: str, *, after: int, limit: int
) -> OutlinePage:
    """The tree entries among the `limit` entries after the `seq` `after`."""
    page = await store.page_entries(session_id, after=after, limit=limit)
    entries = tuple(_outline(each) for each in page.entries if each.entry.in_tree)
    return OutlinePage(entries, page.entries[-1].seq if page.has_more else None)


def _outline(stored: StoredEntry) -> Outline:
    role: str | None = None
    text, meta = "", False
    match stored.view:
        case Message() as message:
            role, meta = message.role, message.meta
            text = message.text or ", ".join(call.name for call in message.tool_calls)
        case Compaction(summary=summary):
            text = summary
        case Custom(kind=kind):
            text = kind
        case _:
            pass
    parent_id = stored.parent_id if isinstance(stored.parent_id, str) else None
    return Outline(
        stored.seq,
        stored.id,
        parent_id,
        stored.type,
        role,
        stored.created_at,
        beginning(text, TEXT_CHARS),
        meta,
    )


def beginning(text: str, most_chars: int) -> str:
    """The first words of a text, on one line."""
    line = " ".join(text[: most_chars * 4].split())
    return line if len(line) <= most_chars else line[: most_chars - 1] + "…"
