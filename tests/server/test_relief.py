"""A turn that finds its context nearly full compacts before its loop runs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure.entry import Compaction
from perdure.errors import HookFailedError, HookRefusedError, PerdureError
from perdure.server.journal import JournalStore
from perdure.server.session.limit import Limits
from perdure.server.session.surroundings import Scope
from perdure.tree import Tree
from perdure.view import model_view
from tests.server.house import ID, House, Loops
from tests.server.test_surroundings import Around
from tests.unit.test_compaction import Filling


async def opened(store: JournalStore, loop: Filling, **more: Any) -> House:
    house = House(store, Loops(loop), **more)
    await house.create()
    return house


async def say(house: House, *messages: str) -> None:
    for message in messages:
        await house.send(message)
        await house.rest()


async def test_the_loop_runs_on_the_summary_and_the_new_message(store: JournalStore) -> None:
    loop = Filling(700, 850, 300, 400)
    house = await opened(store, loop)
    await say(house, "one", "two", "three", "four")
    assert loop.views[1] == ["one", "answer", "two"]
    assert loop.views[2] == ["Summary of the conversation so far:\n\na summary", "three"]
    assert loop.views[3][1:] == ["three", "answer", "four"]
    types = await house.types()
    at = types.index("compaction")
    assert types[at - 2 : at + 2] == ["turn_started", "message", "compaction", "message"]
    assert types.count("compaction") == 1
    assert [reason for _, reason in await house.ends()] == ["completed"] * 4
    told = [text for _, _, text in house.feed.notices]
    assert told == ["the context is 85% full: what came before is being summarised"]
    said = ["one", "answer", "two", "answer", "three", "answer", "four", "answer"]
    assert await house.texts() == said
    await house.close()


async def test_it_goes_on_so_after_a_restart(store: JournalStore) -> None:
    loop = Filling(850, 300)
    house = await opened(store, loop)
    await say(house, "one")
    await say(house.restart(), "two")
    assert loop.views[1][1:] == ["two"]
    await house.close()


async def test_it_can_be_switched_off(store: JournalStore) -> None:
    loop = Filling(999, 999)
    house = await opened(store, loop, limits=Limits(compact_at=None))
    await say(house, "one", "two")
    assert loop.views[1] == ["one", "answer", "two"]
    await house.close()


async def test_without_a_summary_the_turn_runs_as_it_is(store: JournalStore) -> None:
    loop = Filling(999, 999, summary=None)
    house = await opened(store, loop)
    await say(house, "one", "two")
    assert loop.views[1] == ["one", "answer", "two"]
    assert house.feed.notices[-1][2] == "it was not summarised: no summary today"
    await house.close()


class Guard(Around):
    """Refuses compactions, or fails, as long as it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str | None] = []
        self.error: PerdureError | None = HookRefusedError("PreCompact", "not now")

    async def compacting(self, scope: Scope, /) -> None:
        self.asked.append(scope.turn_id)
        if self.error is not None:
            raise self.error


async def test_hooks_may_refuse_it_and_hear_of_the_start_after_it(store: JournalStore) -> None:
    loop, around = Filling(999, 999, 999, 100), Guard()
    house = await opened(store, loop, surroundings=around)
    await say(house, "one", "two")
    around.error = HookFailedError("PreCompact", "it hung")
    await say(house, "three")
    assert "compaction" not in await house.types()
    assert around.starts == ["startup"]
    around.error = None
    sent = await house.send("four")
    await house.rest()
    assert around.asked[-1] == sent.turn_id
    assert around.starts == ["startup", "compact"]
    assert loop.views[3][-1] == "four"
    assert len(loop.views[3]) == 2
    await house.close()


async def test_a_stop_ends_a_turn_that_is_being_compacted(store: JournalStore) -> None:
    reached = asyncio.Event()

    class Hanging(Guard):
        async def compacting(self, scope: Scope, /) -> None:
            reached.set()
            await asyncio.Event().wait()

    house = await opened(store, Filling(999), surroundings=Hanging())
    await say(house, "one")
    await house.send("two")
    await reached.wait()
    assert (await house.registry.stop(ID)).stopped
    await house.rest()
    assert (await house.ends())[-1][1] == "stopped"
    assert "compaction" not in await house.types()
    await house.close()


@pytest.mark.parametrize(("size", "kept"), [(1, 3), (9000, 1)])
async def test_turns_that_are_small_are_kept_as_they_are(
    store: JournalStore, size: int, kept: int
) -> None:
    house = await opened(store, Filling(100, 999, 100))
    await say(house, "x" * 9000, "y" * size, "three")
    log = await house.log()
    (compaction,) = [view for each in log if isinstance(view := each.view, Compaction)]
    tree = Tree(log)
    seen = [message.text for message in model_view(tree.path(tree.leaf_id))]
    assert seen[1:] == ["y" * size, "answer", "three", "answer"][-1 - kept :]
    assert compaction.first_kept_id in [stored.id for stored in log]
    await house.close()
