"""`perdure show` of turns that did not go well: what became of them stands where it happened."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

import perdure
from perdure import Message, Text, ToolCall, ToolResult
from perdure.cli import main
from perdure.codec import Draft
from perdure.fact import (
    ApprovalAnswered,
    LateResult,
    LeafMoved,
    MessageDiscarded,
    RuntimeAttached,
    RuntimeLost,
    ToolDispatched,
    TurnEnded,
    TurnStarted,
)

CALL = ToolCall("c1", "run_command", {"command": "make"})
CUT = ToolResult("c1", (Text("half"),), name="run_command", is_error=True, interrupted=True)
LOST = "nothing was heard for 2 seconds"


def said(role: str, part: Text | ToolCall | ToolResult, entry_id: str, parent: str | None) -> Draft:
    assert role in ("user", "assistant", "tool")
    return Message(role, (part,), id=entry_id, parent_id=parent)  # type: ignore[arg-type]


BROKEN: list[Draft] = [
    RuntimeAttached(runtime_id="far"),
    TurnStarted(turn_id="t1", message_id="q"),
    said("user", Text("build it"), "q", None),
    said("assistant", CALL, "a1", "q"),
    ToolDispatched(
        turn_id="t1", call_id="c1", name="run_command", arguments={}, idempotency_key="k"
    ),
    RuntimeLost(runtime_id="far/7", cause=LOST),
    said("tool", CUT, "r1", "a1"),
    TurnEnded(turn_id="t1", reason="interrupted", cause="the runtime was lost"),
    LateResult(call_id="c1", parts=(Text("built\n"),)),
]
MENDED: list[Draft] = [
    *BROKEN,
    LeafMoved(from_id="r1", leaf_id="q"),
    Message("user", (Text("told before"),), meta=True, id="m", parent_id="q"),
    TurnStarted(turn_id="t2", message_id="q", resends="t1"),
    said("assistant", Text("it is built"), "a2", "m"),
    TurnEnded(turn_id="t2", reason="completed"),
]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/s.db"


def show(
    url: str, entries: Sequence[Draft], capsys: pytest.CaptureFixture[str], *options: str
) -> str:
    async def fill() -> None:
        async with perdure.open_store(url) as store:
            await store.create_session("s", entries=entries)

    asyncio.run(fill())
    assert main(["show", "s", *options, "--store", url]) == 0
    return capsys.readouterr().out


def in_order(shown: str, *pieces: str) -> None:
    at = 0
    for piece in pieces:
        assert piece in shown[at:], (piece, shown)
        at = shown.index(piece, at) + len(piece)


def test_a_lost_runtime_and_a_late_result_stand_where_they_happened(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = show(url, BROKEN, capsys)
    in_order(
        shown,
        "·· tools run in far · 20",
        "build it",
        '→ run_command {"command": "make"}',
        "·· the runtime far/7 was lost · 20",
        LOST,
        "← run_command (interrupted)",
        "half",
        "·· the turn was interrupted · 20",
        "the runtime was lost",
        "·· a result of run_command came late, and changes nothing · 20",
        "built",
    )


def test_another_attempt_is_one_place_and_can_be_shown(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = show(url, MENDED, capsys)
    in_order(
        shown,
        "build it",
        "·· another attempt, interrupted · 20",
        "the runtime was lost",
        "it called run_command",
        "a result came late",
        "perdure show s --leaf r1",
        "·· sent again · 20",
        "it is built",
    )
    assert "make" not in shown
    assert "told before" not in shown
    assert main(["show", "s", "--leaf", "r1", "--store", url]) == 0
    other = capsys.readouterr().out
    in_order(other, "make", "was lost", "(interrupted)", "came late", "built")
    assert "·· another attempt, completed" in other
    assert "it is built" not in other


def test_everything_is_the_journal_with_each_seq(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = show(url, MENDED, capsys, "--everything")
    heads = [line for line in shown.splitlines() if line.startswith("── ")]
    assert [head.split()[1] for head in heads] == [str(n + 1) for n in range(len(MENDED))]
    in_order(shown, "runtime_lost", LOST, "late_result", "built", "user (meta)", "told before")


def test_what_people_decided_is_told(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    answer = ApprovalAnswered(turn_id="t1", call_id="c1", approve=False, reason="not on a Friday")
    entries = [
        *BROKEN[1:5],
        answer,
        TurnEnded(turn_id="t1", reason="failed", cause="no more"),
        MessageDiscarded(message_id="w", why="discarded by a stop"),
    ]
    shown = show(url, entries, capsys)
    in_order(
        shown,
        "·· run_command was refused",
        "not on a Friday",
        "·· the turn failed",
        "no more",
        "·· a message that waited was discarded",
    )


def test_a_branch_that_is_not_there_is_an_error(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    show(url, BROKEN, capsys)
    assert main(["show", "s", "--leaf", "nowhere", "--store", url]) == 1
    assert "nowhere" in capsys.readouterr().err
