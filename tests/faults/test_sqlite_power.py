"""The power is lost between any two calls of SQLite's, and nothing acknowledged is."""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from perdure.errors import PerdureError
from perdure.stores.sqlite import SqliteStore, ledger
from tests.faults import scenario
from tests.faults.power import Detail, Power
from tests.faults.record import Asked, Known, Recorder
from tests.faults.sqlite_check import check_file
from tests.faults.test_jsonl_power import IS_THOROUGH
from tests.faults.vfs import TracedVfs

DETAIL = Detail(prefix_step=2048, pages=2, garbles_old_bytes=True)
FINE = Detail(prefix_step=1024, pages=3, garbles_old_bytes=True) if IS_THOROUGH else DETAIL
STRIDE = 3 if IS_THOROUGH else 16
Script = Callable[[Path, TracedVfs], Awaitable[None]]


@pytest.fixture(autouse=True)
def _short_tail(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tail moves into the index tables every few entries."""
    monkeypatch.setattr(ledger, "TAIL_LENGTH", 8)


async def verbs(path: Path, vfs: TracedVfs) -> None:
    async with SqliteStore(path) as store:
        await scenario.verbs(Recorder(store, vfs.note))


async def together(path: Path, vfs: TracedVfs) -> None:
    async with SqliteStore(path) as store:
        await scenario.together(Recorder(store, vfs.note))


async def deletion(path: Path, vfs: TracedVfs) -> None:
    async with SqliteStore(path) as store:
        await scenario.deletion(Recorder(store, vfs.note))


async def agent(path: Path, vfs: TracedVfs) -> None:
    async with SqliteStore(path) as store:
        await scenario.agent(Recorder(store, vfs.note))


async def checkpoints(path: Path, vfs: TracedVfs) -> None:
    """Several stores one after the other: each moves the log into the file and starts it anew."""
    async with SqliteStore(path) as holder:
        for script in (scenario.verbs, scenario.deletion, scenario.together):
            async with SqliteStore(path) as store:
                await script(Recorder(store, vfs.note))
            await holder.session_ids()


SCENARIOS = [verbs, together, deletion, agent, checkpoints]


def _nothing(power: Power, known: Known) -> None:
    """The end of a trace."""


async def check_some_images(
    vfs: TracedVfs,
    scratch: Path,
    stride: int,
    *,
    detail: Detail = DETAIL,
    steps: int = 1,
    since: int = 0,
    failed_sync_loses: bool = True,
) -> int:
    """Loses the power before each sync, change of names and answer; returns how many images.

    Where all bytes of the last writes are there, or none, is always looked at; of the other images
    each `stride`-th; of the moments each `steps`-th.
    """
    power, known = Power(failed_sync_loses=failed_sync_loses), Known()
    seen = set()
    count = checked = moments = 0
    for step, happened in enumerate([*vfs.trace, _nothing]):
        if step >= since and "change" not in happened.__code__.co_names:
            moments += 1
            if moments % steps:
                happened(power, known)
                continue
            for n, image in enumerate(power.images(detail)):
                count += 1
                if n > 1 and count % stride:
                    continue
                key = hash((image.key, known.key))
                if key in seen or "s.db" not in image.files:
                    continue
                seen.add(key)
                root = scratch / f"{step}-{n}"
                root.mkdir()
                for name, data in image.files.items():
                    (root / name).write_bytes(data)
                try:
                    await check_file(root / "s.db", known)
                except (AssertionError, PerdureError) as error:
                    text = f"step {step}, {image.label} ({root}): {error!r}"
                    raise AssertionError(text) from error
                shutil.rmtree(root)
                checked += 1
        happened(power, known)
    return checked


@pytest.mark.parametrize("script", SCENARIOS)
async def test_nothing_acknowledged_is_lost_with_the_power(tmp_path: Path, script: Script) -> None:
    (tmp_path / "root").mkdir()
    with TracedVfs() as vfs:
        await script(tmp_path / "root" / "s.db", vfs)
    checked = await check_some_images(vfs, tmp_path, STRIDE, detail=FINE)
    assert checked > 60


async def test_with_fewer_syncs_the_newest_may_be_gone_and_the_file_is_sound(
    tmp_path: Path,
) -> None:
    (tmp_path / "root").mkdir()
    with TracedVfs() as vfs:

        def unpromised(kind: str, asked: Asked, first_seq: int = 1) -> None:
            if kind != "ack":
                vfs.note(kind, asked, first_seq)

        async with SqliteStore(tmp_path / "root" / "s.db", synchronous="normal") as store:
            await scenario.verbs(Recorder(store, unpromised))
    assert await check_some_images(vfs, tmp_path, STRIDE, detail=FINE) > 10


async def test_the_model_finds_a_store_that_does_not_sync(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    with TracedVfs() as vfs:
        async with SqliteStore(tmp_path / "root" / "s.db", synchronous="off") as store:
            await scenario.verbs(Recorder(store, vfs.note))
    with pytest.raises(AssertionError, match=r"acknowledged|damaged"):
        await check_some_images(vfs, tmp_path, STRIDE)
