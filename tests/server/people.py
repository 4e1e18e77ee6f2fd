"""A server that several people use: each has a token of the file, and a client that sends it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from perdure.loop import LoopFactory
from perdure.server.access.principal import Role
from perdure.server.access.token_file import add_token
from perdure.server.journal import JournalStore
from tests.server.live import Running, running

VARIES = frozenset({"date", "content-length", "x-request-id"})
"""The headers that differ between two answers to the same request, or with the length of an id."""


class People:
    """Those who use the server. `admin` has the server's own token."""

    def __init__(self, server: Running, path: Path, stack: AsyncExitStack) -> None:
        self.server = server
        self.path = path
        self.admin = server.client
        self.tokens: dict[str, str] = {}
        self.ids: dict[str, str] = {}
        self._stack = stack

    async def come(self, name: str, role: Role = "user", **options: Any) -> httpx.AsyncClient:
        """A client of a new token, which counts when this returns."""
        token, entry = add_token(self.path, name, role, **options)
        self.tokens[name], self.ids[name] = token, entry.id
        await self.server.access.keyring.refresh()
        return await self.with_token(token)

    async def with_token(self, token: str | None) -> httpx.AsyncClient:
        """A client that sends this token, or none."""
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        client = httpx.AsyncClient(base_url=self.server.base, headers=headers, timeout=20)
        return await self._stack.enter_async_context(client)


@asynccontextmanager
async def people(
    folder: Path,
    *,
    store: JournalStore | None = None,
    loop: LoopFactory | None = None,
    **settings: Any,
) -> AsyncIterator[People]:
    """A server whose tokens file is in the folder."""
    path = folder / "tokens.toml"
    if not path.exists():
        path.touch(mode=0o600)
    given = {"tokens": str(path), **settings}
    async with running(loop, store=store, settings=given) as server, AsyncExitStack() as stack:
        yield People(server, path, stack)


async def make(client: httpx.AsyncClient, session_id: str, text: str | None = None) -> str:
    """A session of the client's, with a message in it that was answered if there is a text."""
    answer = await client.post("/v1/sessions", json={"session_id": session_id})
    assert answer.status_code == 201, answer.text
    if text is not None:
        url = f"/v1/sessions/{session_id}"
        sent = await client.post(f"{url}/messages", json={"text": text})
        assert sent.status_code == 202, sent.text
        await until(lambda look: look["turn"] is None, client, session_id)
    return session_id


async def until(
    holds: Callable[[dict[str, Any]], bool], client: httpx.AsyncClient, session_id: str
) -> dict[str, Any]:
    """Waits until the session looks so."""
    async with asyncio.timeout(20):
        while True:
            look: dict[str, Any] = (await client.get(f"/v1/sessions/{session_id}")).json()
            if holds(look):
                return look
            await asyncio.sleep(0.01)


def ids_in(answer: httpx.Response) -> list[str]:
    """The sessions of a listing."""
    assert answer.status_code == 200, answer.text
    return [look["session_id"] for look in answer.json()["sessions"]]
