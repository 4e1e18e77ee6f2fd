"""kill -9 at enumerated points: what a process was told is there, whatever it was doing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.faults.child import known_from
from tests.faults.conftest import Children
from tests.faults.jsonl_check import check_folder
from tests.faults.sqlite_check import check_file
from tests.faults.test_jsonl_power import IS_THOROUGH


@pytest.mark.may_block
@pytest.mark.parametrize("kind", ["jsonl", "sqlite"])
async def test_killed_at_any_call_nothing_acknowledged_is_lost(
    tmp_path: Path, children: Children, kind: str
) -> None:
    step = 1 if IS_THOROUGH else 5
    child = await children.start("kill-each", kind, tmp_path, 1, step)
    output, _ = await asyncio.wait_for(child.communicate(), 400)
    assert child.returncode == 0
    moments = [int(line) for line in output.split()]
    assert len(moments) > 12
    for at in moments:
        folder = tmp_path / str(at)
        known = known_from(folder / "notes")
        if kind == "jsonl":
            assert check_folder(folder / "store", known, may_be_damaged=False) == 0
        else:
            await check_file(folder / "s.db", known)
