"""A listing's stream tells that a routine or a runtime changed, to whoever may look at it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.live import Event
from tests.server.people import People, people
from tests.server.test_access_stream import stream

DAILY = {"text": "hello", "cron": "0 9 * * *"}


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[People]:
    async with people(tmp_path, heartbeat_s=0.5) as found:
        yield found


async def changed(events: AsyncIterator[Event]) -> Any:
    """The next change that is told; before it come looks of sessions only."""
    async with asyncio.timeout(10):
        async for event in events:
            if event.name == "changed":
                assert event.id is None
                return event.data
            assert event.name == "status"
    raise AssertionError("the stream has ended")


async def make(client: httpx.AsyncClient, name: str) -> None:
    made = await client.post("/v1/routines", json={"routine_id": name, **DAILY})
    assert made.status_code == 201, made.text


async def test_each_step_of_a_routine_s_life_is_told(here: People) -> None:
    async with stream(here.admin, "listing=1") as events:
        await make(here.admin, "r")
        assert await changed(events) == {"kind": "routine", "id": "r"}
        await here.admin.patch("/v1/routines/r", json={"status": "paused"})
        assert await changed(events) == {"kind": "routine", "id": "r"}
        await here.admin.post("/v1/routines/r/run")
        while True:
            assert await changed(events) == {"kind": "routine", "id": "r"}
            (run,) = (await here.admin.get("/v1/routines/r/runs")).json()["runs"]
            if run["ended_at"] is not None:
                break
        await here.admin.delete("/v1/routines/r")
        assert await changed(events) == {"kind": "routine", "id": "r"}
        assert (await here.admin.get("/v1/routines/r")).status_code == 404


async def test_a_routine_of_somebody_else_is_not_told_of(here: People) -> None:
    anna, bob = await here.come("anna"), await here.come("bob")
    async with (
        stream(anna, "listing=1") as of_anna,
        stream(bob, "listing=1") as of_bob,
        stream(here.admin, "listing=1") as of_admin,
    ):
        await make(anna, "hers")
        await make(bob, "his")
        assert await changed(of_anna) == {"kind": "routine", "id": "hers"}
        assert await changed(of_bob) == {"kind": "routine", "id": "his"}
        found = [(await changed(of_admin))["id"] for _ in range(2)]
        assert found == ["hers", "his"]


async def test_many_changes_at_once_are_told_once(here: People) -> None:
    async with stream(here.admin, "listing=1") as events:
        await make(here.admin, "r")
        await changed(events)
        for _ in range(20):
            here.server.service.feed.changed("runtime", "local", None, all_see=True)
        here.server.service.feed.changed("workflow", "w", None, all_see=False)
        assert await changed(events) == {"kind": "runtime", "id": "local"}
        assert await changed(events) == {"kind": "workflow", "id": "w"}


async def test_what_changed_while_nobody_looked_is_not_kept(here: People) -> None:
    here.server.service.feed.changed("runtime", "local", None, all_see=True)
    async with stream(here.admin, "listing=1") as events:
        await make(here.admin, "r")
        assert await changed(events) == {"kind": "routine", "id": "r"}
