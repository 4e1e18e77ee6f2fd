from __future__ import annotations

import asyncio
import os
import tracemalloc
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from io import BytesIO
from pathlib import Path

import pytest

from perdure.entry import ToolCall
from perdure.runtimes import search_program
from perdure.runtimes.contract import CallOrigin, Runtime
from perdure.runtimes.file_tool import MAX_FILE_BYTES
from perdure.runtimes.local import open_local
from perdure.runtimes.tool import Tool
from perdure.testing import RuntimeContract
from perdure.testing.runtime_cases import use


class TestLocalRuntime(RuntimeContract):
    @asynccontextmanager
    async def open_runtime(self, workspace: Path) -> AsyncIterator[Runtime]:
        runtime = await open_local(workspace)
        try:
            yield runtime
        finally:
            await runtime.close()


class Source:
    """A source of no tools, which may not let go."""

    def __init__(self, name: str, error: Exception | None = None) -> None:
        self.name = name
        self.is_closed = False
        self._error = error

    async def tools(self) -> Sequence[Tool]:
        return ()

    async def close(self) -> None:
        self.is_closed = True
        if self._error is not None:
            raise self._error


async def test_a_source_that_does_not_let_go_keeps_nothing_else_open(tmp_path: Path) -> None:
    sources = Source("a"), Source("b", OSError("stuck")), Source("c")
    runtime = await open_local(tmp_path, sources=sources)
    with pytest.raises(OSError, match="stuck"):
        await runtime.close()
    assert all(source.is_closed for source in sources)
    with pytest.raises(OSError, match="Bad file descriptor"):
        runtime._workspace._walk("x", ExitStack(), make_parents=False)


@pytest.mark.parametrize("pattern", ["(", "a{9999999999999}"])
async def test_a_pattern_that_cannot_be_is_refused_in_words(tmp_path: Path, pattern: str) -> None:
    async with TestLocalRuntime().open_runtime(tmp_path) as runtime:
        told = await use(runtime, "search_files", pattern=pattern)
        assert told.is_error
        assert told.text.startswith("the pattern is not valid")


async def test_one_file_is_searched_whatever_its_name(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    for name in ("[a]*.txt", "a.txt"):
        (tmp_path / "sub" / name).write_text("yes\nno\n")
    (tmp_path / "link").symlink_to("sub/a.txt")
    async with TestLocalRuntime().open_runtime(tmp_path) as runtime:
        told = await use(runtime, "search_files", pattern="yes", path="sub/[a]*.txt")
        assert told.text == "sub/[a]*.txt:1:yes\n"
        told = await use(runtime, "search_files", pattern="yes", path="link")
        assert told.text == "sub/a.txt:1:yes\n"
        told = await use(runtime, "search_files", pattern="yes", path="sub/none")
        assert told.is_error


async def test_arguments_that_are_no_object_are_refused_in_words(tmp_path: Path) -> None:
    async with TestLocalRuntime().open_runtime(tmp_path) as runtime:
        for name in ("run_command", "read_file"):
            call = ToolCall("c", name, '{"comm' + "x" * 1000)
            origin = CallOrigin("s", "t", key=name)
            told = await runtime.call(call, call.arguments, origin, show=lambda text: None)
            assert told.is_error
            assert told.text.startswith("nothing was run: the arguments are no JSON object")
            assert len(told.text) < 400


async def test_an_edit_that_would_make_a_file_without_end_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a" * 100_000)
    async with TestLocalRuntime().open_runtime(tmp_path) as runtime:
        told = await use(
            runtime, "edit_file", path="a", old="a", new="b" * 1_000_000, replace_all=True
        )
        assert told.is_error
        assert str(MAX_FILE_BYTES) in told.text
        assert (tmp_path / "a").read_text() == "a" * 100_000
        told = await use(runtime, "edit_file", path="a", old="a", new="bb", replace_all=True)
        assert not told.is_error


async def test_what_tells_one_call_from_another_is_small(tmp_path: Path) -> None:
    runtime = await open_local(tmp_path)
    content = "x" * 1_000_000
    tracemalloc.start()
    try:
        for n in range(20):
            arguments = {"path": "file", "content": f"{n}{content}"}
            call = ToolCall("c", "write_file", arguments)
            await runtime.call(call, arguments, CallOrigin("s", "t", f"key {n}"), lambda text: None)
        del arguments, call
        assert tracemalloc.get_traced_memory()[0] < 5_000_000
    finally:
        tracemalloc.stop()
        await runtime.close()


def test_a_line_that_is_too_long_to_be_held_is_searched_in_pieces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(search_program, "MAX_LINE_BYTES", 4)
    found = list(search_program.lines(BytesIO(b"abcdefgh\nij\n\nk")))
    assert found == [(1, b"abcd"), (1, b"efgh"), (1, b"\n"), (2, b"ij\n"), (3, b"\n"), (4, b"k")]


async def test_a_start_that_is_cut_off_holds_no_folder_open(tmp_path: Path) -> None:
    def held() -> list[str]:
        links = (f"/proc/self/fd/{each}" for each in os.listdir("/proc/self/fd"))
        return [each for each in links if os.path.lexists(each) and os.readlink(each) == here]

    here = str(tmp_path.resolve())  # noqa: ASYNC240 - a test may
    for steps in range(1, 4):
        starting = asyncio.create_task(open_local(tmp_path))
        for _ in range(steps):
            await asyncio.sleep(0)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
    await asyncio.sleep(0.2)
    assert held() == []
