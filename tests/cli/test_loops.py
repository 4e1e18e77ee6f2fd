"""`perdure loops`, and the same by HTTP."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perdure.cli import main
from perdure.loop import Loop
from perdure.server.config import Settings
from perdure.server.named_loop import NamedLoops
from tests.server.live import running

TABLES = """
[loops.clerk]
kind = "model"
model = "anthropic:claude-sonnet-5-5"

[loops.sh]
kind = "shell"
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "PERDURE_MODEL"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "codex-acp").write_text("#!/bin/sh\n")
    (tmp_path / "bin" / "codex-acp").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "perdure.toml").write_text(TABLES)


def test_it_says_what_can_answer_and_how_to_enable_the_rest(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["loops"]) == 0
    lines = [line.split(maxsplit=2) for line in capsys.readouterr().out.splitlines() if line]
    said = {line[0]: line[1:] for line in lines}
    assert said["clerk"] == ["model", "set ANTHROPIC_API_KEY"]
    assert said["sh"] == ["shell", "ready"]
    assert said["shell"][0] == "(default)"
    assert said["codex"] == ["acp:codex", "ready"]
    assert "npm install -g @agentclientprotocol/claude-agent-acp" in said["claude"][1]
    assert said["anthropic"] == ["anthropic:claude-sonnet-5-5", "set ANTHROPIC_API_KEY"]


def test_it_says_it_to_programs_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["loops", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["default"] == "shell"
    assert [each["name"] for each in found["loops"]] == ["clerk", "sh", "shell"]
    assert {each["name"]: each["is_usable"] for each in found["vendors"]}["codex"] is True


def test_a_table_that_is_wrong_is_a_usage_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "perdure.toml").write_text('[loops.x]\nkind = "magic"\n')
    assert main(["loops"]) == 2
    assert "[loops.x] in perdure.toml" in capsys.readouterr().err


async def test_a_server_says_the_same_and_a_session_chooses_by_name(tmp_path: Path) -> None:
    def never() -> Loop:
        raise AssertionError

    tables = {"loops": {"sh": {"kind": "shell", "workspace": str(tmp_path)}}}
    loops = NamedLoops(Settings(loop="sh", tables=tables), registered={"ours": never})
    async with running(loops=loops) as server:
        found = (await server.client.get("/v1/loops")).json()
        assert found["default"] == "sh"
        assert [each["name"] for each in found["loops"]] == ["sh", "ours", "shell"]
        assert found["loops"][0]["is_default"] is True
        made = await server.client.post("/v1/sessions", json={"session_id": "a", "loop": "sh"})
        assert made.status_code == 201
        refused = await server.client.post("/v1/sessions", json={"session_id": "b", "loop": "no"})
        assert refused.status_code == 422
        assert "sh, ours, shell" in refused.json()["detail"]
