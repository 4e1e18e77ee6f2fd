"""Cases of the Runtime contract: no tool for files leaves the workspace, and none gets stuck."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

from perdure.testing.runtime_cases import RuntimeCases, use

SECRET = "what nobody inside may read"

LEADING_OUT = (
    "../ws-beside/secret",
    "a/../../ws-beside/secret",
    "{beside}/secret",
    "{inside}/../ws-beside/secret",
    "file-link",
    "folder-link/secret",
    "folder-link/../ws-beside/secret",
    "absolute-link",
    "a/up/ws-beside/secret",
    "chain-1",
    "/proc/self/root{beside}/secret",
    "descriptor/0",
)
NO_FILES = ("a\0b", "x" * 300, "a\ud800", "loop", "", "pipe", "pipe/x", "d")


def outside(tmp_path: Path) -> tuple[Path, Path]:
    """A workspace, and beside it a folder with a secret; their names begin alike."""
    inside, beside = tmp_path / "ws", tmp_path / "ws-beside"
    inside.mkdir()
    beside.mkdir()
    (beside / "secret").write_text(SECRET)
    return inside, beside


class EscapeCases(RuntimeCases):
    """What the tools for files promise of paths."""

    async def test_no_path_leads_out(self, tmp_path: Path) -> None:
        inside, beside = outside(tmp_path)
        (inside / "a").mkdir()
        (inside / "file-link").symlink_to("../ws-beside/secret")
        (inside / "folder-link").symlink_to("../ws-beside")
        (inside / "absolute-link").symlink_to(beside / "secret")
        (inside / "a" / "up").symlink_to("../..")
        (inside / "chain-1").symlink_to("chain-2")
        (inside / "chain-2").symlink_to("file-link")
        (inside / "descriptor").symlink_to("/proc/self/fd")
        async with self.open_runtime(inside) as runtime:
            for path in LEADING_OUT:
                asked = path.format(inside=inside, beside=beside)
                read = await use(runtime, "read_file", path=asked)
                assert read.is_error, path
                assert SECRET not in read.text, path
                edited = await use(runtime, "edit_file", path=asked, old="what", new="x")
                assert edited.is_error, path
                assert (await use(runtime, "write_file", path=asked, content="x")).is_error, path
                if "/" in path:
                    folder = asked.rpartition("/")[0]
                    assert (await use(runtime, "list_files", path=folder)).is_error, path
                found = await use(runtime, "search_files", pattern="nobody", path=asked)
                assert SECRET not in found.text, path
        assert (beside / "secret").read_text() == SECRET
        assert os.listdir(beside) == ["secret"]

    async def test_a_search_and_a_listing_follow_no_link_out(self, tmp_path: Path) -> None:
        inside, beside = outside(tmp_path)
        (inside / "folder-link").symlink_to(beside)
        (inside / "file-link").symlink_to(beside / "secret")
        async with self.open_runtime(inside) as runtime:
            found = await use(runtime, "search_files", pattern="nobody")
            assert SECRET not in found.text
            listed = await use(runtime, "list_files", depth=5)
            assert listed.text.split("\n") == [
                f"file-link -> {beside / 'secret'}",
                f"folder-link -> {beside}",
            ]

    async def test_links_inside_are_followed(self, tmp_path: Path) -> None:
        inside, _ = outside(tmp_path)
        (inside / "a" / "b").mkdir(parents=True)
        (inside / "a" / "file").write_text("here")
        (inside / "link").symlink_to("a/b/../file")
        (inside / "back").symlink_to(inside / "a")
        async with self.open_runtime(inside) as runtime:
            for path in ("link", "back/file", f"{inside}/a/file", "a/b/../../a/./file", "a//file"):
                assert (await use(runtime, "read_file", path=path)).text == "here", path
            await use(runtime, "write_file", path="link", content="there")
        assert (inside / "link").is_symlink()
        assert (inside / "a" / "file").read_text() == "there"

    async def test_a_folder_that_turns_into_a_link_leads_nowhere(self, tmp_path: Path) -> None:
        inside, beside = outside(tmp_path)
        (inside / "door").mkdir()
        (inside / "door" / "secret").write_text("harmless")
        (inside / "trap").symlink_to("../ws-beside")
        over = threading.Event()

        def swap() -> None:
            door, trap, room = inside / "door", inside / "trap", inside / "room"
            while not over.is_set():
                os.rename(door, room)
                os.rename(trap, door)
                os.rename(door, trap)
                os.rename(room, door)

        swapping = asyncio.create_task(asyncio.to_thread(swap))
        try:
            async with self.open_runtime(inside) as runtime:
                came_in = False
                for _ in range(200):
                    read = await use(runtime, "read_file", path="door/secret")
                    assert SECRET not in read.text
                    came_in |= read.text == "harmless"
                    await use(runtime, "edit_file", path="door/secret", old="h", new="h")
                assert came_in
        finally:
            over.set()
            await swapping
        assert (beside / "secret").read_text() == SECRET
        assert os.listdir(beside) == ["secret"]

    async def test_what_is_no_path_to_a_file_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "loop").symlink_to("loop")
        os.mkfifo(tmp_path / "pipe")
        (tmp_path / "d").mkdir()
        before = sorted(os.listdir(tmp_path))
        async with self.open_runtime(tmp_path) as runtime:
            for path in NO_FILES:
                read = await use(runtime, "read_file", path=path)
                assert read.is_error, path
                assert read.text, path
                assert (await use(runtime, "edit_file", path=path, old="a", new="b")).is_error, path
                assert (await use(runtime, "write_file", path=path, content="x")).is_error, path
                assert sorted(os.listdir(tmp_path)) == before
            deep = "x/" * 3000 + "y"
            assert (await use(runtime, "read_file", path=deep)).is_error
            assert (await use(runtime, "write_file", path=deep, content="x")).is_error
            assert (await use(runtime, "run_command", command="echo on")).text == "on\n"
