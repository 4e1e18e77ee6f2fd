"""Every call that SQLite makes fails once, in every scenario: nothing acknowledged is lost.

After the fault the store goes on, each verb retried as its error says; and then the power is lost
too, with a system that takes the pages of a failed sync for written.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import apsw
import pytest

from perdure.stores.sqlite import SqliteStore, ledger
from tests.faults import scenario
from tests.faults.power import Detail, Power
from tests.faults.record import Known, Recorder
from tests.faults.sqlite_check import check_file
from tests.faults.test_jsonl_power import IS_THOROUGH
from tests.faults.test_sqlite_power import check_some_images
from tests.faults.vfs import KINDS, TracedVfs

SCENARIOS = [scenario.verbs, scenario.together, scenario.deletion, scenario.agent]
ERRORS = [apsw.IOError, apsw.FullError] if IS_THOROUGH else [apsw.IOError]
LOSING = {"sync", "truncate", "short"} if IS_THOROUGH else {"sync", "truncate"}
COARSE = Detail(prefix_step=8192, pages=1, stale=False)
CASES = [
    (script, kind, times)
    for script in SCENARIOS
    for kind in KINDS
    for times in (1, 3)
    if IS_THOROUGH or times == 1 or (script is scenario.verbs and kind == "sync")
]


@pytest.fixture(autouse=True)
def _short_tail(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tail moves into the index tables every few entries."""
    monkeypatch.setattr(ledger, "TAIL_LENGTH", 8)


def known_of(vfs: TracedVfs) -> Known:
    """What was acknowledged in the end."""
    power, known = Power(), Known()
    for happened in vfs.trace:
        happened(power, known)
    return known


async def strike(path: Path, script: scenario.Scenario, vfs: TracedVfs) -> None:
    async with SqliteStore(path) as store:
        await script(Recorder(store, vfs.note))
        vfs.times = 0
        known = known_of(vfs)
        for session_id in known.session_ids():
            # The store that met the fault shows what a new process will find.
            known.check(session_id, await store.load_entries(session_id))
            await store.verify_session(session_id)


@pytest.mark.parametrize(("script", "kind", "times"), CASES)
async def test_whichever_call_fails_nothing_acknowledged_is_lost(
    tmp_path: Path, script: scenario.Scenario, kind: str, times: int
) -> None:
    struck = 0
    in_full = kind == "sync" or (kind == "write" and script is scenario.together)
    step = 1 if IS_THOROUGH or in_full else 3 if script is scenario.verbs else 9
    for error in ERRORS:
        for at in range(1, 1000, step):
            root = tmp_path / "root"
            root.mkdir()
            try:
                with TracedVfs() as vfs:
                    vfs.kind, vfs.fails_at, vfs.times, vfs.error = kind, at, times, error
                    await strike(root / "s.db", script, vfs)
                if vfs.has_struck and kind in LOSING:
                    scratch = tmp_path / "scratch"
                    scratch.mkdir()
                    for loses in (True, False) if IS_THOROUGH and kind == "sync" else (True,):
                        await check_some_images(
                            *(vfs, scratch, 200),
                            detail=COARSE,
                            steps=2 if IS_THOROUGH else 5,
                            since=vfs.struck_at or 0,
                            failed_sync_loses=loses,
                        )
                    shutil.rmtree(scratch)
                await check_file(root / "s.db", known_of(vfs))
            except AssertionError as failure:
                raise AssertionError(f"{kind} {at}: {failure}") from failure
            shutil.rmtree(root)
            if not vfs.has_struck:
                break
            struck += 1
    assert struck > 0
