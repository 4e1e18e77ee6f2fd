"""Every system call of every scenario fails once, and three times in a row: nothing is lost.

After the fault the store goes on, each verb retried as its error says; and then the power is lost
too, at every step since, with a system that takes the pages of a failed sync for written.
"""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

from perdure.stores.jsonl import JsonlStore
from tests.faults import scenario
from tests.faults.disk import KINDS, FaultyDisk
from tests.faults.jsonl_check import check_folder
from tests.faults.power import Detail, Power
from tests.faults.record import Known, Recorder
from tests.faults.test_jsonl_power import IS_THOROUGH, SCENARIOS, check_every_image

ERRORS = [errno.EIO, errno.ENOSPC, errno.EINTR] if IS_THOROUGH else [errno.EIO]
CHANGING = {"write", "short", "write_at", "truncate", "sync_data", "sync_names", "link", "unlink"}
CASES = [
    (script, kind, times)
    for script in SCENARIOS
    for kind in KINDS
    for times in (1, 3)
    if IS_THOROUGH or times == 1 or (script is scenario.verbs and kind in CHANGING)
]
COARSE = Detail(prefix_step=200, pages=2, stale=False)


def known_of(disk: FaultyDisk) -> Known:
    """What was acknowledged in the end."""
    power, known = Power(), Known()
    for happened in disk.trace:
        happened(power, known)
    return known


async def strike(root: Path, script: scenario.Scenario, disk: FaultyDisk) -> None:
    async with JsonlStore(root / "store", disk=disk) as store:
        await script(Recorder(store, disk.note))
        has_struck, disk.fault.times = disk.fault.has_struck, 0
        known = known_of(disk)
        for session_id in known.session_ids():
            # The store that met the fault shows what a new process will find.
            known.check(session_id, await store.load_entries(session_id))
            await store.verify_session(session_id)
    disk.fault.kind = disk.fault.kind if has_struck else ""
    names = [path.name for path in (root / "store").iterdir()]
    assert not [name for name in names if name.endswith(".tmp")] or disk.fault.kind == "unlink"


@pytest.mark.may_block
@pytest.mark.parametrize(("script", "kind", "times"), CASES)
async def test_whichever_call_fails_nothing_acknowledged_is_lost(
    tmp_path: Path, script: scenario.Scenario, kind: str, times: int
) -> None:
    struck = 0
    step = 1 if IS_THOROUGH or kind in CHANGING else 3
    for error in ERRORS:
        for at in range(1, 1000, step):
            root = tmp_path / "root"
            root.mkdir()
            disk = FaultyDisk(str(root))
            disk.fault.kind, disk.fault.at = kind, at
            disk.fault.times, disk.fault.error = times, error
            try:
                await strike(root, script, disk)
                if disk.fault.kind and kind in CHANGING:
                    since = disk.struck_at or 0
                    for loses in (True, False) if kind == "sync_data" else (True,):
                        (tmp_path / "scratch").mkdir()
                        check_every_image(
                            *(disk, tmp_path / "scratch", COARSE),
                            since=since,
                            failed_sync_loses=loses,
                        )
                        shutil.rmtree(tmp_path / "scratch")
                known = known_of(disk)
                assert check_folder(root / "store", known, may_be_damaged=False) == 0
            except AssertionError as failure:
                raise AssertionError(f"{kind} {at}: {failure}") from failure
            shutil.rmtree(root)
            if not disk.fault.kind:
                break
            struck += 1
    assert struck > 0 or kind in {"write_at", "truncate"}
