"""Snapshots of every schema that was released are read for ever; nothing here makes them."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from perdure.server.session.state import SCHEMA, State, decode_state, read_snapshot
from perdure.snapshot import Snapshot
from tests.golden.make_snapshot import golden_state

FILES = sorted(Path(__file__).parent.glob("[0-9]*/snapshots/schema-*.json"))


def expected(schema: int) -> State:
    """What the same journal comes to now, but for what a schema did not have."""
    state = golden_state()
    assert state.turn is not None
    if schema < 5:
        turn = replace(state.turn, waiting=())
        state = replace(state, runtime=None, remembered=(), has_started=False, turn=turn)
    if schema < 4:
        state = replace(state, owner=None)
    if schema == 1:
        assert state.turn is not None
        assert state.last_turn is not None
        return replace(
            state,
            turn=replace(state.turn, crashes=0),
            last_turn=replace(state.last_turn, crashes=0),
            title=None,
        )
    return replace(state, title=None) if schema == 2 else state


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parts[-3]}-{file.stem}")
def test_a_snapshot_of_a_released_schema_is_read(file: Path) -> None:
    schema = int(file.stem.removeprefix("schema-"))
    data = file.read_bytes()
    assert decode_state(data) == expected(schema)
    snapshot = Snapshot(9, schema, "0" * 32, data)
    assert read_snapshot(snapshot, incarnation="0" * 32, last_seq=9) == expected(schema)


def test_there_is_a_golden_snapshot_of_every_schema() -> None:
    assert {file.stem for file in FILES} == {f"schema-{n}" for n in range(1, SCHEMA + 1)}
