"""Compacts the conversation of a turn before it runs, where its model's context is nearly full.

It happens in the turn, right after its message is stored and before any loop runs: so it can be
stopped, it never falls inside a batch of calls, and whoever sent the message has their answer.
A failure is no obstacle: the turn runs with the conversation as it is.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence

from perdure.codec import Draft
from perdure.compaction import DEFAULT_PROMPT, fill_of, plan_relief
from perdure.context import RunContext
from perdure.entry import Compaction, Message, text
from perdure.errors import HookFailedError, HookRefusedError, LoopError, PerdureError
from perdure.loop import Loop
from perdure.run import summarise
from perdure.server.journal import JournalStore
from perdure.server.session.path import load_model_path
from perdure.server.session.surroundings import Scope, Surroundings
from perdure.server.session.turn import describe

_log = logging.getLogger("perdure.server")

TAIL = 16
"""How many entries before the leaf the last answer is looked for: mostly it is the parent."""


async def relieve(
    store: JournalStore,
    scope: Scope,
    leaf_id: str | None,
    share: float,
    *,
    surroundings: Surroundings,
    build_loop: Callable[[], Awaitable[Loop]],
    append: Callable[[Sequence[Draft]], Awaitable[object]],
    notice: Callable[[str], object],
) -> bool:
    """Whether a compaction was stored; the message at the leaf is kept as it is.

    Raises:
        StoreError: the session cannot be read, or the compaction not be stored.

    """
    if leaf_id is None:
        return False
    tail = await store.load_path(scope.session_id, leaf_id, limit=TAIL)
    fill = fill_of([stored.entry for stored in tail.entries])
    if fill is None or fill.share < share:
        return False
    path = await load_model_path(store, scope.session_id, leaf_id)
    plan = plan_relief(path, fill, new_turns=1)
    if plan is None:
        return False
    prompt = text(DEFAULT_PROMPT)

    async def messages() -> Sequence[Message]:
        return [*plan.messages, prompt]

    notice(f"the context is {fill.share:.0%} full: what came before is being summarised")
    context = RunContext(scope.session_id, input=(prompt,), messages=messages, purpose="summary")
    try:
        await surroundings.compacting(scope)
        summary = await summarise_with(await build_loop(), context)
    except (HookRefusedError, HookFailedError, LoopError) as error:
        _log.warning("session %r was not compacted: %s", scope.session_id, error)
        notice(f"it was not summarised: {error}")
        return False
    await append([Compaction(summary=summary, first_kept_id=plan.first_kept_id)])
    return True


async def summarise_with(loop: Loop, context: RunContext) -> str:
    """The summary that a throw-away run of the loop gives.

    Raises:
        LoopError: it gave none.

    """
    try:
        return await summarise(loop, context)
    except PerdureError:
        raise
    except (Exception, SystemExit) as error:  # somebody else's loop: its own failure
        raise LoopError(f"the loop gave no summary: {describe(error)}") from error
