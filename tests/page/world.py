"""Sessions for pages to show, stored before a server opens them or sent to one that runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx

from perdure.codec import Draft
from perdure.entry import Message, Reasoning, Text, ToolCall, ToolResult
from perdure.store import Session
from perdure.stores import open_store
from perdure.testing import Say, write_script

AT_ONCE = 64


def store_sessions(folder: Path, sessions: Mapping[str, Sequence[Draft]]) -> None:
    """Creates sessions with these entries in the store of a server that does not run, in order."""

    async def store() -> None:
        async with open_store(f"sqlite:///{folder / 'sessions.db'}") as opened:
            waiting: list[Coroutine[Any, Any, Session]] = []
            for session_id, entries in sessions.items():
                waiting.append(opened.create_session(session_id, entries=tuple(entries)))
                if len(waiting) == AT_ONCE:
                    await asyncio.gather(*waiting)
                    waiting.clear()
            await asyncio.gather(*waiting)

    # Beside the event loop that drives the browser.
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, store()).result()


def chain(messages: Iterable[Message]) -> list[Draft]:
    """The messages, each grown from the one before."""
    placed: list[Draft] = []
    parent_id = None
    for message in messages:
        each = Message(
            message.role,
            message.parts,
            meta=message.meta,
            end=message.end,
            id=message.id,
            parent_id=parent_id,
        )
        placed.append(each)
        parent_id = each.id
    return placed


def long_talk(turns: int) -> list[Draft]:
    """So many questions and answers, numbered, some with a tool between them."""
    said: list[Message] = []
    for n in range(turns):
        said.append(Message("user", (Text(f"question {n}"),), id=f"q{n}"))
        if n % 5 == 3:
            call = ToolCall(f"c{n}", "read_file", {"path": f"src/part_{n}.py"})
            said.append(Message("assistant", (Reasoning(f"look at {n}"), call), id=f"t{n}"))
            result = ToolResult(f"c{n}", (Text("line\n" * (n % 30)),), name="read_file")
            said.append(Message("tool", (result,), id=f"r{n}"))
        words = " ".join(f"word{k}" for k in range(10 + (n * 37) % 120))
        said.append(Message("assistant", (Text(f"answer {n}\n\n{words}"),), id=f"a{n}"))
    return chain(said)


def ask(client: httpx.Client, session_id: str, *steps: Any, text: str | None = None) -> str:
    """Sends a script, or a text that is said back; the id of the message."""
    content = text if text is not None else write_script(*(steps or (Say("ok"),)))
    answer = client.post(f"/v1/sessions/{session_id}/messages", json={"text": content})
    answer.raise_for_status()
    return str(answer.json()["message_id"])


def until(client: httpx.Client, session_id: str, status: str, *, within_s: float = 30) -> None:
    """Waits until the session has this status."""
    deadline = time.monotonic() + within_s
    while client.get(f"/v1/sessions/{session_id}").json()["status"] != status:
        assert time.monotonic() < deadline, f"{session_id} is never {status}"
        time.sleep(0.05)


def path_ids(client: httpx.Client, session_id: str) -> list[str]:
    """The ids of the active path's entries, root first, without tool results."""
    page = client.get(f"/v1/sessions/{session_id}/transcript", params={"limit": 500}).json()
    return [each["id"] for each in page["entries"] if each.get("role") != "tool"]
