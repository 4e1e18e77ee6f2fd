"""What the commands on a session's tree mean: a branch, a compaction."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from perdure.codec import StoredEntry
from perdure.compaction import DEFAULT_PROMPT, plan_compaction
from perdure.context import RunContext
from perdure.entry import Compaction, Message, text
from perdure.errors import AppendConflictError, EntryNotFoundError
from perdure.fact import LeafMoved
from perdure.loop import Loop
from perdure.server.session.actor import Actor
from perdure.server.session.look import SessionLook
from perdure.server.session.path import load_model_path
from perdure.server.session.relief import summarise_with


class Compacted(Struct, frozen=True):
    """The stored compaction; `entry` is None where there was nothing to summarise."""

    entry: StoredEntry | None
    leaf_id: str | None


async def branch(actor: Actor, entry_id: str | None) -> SessionLook:
    """Moves the leaf, by an entry, so that every viewer and every restart agrees.

    Raises:
        TurnRunningError: nothing stored. EntryNotFoundError: no such tree entry; nothing stored.

    """

    async def step(again: bool) -> SessionLook:
        actor.check_idle()
        if entry_id is not None:
            stored = await actor.store.load_entry(actor.session_id, entry_id)
            if not stored.entry.in_tree:
                raise EntryNotFoundError(
                    actor.session_id, entry_id, "it is a fact and has no place in the tree"
                )
        if entry_id != actor.state.leaf_id:
            await actor.append([LeafMoved(from_id=actor.state.leaf_id, leaf_id=entry_id)])
        return actor.look()

    return await actor.command(step)


async def compact(actor: Actor, keep_turns: int) -> Compacted:
    """Appends a summary of all but the last `keep_turns` turns, made by a throw-away run.

    The session takes commands meanwhile; one that grows it wins.

    Raises:
        TurnRunningError: a turn runs; nothing stored.
        HookRefusedError: a hook refused it; nothing stored.
        AppendConflictError: the session grew while the summary was made; nothing stored.
        LoopError: the loop gave no summary; nothing stored.

    """

    async def begin(again: bool) -> tuple[int, str | None]:
        actor.check_idle()
        return actor.state.last_seq, actor.state.leaf_id

    async def build(again: bool) -> Loop:
        return await actor.build_loop()

    seq, leaf_id = await actor.command(begin)
    await actor.before_compaction()
    path = await load_model_path(actor.store, actor.session_id, leaf_id)
    plan = plan_compaction(path, keep_turns)
    if plan is None:
        return Compacted(None, leaf_id)
    prompt = text(DEFAULT_PROMPT)

    async def messages() -> Sequence[Message]:
        return [*plan.messages, prompt]

    context = RunContext(actor.session_id, input=(prompt,), messages=messages, purpose="summary")
    loop = await actor.command(build)
    summary = await summarise_with(loop, context)
    entry = Compaction(summary=summary, first_kept_id=plan.first_kept_id)

    async def store(again: bool) -> Compacted:
        actor.check_idle()
        if actor.state.leaf_id == entry.id:
            return Compacted(await actor.store.load_entry(actor.session_id, entry.id), entry.id)
        if actor.state.leaf_id != leaf_id:
            raise AppendConflictError(actor.session_id, seq, actor.state.last_seq)
        receipt = await actor.append([entry])
        actor.has_compacted()
        await actor.keeper.prune()
        return Compacted(receipt.entries[0], entry.id)

    return await actor.command(store)
