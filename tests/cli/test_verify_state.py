"""`perdure verify` holds the states that a server keeps against the entries."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from perdure.cli.command import main
from perdure.entry import text
from perdure.server.session.state import State, encode_state, fold, take_snapshot
from perdure.snapshot import Snapshot
from perdure.stores.sqlite import SqliteStore


async def make(file: Path, *, lie: str) -> None:
    """A session of which a state is kept that is sound but for what `lie` says."""
    async with SqliteStore(file) as store:
        session = await store.create_session("s")
        for _ in range(4):
            await store.append_entries("s", [text("hello")])
        log = list(await store.load_entries("s"))
        truth = fold(State(), log[:2])
        false = replace(truth, leaf_id="nowhere")
        await store.put_snapshot(
            "s", take_snapshot(false if lie == "snapshot" else truth, session.incarnation)
        )
        await store.put_snapshot("s", Snapshot(3, 2, session.incarnation, b"broken: absent"))
        whole = fold(State(), log)
        if lie == "summary":
            whole = replace(whole, leaf_id="nowhere")
        await store.append_entries("s", [text("more")], summary=encode_state(whole))


@pytest.mark.parametrize("lie", ["none", "snapshot", "summary"])
async def test_a_state_that_lies_is_damage(
    tmp_path: Path, lie: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "sessions.db"
    await make(file, lie=lie)

    status = await asyncio.to_thread(main, ["verify", "--store", f"sqlite:///{file}"])
    said = capsys.readouterr().out
    assert status == (0 if lie == "none" else 1)
    assert ("is not what its entries come to" in said) is (lie != "none")
    assert (f"its {lie}" in said) is (lie != "none")
