"""A store with one conversation in it, for the verbs that read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

import perdure
from perdure import Custom, Message, Text, ToolCall, ToolResult

HOSTILE = "title: \x1b]0;owned\x07 colour: \x1b[31m csi: \x9b2J back: \r over: \u202eevil"


@dataclass(frozen=True, slots=True)
class Kept:
    """Where the conversation is, and what of it."""

    folder: Path
    url: str
    leaf_id: str
    raws: list[str]


@pytest.fixture(params=["sqlite:///sessions.db", "jsonl:///sessions"])
async def kept(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Kept:
    monkeypatch.chdir(tmp_path)
    for name in ("PERDURE_STORE", "PERDURE_DATA"):
        monkeypatch.delenv(name, raising=False)
    async with perdure.open_store(request.param) as store:
        agent = await perdure.open("user/42", store=store)
        await agent.append("Where is order 1234?")
        call = ToolCall("c1", "find_order", {"number": 1234})
        asked = await agent.append(Message("assistant", (Text("Let me look."), call)))
        await agent.append(Message("tool", (ToolResult("c1", (Text("Hamburg\n"),), name="find"),)))
        await agent.append(perdure.text("injected context", meta=True), HOSTILE)
        agent.branch(asked.entries[-1].id)
        await agent.append("Never mind.", Custom(kind="note", data={"stars": 5}))
        assert agent.leaf_id is not None
        raws = [stored.raw.decode() for stored in agent.entries()]
        return Kept(tmp_path, request.param, agent.leaf_id, raws)
