"""Approvals that expire cost nothing where they were answered in time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure import clock
from perdure.entry import Text
from perdure.server.session.expiry import Expiry
from perdure.server.session.limit import Limits
from perdure.server.session.registry import Registry
from perdure.stores.memory import MemoryStore
from perdure.testing import Call, ManualClock, Say, write_script
from tests.server.careful import Careful
from tests.server.house import ID, Feed, Loops

PAYS = write_script(Say("x", calls=[Call("careful_pay", result="paid")]), Say("done"))


async def settle() -> None:
    for _ in range(200):
        await asyncio.sleep(0)


async def test_a_call_that_was_answered_in_time_wakes_nobody_when_its_time_comes() -> None:
    manual, store = ManualClock(), MemoryStore()
    limits = Limits(approval_limit_s=60, idle_after_s=10)
    with clock.use(manual):
        expiry = Expiry(Feed())
        registry = Registry(store, Loops(), expiry, limits=limits, surroundings=Careful())
        async with expiry.running(registry):
            await registry.create(ID)
            await registry.send(ID, [Text(PAYS)])
            await settle()
            (call,) = (await registry.look(ID)).approvals
            await registry.answer(ID, call.call_id, approve=True)
            await settle()
            await manual.advance(30)
            await settle()
            before = await registry.look(ID)
            assert (before.status, registry.live_actors) == ("idle", 0)
            await manual.advance(60)
            await settle()
            assert await registry.look(ID) == before
            assert registry.live_actors == 0
        await registry.close()


async def test_a_call_that_cannot_be_refused_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    manual, store = ManualClock(), MemoryStore()
    with clock.use(manual):
        expiry = Expiry(Feed())
        limits = Limits(approval_limit_s=60)
        registry = Registry(store, Loops(), expiry, limits=limits, surroundings=Careful())
        answer = registry.answer

        async def fail_for_one(session_id: str, call_id: str, **options: Any) -> None:
            if session_id == "bad":
                raise ValueError("nobody thought of this")
            await answer(session_id, call_id, **options)

        monkeypatch.setattr(registry, "answer", fail_for_one)
        async with expiry.running(registry):
            for name in ("bad", "good"):
                await registry.create(name)
                await registry.send(name, [Text(PAYS)])
                await settle()
                await manual.advance(1)
            await manual.advance(61)
            await settle()
            assert (await registry.look("bad")).status == "waiting"
            assert (await registry.look("good")).status == "idle"
        await registry.close()
