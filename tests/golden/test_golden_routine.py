"""A routine's state of every schema that was released is read for ever."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.server.routine.state import SCHEMA, decode_state
from tests.golden.make_routine import golden_state

FILES = sorted(Path(__file__).parent.glob("*/routines/schema-*.json"))


def test_there_is_one_of_this_schema() -> None:
    assert f"schema-{SCHEMA}.json" in {file.name for file in FILES}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_state_is_read(file: Path) -> None:
    state = decode_state(file.read_bytes())
    assert state == golden_state()
    assert state is not None
    assert [run.run_id for run in state.runs] == ["2026-01-02T09:00:00Z", "asked-1"]
    assert (state.runs[0].resends, state.runs[1].attempt) == ("t6.1", 0)


def test_a_state_that_was_changed_counts_as_absent() -> None:
    data = FILES[-1].read_bytes()
    assert decode_state(data.replace(b"Berlin", b"Berlim")) is None
    assert decode_state(data[:-1]) is None
    assert decode_state(None) is None
