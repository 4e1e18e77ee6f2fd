"""Every write, sync and truncation of a scenario fails once: nothing acknowledged is lost.

The faults come from a VFS under SQLite; all else is real. A failed verb says either that nothing
was stored, or that it may have been; after that the store goes on from what the file says.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import apsw
import pytest

from perdure.codec import Entry
from perdure.errors import AppendUncertainError, SessionExistsError, StoreUnavailableError
from perdure.stores.sqlite import SqliteStore, ledger
from perdure.testing.store_cases import messages, raws

Fault = Literal["write", "sync"]


class FaultyFile(apsw.VFSFile):
    def __init__(self, vfs: "FaultyVfs", name: object, flags: list[int]) -> None:
        self.vfs = vfs
        super().__init__("unix", name, flags)  # type: ignore[arg-type]  # as SQLite hands it over

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - SQLite's name
        self.vfs.step("write")
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802 - SQLite's name
        self.vfs.step("sync")
        super().xSync(flags)


class FaultyVfs(apsw.VFS):
    """SQLite's default VFS, until the step that is to fail; `count` steps have been seen."""

    def __init__(self) -> None:
        self.kind: Fault = "write"
        self.fails_at = 0
        self.error: type[apsw.Error] = apsw.IOError
        self.count = 0
        super().__init__("faulty", "unix", makedefault=True)

    def arm(self, kind: Fault, fails_at: int, error: type[apsw.Error]) -> None:
        self.kind, self.fails_at, self.error, self.count = kind, fails_at, error, 0

    def step(self, kind: Fault) -> None:
        if kind == self.kind:
            self.count += 1
            if self.count == self.fails_at:
                raise self.error("a fault that the test asked for")

    def xOpen(self, name: object, flags: list[int]) -> FaultyFile:  # noqa: N802 - SQLite's name
        return FaultyFile(self, name, flags)


@pytest.fixture
def vfs() -> Iterator[FaultyVfs]:
    faulty = FaultyVfs()
    yield faulty
    faulty.unregister()


async def scenario(store: SqliteStore, acknowledged: dict[str, list[Entry]]) -> None:
    """Creates, appends in groups, across the index border; each verb is retried until it holds."""

    async def append(name: str, batch: list[Entry]) -> None:
        for _ in range(3):
            try:
                await store.append_entries(name, batch)
            except AppendUncertainError:
                continue
            except StoreUnavailableError:
                there = {stored.id for stored in await store.load_entries(name)}
                assert there.isdisjoint(entry.id for entry in batch)
                continue
            acknowledged[name] += batch
            return
        raise AssertionError("an append failed three times for one fault")

    for name in ("a", "b"):
        acknowledged[name] = []
        for _ in range(3):
            try:
                await store.create_session(name)
            except (AppendUncertainError, StoreUnavailableError):
                continue
            except SessionExistsError:
                pass
            break
    for n in range(3):
        await asyncio.gather(*(append(name, messages(2, f"{name}{n}_")) for name in acknowledged))
    await append("a", messages(20, "many"))


async def run_with(vfs: FaultyVfs, path: Path) -> bool:
    """Runs the scenario on a new file; returns whether the fault struck."""
    acknowledged: dict[str, list[Entry]] = {}
    # Where writes fail, real syncs between them would only make the test slow.
    async with SqliteStore(path, synchronous="full" if vfs.kind == "sync" else "off") as store:
        await scenario(store, acknowledged)
        for name, batches in acknowledged.items():
            assert sorted(raws(await store.load_entries(name))) == sorted(raws(batches))
    has_struck = vfs.count >= vfs.fails_at
    vfs.arm("write", 0, apsw.IOError)
    async with SqliteStore(path) as store:
        assert await store.session_ids() == ("a", "b")
        for name, batches in acknowledged.items():
            assert sorted(raws(await store.load_entries(name))) == sorted(raws(batches))
            await store.verify_session(name)
    return has_struck


@pytest.mark.parametrize("error", [apsw.IOError, apsw.FullError])
@pytest.mark.parametrize("kind", ["write", "sync"])
async def test_whatever_fails_nothing_acknowledged_is_lost(
    tmp_path: Path,
    vfs: FaultyVfs,
    monkeypatch: pytest.MonkeyPatch,
    kind: Fault,
    error: type[apsw.Error],
) -> None:
    monkeypatch.setattr(ledger, "TAIL_LENGTH", 8)
    has_struck, fails_at = True, 0
    while has_struck:
        fails_at += 1
        vfs.arm(kind, fails_at, error)
        has_struck = await run_with(vfs, tmp_path / f"{fails_at}.db")
    assert fails_at > 10
