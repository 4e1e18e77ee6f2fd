"""The power is lost after every single call: nothing acknowledged is, whatever the disk shows."""

from __future__ import annotations

import itertools
import os
import shutil
from pathlib import Path

import pytest

from perdure.errors import SessionExistsError
from perdure.salvage import salvage_session
from perdure.stores.jsonl import JsonlStore
from perdure.testing.store_cases import messages
from tests.faults import scenario
from tests.faults.disk import FaultyDisk
from tests.faults.jsonl_check import check_folder, lay
from tests.faults.power import Detail, Power
from tests.faults.record import Asked, Known, Recorder

IS_THOROUGH = int(os.environ.get("PERDURE_CRASH_ROUNDS", "0")) >= 200
DETAIL = Detail(prefix_step=1, pages=7) if IS_THOROUGH else Detail(prefix_step=5, pages=4)


async def torn(store: Recorder) -> None:
    """Another process dies in mid-write, twice; the next append cuts that off."""
    disk = store.note.__self__  # type: ignore[attr-defined]  # a bound method
    assert isinstance(disk, FaultyDisk)
    await scenario.create(store, "s", messages(2, "kept"))
    for n, tail in enumerate((b'{"id":"half a line', b"\x00" * 100 + b"{}\n")):
        disk.tear("store/s.jsonl", tail)
        await scenario.append(store, "s", messages(2, f"b{n}"))


async def salvage(store: Recorder) -> None:
    """A session is damaged, and what is sound of it is copied into a new one."""
    disk = store.note.__self__  # type: ignore[attr-defined]  # a bound method
    assert isinstance(disk, FaultyDisk)
    await scenario.create(store, "s", messages(3))
    await scenario.append(store, "s", messages(2, "b"))
    store.note("delete", Asked("s", (), creates=False))  # nothing of it is promised any more
    disk.damage("store/s.jsonl", b"m says 1", b"m \x00\x00\x00\x00")
    for _ in range(scenario.TRIES):
        try:
            salvaged = await salvage_session(store.store, "s", "new", into=store)  # type: ignore[arg-type]
        except scenario.FAILURES:
            continue
        except SessionExistsError:
            break
        assert salvaged.kept == 4
        return


async def traced(root: Path, script: scenario.Scenario) -> FaultyDisk:
    """The disk after the scenario, and all that was done to it."""
    disk = FaultyDisk(str(root))
    async with Recorder(JsonlStore(root / "store", disk=disk), disk.note) as store:
        await script(store)
    return disk


SCENARIOS = [scenario.verbs, torn, scenario.together, scenario.agent, salvage]


def check_every_image(
    disk: FaultyDisk,
    scratch: Path,
    detail: Detail,
    *,
    since: int = 0,
    failed_sync_loses: bool = True,
) -> tuple[int, int]:
    """Loses the power after every step of the trace; how many images, and damaged sessions."""
    power, known = Power(failed_sync_loses=failed_sync_loses), Known()
    numbers = itertools.count()
    seen = set()
    damaged = 0
    for step, happened in enumerate(disk.trace, 1):
        happened(power, known)
        if step < since:
            continue
        for image in power.images(detail):
            key = hash((image.key, known.key))
            if key in seen:
                continue
            seen.add(key)
            root = scratch / str(next(numbers))
            root.mkdir()
            lay(image, root)
            try:
                damaged += check_folder(root / "store", known, may_be_damaged=image.is_stale)
            except AssertionError as error:
                raise AssertionError(f"step {step}, {image.label} ({root}): {error}") from error
            shutil.rmtree(root)
    return next(numbers), damaged


@pytest.mark.may_block
@pytest.mark.parametrize("script", SCENARIOS)
async def test_nothing_acknowledged_is_lost_with_the_power(
    tmp_path: Path, script: scenario.Scenario
) -> None:
    (tmp_path / "root").mkdir()
    disk = await traced(tmp_path / "root", script)
    images, damaged = check_every_image(disk, tmp_path, DETAIL)
    assert images > 300
    assert damaged < images / 20


@pytest.mark.may_block
@pytest.mark.parametrize("name", ["sync_data", "sync_names"])
async def test_the_model_finds_a_store_that_does_not_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(FaultyDisk, name, lambda disk, fd: None)
    (tmp_path / "root").mkdir()
    disk = await traced(tmp_path / "root", scenario.verbs)
    with pytest.raises(AssertionError, match=r"acknowledged|unrecoverable"):
        check_every_image(disk, tmp_path, Detail(prefix_step=50, pages=2))
