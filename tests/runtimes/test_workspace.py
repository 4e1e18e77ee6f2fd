"""What is particular of a workspace in this process: its threads, and how it is let go of."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

from perdure.runtimes.tool import ToolFailure
from perdure.runtimes.workspace import THREADS, Workspace


async def test_a_file_system_that_hangs_holds_up_nobody_else(tmp_path: Path) -> None:
    workspace, other = Workspace(tmp_path), Workspace(tmp_path)
    go_on = threading.Event()
    hanging = [asyncio.create_task(workspace.run(go_on.wait)) for _ in range(THREADS * 2)]
    try:
        assert await other.run(os.getpid) == os.getpid()
        assert await asyncio.to_thread(os.getpid) == os.getpid()
    finally:
        go_on.set()
        await asyncio.gather(*hanging)
        workspace.close()
        other.close()


async def test_the_folder_is_let_go_of_when_nobody_uses_it_any_more(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("here")
    workspace = Workspace(tmp_path)
    began, go_on = threading.Event(), threading.Event()

    def read() -> bytes:
        with workspace.at("file") as place:
            began.set()
            go_on.wait()
            with os.fdopen(workspace.open_file(place), "rb") as file:
                return file.read()

    before = len(os.listdir("/proc/self/fd"))
    reading = asyncio.create_task(workspace.run(read))
    await asyncio.to_thread(began.wait)
    workspace.close()
    go_on.set()
    assert await reading == b"here"
    assert len(os.listdir("/proc/self/fd")) == before - 1
    with pytest.raises(ToolFailure, match="closed"), workspace.at("file"):
        pass


async def test_nothing_is_left_open(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "link").symlink_to("../../a/b")
    workspace = Workspace(tmp_path)
    before = sorted(os.listdir("/proc/self/fd"))
    for path in ("a/b/link/link/x", "a/b/../../..", "a/b", "nowhere/x", "a/b/link/link/.."):
        try:
            with workspace.at(path):
                pass
        except ToolFailure:
            continue
    assert sorted(os.listdir("/proc/self/fd")) == before
    workspace.close()
