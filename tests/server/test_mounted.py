"""An application whose lifespan nobody runs begins at its first request, and ends with the loop."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from perdure.errors import StoreUnavailableError
from perdure.server.http.app import create_app
from perdure.testing.scripted_loop import Say, scripted
from tests.server.live import TOKEN


def made(folder: Path) -> Starlette:
    settings = {
        "store": f"sqlite:///{folder / 'sessions.db'}",
        "token": TOKEN,
        "loop": "hello",
        "data": str(folder),
        "grace_s": 0,
    }
    return create_app(settings, loops={"hello": scripted(Say("hello"))})


def client_of(app: Starlette) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(Starlette(routes=[Mount("/sub", app)])),
        base_url="http://localhost/sub",
        headers={"Authorization": f"Bearer {TOKEN}"},
    )


async def end(app: Starlette) -> None:
    """What the end of the event loop does."""
    task = app.state.own_lifespan.held
    task.cancel()
    await asyncio.wait([task])


async def texts(client: httpx.AsyncClient) -> list[str]:
    page: dict[str, Any] = (await client.get("/v1/sessions/s/transcript")).json()
    return [entry["parts"][0]["text"] for entry in page["entries"]]


async def test_mounted_in_what_runs_no_lifespan_it_serves_and_lets_its_store_go(
    tmp_path: Path,
) -> None:
    app = made(tmp_path)
    async with client_of(app) as client:
        created = await asyncio.gather(
            *(client.post("/v1/sessions", json={"session_id": "s"}) for _ in range(5))
        )
        assert sorted(answer.status_code for answer in created) == [200, 200, 200, 200, 201]
        sent = await client.post("/v1/sessions/s/messages", json={"text": "hi"})
        assert sent.status_code == 202
        registry = app.state.service.registry
        assert await registry.until_ended("s", sent.json()["turn_id"])
        assert await texts(client) == ["hi", "hello"]
        await end(app)
        assert await texts(client) == ["hi", "hello"]  # it began again
        await end(app)
    async with made(tmp_path).router.lifespan_context(app):  # its store is free
        pass


ENDS_WITH_ITS_LOOP = """
import asyncio, sys, httpx
from perdure.server import create_app

app = create_app({"store": sys.argv[1], "token": "t", "loop": "shell", "data": sys.argv[2]})

async def use(body):
    transport = httpx.ASGITransport(app)
    headers = {"Authorization": "Bearer t"}
    async with httpx.AsyncClient(transport=transport, headers=headers) as client:
        answer = await client.post("http://localhost/v1/sessions", json=body)
        print(answer.status_code, hasattr(app.state, "service"))
        await client.post("http://localhost/v1/sessions/s/messages", json={"text": "sleep 60"})

for _ in range(2):
    asyncio.run(use({"session_id": "s"}))
    print(hasattr(app.state, "service"))
"""


def test_it_ends_with_its_event_loop_and_begins_anew_in_another(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'sessions.db'}"
    ran = subprocess.run(
        [sys.executable, "-X", "dev", "-c", ENDS_WITH_ITS_LOOP, url, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.stdout.splitlines() == ["201 True", "False", "200 True", "False"], ran.stderr
    assert "Traceback" not in ran.stderr
    assert "Error" not in ran.stderr


async def test_what_keeps_it_from_beginning_is_told_and_tried_again(tmp_path: Path) -> None:
    one, other = made(tmp_path), made(tmp_path)
    async with client_of(other) as client:
        async with one.router.lifespan_context(one):
            refused = await client.get("/v1/sessions")
            assert (refused.status_code, refused.json()["code"]) == (503, "store_unavailable")
            assert "process" in refused.json()["detail"]
        assert (await client.get("/v1/sessions")).json()["sessions"] == []
    await end(other)
    async with one.router.lifespan_context(one):  # its store is free again
        pass


async def test_a_lifespan_that_is_run_is_the_only_one(tmp_path: Path) -> None:
    app = made(tmp_path)
    async with app.router.lifespan_context(app), client_of(app) as client:
        assert (await client.get("/v1/sessions")).status_code == 200
        assert app.state.own_lifespan.held is None
        with pytest.raises(StoreUnavailableError):
            await made(tmp_path).state.own_lifespan.begin()
