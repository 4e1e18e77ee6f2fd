"""What the model is told when a turn is sent again: what the attempts before were seen to do.

The new attempt grows from the turn's input, so that nothing of an earlier one is on its path. But
sending again is not a rollback: what the tools did to the world is still done, and a call that was
cut off may have had effects. A model that does not know does it a second time.
"""

from __future__ import annotations

from perdure.entry import Message, text
from perdure.errors import EntryNotFoundError
from perdure.fact import TurnStarted
from perdure.server.journal import JournalStore
from perdure.server.session.seen import look_at_turn, say_seen

MOST_ATTEMPTS = 8
"""How many attempts are told of; older ones are left out."""

_HEAD = """\
The message above was sent before, and is sent again now. Sending again is not a rollback: nothing \
of what was done then was undone. Look at what is there before you do anything a second time.\
"""
_ATTEMPT = """\
An attempt ended: {ended}. What it was seen to do:
{seen}\
"""


async def told_of(store: JournalStore, session_id: str, turn_id: str) -> Message | None:
    """A `meta` message that tells of this turn and of those that it resends.

    None where none of them called a tool. Costs what those turns cost to read.

    Raises:
        StoreError, UnrecoverableError.

    """
    told: list[str] = []
    at: str | None = turn_id
    for _ in range(MOST_ATTEMPTS):
        if at is None:
            break
        seen = await look_at_turn(store, session_id, at)
        if seen.calls:
            told.append(_ATTEMPT.format(ended=seen.ended, seen=say_seen(seen)))
        at = await _resent_by(store, session_id, at)
    if not told:
        return None
    return text("\n\n".join([_HEAD, *reversed(told)]), meta=True)


async def _resent_by(store: JournalStore, session_id: str, turn_id: str) -> str | None:
    """The turn that this one sends again."""
    try:
        stored = await store.load_entry(session_id, turn_id)
    except EntryNotFoundError:  # a journal of other programs, whose facts have ids of their own
        return None
    return stored.view.resends if isinstance(stored.view, TurnStarted) else None
