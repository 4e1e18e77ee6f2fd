"""Every write, sync and cut of a scenario is failed once: what was acknowledged stays."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from perdure.codec import Entry, read_entry
from perdure.errors import (
    AppendRejectedError,
    AppendUncertainError,
    SessionExistsError,
    SessionNotFoundError,
    StoreUnavailableError,
)
from perdure.stores.jsonl import JsonlStore
from perdure.testing.store_cases import messages, raws, seqs

BATCHES = [messages(1, "a"), messages(3, "b"), messages(1, "c"), messages(2, "d")]


class FaultyDisk:
    """Fails the n-th call of a kind that the store's threads make, and all like it for a while."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.kinds: tuple[str, ...] = ()
        self.fail_at = 0
        self.times = 1
        self.calls = 0
        self.short_bytes: int | None = None
        for kind in ("write", "fdatasync", "fsync", "ftruncate", "link", "unlink"):
            monkeypatch.setattr(os, kind, self._faulty(kind, getattr(os, kind)))

    def arm(
        self, *kinds: str, fail_at: int, times: int = 1, short_bytes: int | None = None
    ) -> None:
        self.kinds, self.fail_at, self.times, self.short_bytes = kinds, fail_at, times, short_bytes
        self.calls = 0

    def disarm(self) -> bool:
        """Ends the fault; says whether it came to pass."""
        came = bool(self.kinds) and self.calls >= self.fail_at
        self.kinds = ()
        return came

    def _faulty(self, kind: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            ours = threading.current_thread().name.startswith("perdure-jsonl")
            if ours and kind in self.kinds:
                self.calls += 1
                if self.fail_at <= self.calls < self.fail_at + self.times:
                    if kind == "write" and self.short_bytes and self.calls == self.fail_at:
                        return real(args[0], bytes(args[1])[: self.short_bytes])
                    raise OSError(errno.ENOSPC if kind == "write" else errno.EIO, "injected")
            return real(*args, **options)

        return call


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> FaultyDisk:
    return FaultyDisk(monkeypatch)


async def live(root: Path) -> tuple[list[Sequence[Entry]], BaseException | None]:
    """Creates and appends until something fails: what was acknowledged, and the failure."""
    acknowledged: list[Sequence[Entry]] = []
    async with JsonlStore(root) as store:
        try:
            await store.create_session("s", entries=messages(2))
            acknowledged.append(messages(2))
            for batch in BATCHES:
                await store.append_entries("s", batch)
                acknowledged.append(batch)
        except (AppendUncertainError, StoreUnavailableError) as error:
            return acknowledged, error
    return acknowledged, None


async def go_on(root: Path, acknowledged: list[Sequence[Entry]], failure: BaseException) -> None:
    """Retries everything on a healthy disk, in the same store's file, and holds it to account."""
    async with JsonlStore(root) as store:
        try:
            stored = [entry.entry for entry in await store.load_entries("s")]
        except SessionNotFoundError:
            stored = []
        sizes = [0]
        for batch in (messages(2), *BATCHES):
            sizes.append(sizes[-1] + len(batch))
        kept = sum(map(len, acknowledged))
        assert len(stored) in sizes
        assert len(stored) >= kept
        if isinstance(failure, StoreUnavailableError):
            assert len(stored) == kept
        try:
            await store.create_session("s", entries=messages(2))
        except SessionExistsError:
            assert stored
        for batch in BATCHES:
            await store.append_entries("s", batch)
        everything = await store.load_entries("s")
        assert raws(everything) == raws([*messages(2), *(e for batch in BATCHES for e in batch)])
        assert seqs(everything) == list(range(1, 10))
        await store.verify_session("s")
    left = [name for name in os.listdir(root) if name != "s.jsonl" and ".torn-" not in name]
    assert left == []


@pytest.mark.parametrize("times", [1, 1000])
@pytest.mark.parametrize("kind", ["write", "fdatasync", "fsync", "link"])
async def test_a_call_that_fails_loses_nothing(
    tmp_path: Path, disk: FaultyDisk, kind: str, times: int
) -> None:
    failed = 0
    for n in range(1, 40):
        root = tmp_path / f"{n}"
        disk.arm(kind, fail_at=n, times=times)
        acknowledged, failure = await live(root)
        if not disk.disarm():
            break
        assert failure is not None
        failed += 1
        await go_on(root, acknowledged, failure)
    assert failed >= {"write": 5, "fdatasync": 5, "fsync": 3, "link": 1}[kind]
    assert failure is None


@pytest.mark.parametrize("short_bytes", [1, 100, 250])
async def test_a_disk_that_fills_up_in_mid_write_stores_nothing_of_the_batch(
    tmp_path: Path, disk: FaultyDisk, short_bytes: int
) -> None:
    for n in range(1, 6):
        root = tmp_path / f"{n}"
        disk.arm("write", fail_at=n, times=3, short_bytes=short_bytes)
        acknowledged, failure = await live(root)
        assert disk.disarm()
        assert isinstance(failure, StoreUnavailableError)
        await go_on(root, acknowledged, failure)
        assert os.listdir(root) == ["s.jsonl"]


async def test_what_could_not_be_cut_off_is_cut_before_the_next_append(
    tmp_path: Path, disk: FaultyDisk
) -> None:
    disk.arm("write", "ftruncate", fail_at=3, times=3, short_bytes=200)
    acknowledged, failure = await live(tmp_path / "r")
    assert disk.disarm()
    assert isinstance(failure, AppendUncertainError)
    assert len(acknowledged) == 2
    await go_on(tmp_path / "r", acknowledged, failure)
    assert sorted(os.listdir(tmp_path / "r")) == ["s.jsonl", "s.torn-1"]


async def test_after_a_failed_sync_a_retry_is_acknowledged_only_when_a_sync_succeeds(
    tmp_path: Path, disk: FaultyDisk
) -> None:
    async with JsonlStore(tmp_path) as store:
        await store.create_session("s")
        await store.append_entries("s", messages(1, "a"))
        disk.arm("fdatasync", fail_at=1, times=3)
        for _ in range(3):
            with pytest.raises(AppendUncertainError):
                await store.append_entries("s", messages(2, "b"))
        assert (await store.append_entries("s", messages(2, "b"), expected_seq=1)).first_seq == 2
        assert disk.disarm()
        assert seqs(await store.load_entries("s")) == [1, 2, 3]


async def test_a_torn_tail_that_cannot_be_kept_is_not_cut(tmp_path: Path, disk: FaultyDisk) -> None:
    async with JsonlStore(tmp_path) as store:
        await store.create_session("s", entries=messages(2))
        path = tmp_path / "s.jsonl"
        whole = path.read_bytes() + b"torn"
        path.write_bytes(whole)
        for fail_at in (1, 2):
            disk.arm("write", "fdatasync", fail_at=fail_at)
            with pytest.raises(StoreUnavailableError):
                await store.append_entries("s", messages(1, "b"))
            assert disk.disarm()
            assert path.read_bytes() == whole
            assert os.listdir(tmp_path) == ["s.jsonl"]
        assert (await store.append_entries("s", messages(1, "b"))).first_seq == 3
        assert (tmp_path / "s.torn-1").read_bytes() == b"torn"


async def test_without_durability_nothing_is_synced(tmp_path: Path, disk: FaultyDisk) -> None:
    disk.arm("fdatasync", "fsync", fail_at=1, times=1000)
    async with JsonlStore(tmp_path, durable=False) as store:
        await store.create_session("s", entries=messages(2))
        await store.append_entries("s", messages(1, "b"))
        assert seqs(await store.load_entries("s")) == [1, 2, 3]
    assert not disk.disarm()


async def test_nobody_reads_what_is_not_synced_yet_and_nobody_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s.jsonl"
    async with JsonlStore(tmp_path) as store:
        await store.create_session("s", entries=messages(2))
        await store.append_entries("s", messages(1, "a"))
        written, may_sync, real = asyncio.Event(), threading.Event(), os.fdatasync
        loop = asyncio.get_running_loop()

        def held(fd: int) -> None:
            loop.call_soon_threadsafe(written.set)
            may_sync.wait(20)
            real(fd)

        with monkeypatch.context() as patch:
            patch.setattr(os, "fdatasync", held)
            appending = asyncio.create_task(store.append_entries("s", messages(2, "b")))
            await asyncio.wait_for(written.wait(), 20)
            assert b'"b1"' in path.read_bytes()
            assert seqs(await store.load_entries("s")) == [1, 2, 3]
            assert seqs(await store.load_entries("s", after=2)) == [3]
            assert seqs(await store.load_entries("s", after=3)) == []
            assert not appending.done()
            may_sync.set()
            await appending
        assert seqs(await store.load_entries("s", after=2)) == [3, 4, 5]


async def test_an_entry_of_two_lines_is_refused(tmp_path: Path) -> None:
    raw = b'{"type":"odd",\n"id":"x","created_at":"2026-01-01T00:00:00Z"}'
    async with JsonlStore(tmp_path) as store:
        await store.create_session("s")
        for bad in (read_entry(raw), read_entry(raw.replace(b"\n", b"") + b" ")):
            with pytest.raises(AppendRejectedError, match="one line"):
                await store.append_entries("s", [bad])
            with pytest.raises(AppendRejectedError, match="one line"):
                await store.create_session("t", entries=[bad])
        assert os.listdir(tmp_path) == ["s.jsonl"]


def test_a_store_goes_on_in_another_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = JsonlStore(tmp_path)
    may_sync, real = threading.Event(), os.fdatasync

    def held(fd: int) -> None:
        may_sync.wait(20)
        real(fd)

    async def leave() -> None:
        await store.create_session("s")
        await store.append_entries("s", messages(1, "a"))
        monkeypatch.setattr(os, "fdatasync", held)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(store.append_entries("s", messages(1, "b")), 0.05)

    async def come_back() -> None:
        may_sync.set()
        async with store:
            receipt = await store.append_entries("s", messages(1, "b"), expected_seq=1)
            assert receipt.first_seq == 2
            assert seqs(await store.load_entries("s")) == [1, 2]

    asyncio.run(leave())
    asyncio.run(come_back())
