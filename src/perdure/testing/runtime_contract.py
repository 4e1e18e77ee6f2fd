"""The conformance suite of `perdure.runtimes.contract.Runtime`, with the tools of a workspace."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from perdure.entry import File, ToolCall, ToolResult
from perdure.errors import RuntimeLostError
from perdure.runtimes.contract import SEEN_BEFORE, CallOrigin
from perdure.testing.escape_cases import EscapeCases
from perdure.testing.runtime_cases import ignore, lives, pid_in, real, until, use

WORKSPACE_TOOLS = (
    "run_command",
    "read_file",
    "write_file",
    "edit_file",
    "list_files",
    "search_files",
)
BIG_BYTES = 16 << 20
_NASTY = "a\u0301\U0001f468\u200d\U0001f469\u200d\U0001f467 \u2028\u0085\r\n\x00\x1b[31m\ufeffz"


def is_seen(result: ToolResult) -> bool:
    """Whether a result was handed out before."""
    return isinstance(result.provider, dict) and result.provider.get(SEEN_BEFORE) is True


class RuntimeContract(EscapeCases):
    """What every runtime promises, one behaviour a case."""

    # Tools and their results

    async def test_its_tools_have_names_and_schemas(self, tmp_path: Path) -> None:
        async with self.open_runtime(tmp_path) as runtime:
            specs = await runtime.tools()
            names = [spec.name for spec in specs]
            assert set(WORKSPACE_TOOLS) <= set(names)
            assert len(set(names)) == len(names)
            for spec in specs:
                assert spec.description
                assert spec.schema["type"] == "object"
                assert isinstance(spec.schema.get("properties", {}), dict)

    async def test_a_command_gives_its_output_and_status(self, tmp_path: Path) -> None:
        async with self.open_runtime(tmp_path) as runtime:
            done = await use(runtime, "run_command", command="echo out; echo err >&2")
            assert (done.text, done.is_error, done.name) == ("out\nerr\n", False, "run_command")
            assert done.call_id == "c1"
            failed = await use(runtime, "run_command", command="printf half; exit 3")
            assert (failed.text, failed.is_error) == ("half\n[exit status 3]", True)

    async def test_a_command_begins_in_the_workspace(self, tmp_path: Path) -> None:
        (tmp_path / "inner").mkdir()
        async with self.open_runtime(tmp_path) as runtime:
            here = await use(runtime, "run_command", command="pwd -P")
            assert here.text == f"{real(tmp_path)}\n"
            inner = await use(runtime, "run_command", command="pwd -P", folder="inner")
            assert inner.text == f"{real(tmp_path)}/inner\n"
            assert (await use(runtime, "run_command", command="pwd", folder="..")).is_error

    async def test_output_is_shown_as_it_comes(self, tmp_path: Path) -> None:
        async with self.open_runtime(tmp_path) as runtime:
            shown: list[str] = []
            call = asyncio.create_task(
                use(
                    runtime,
                    "run_command",
                    show=shown.append,
                    command="echo first; while ! test -e go; do sleep 0.02; done; echo last",
                )
            )
            await until(lambda: "first" in "".join(shown), "the first line is shown")
            assert not call.done()
            (tmp_path / "go").touch()
            assert (await call).text == "first\nlast\n"
            await until(lambda: "".join(shown) == "first\nlast\n", "all of it is shown, in order")

    async def test_a_command_knows_its_key_and_whose_it_is(self, tmp_path: Path) -> None:
        names = ("PERDURE_SESSION_ID", "PERDURE_TURN_ID", "PERDURE_IDEMPOTENCY_KEY")
        command = "; ".join(f'echo "${name}"' for name in names)
        async with self.open_runtime(tmp_path) as runtime:
            told = await use(runtime, "run_command", key="k-1", command=command)
            assert told.text == "session\nturn\nk-1\n"

    async def test_a_command_that_takes_too_long_is_ended(self, tmp_path: Path) -> None:
        async with self.open_runtime(tmp_path) as runtime:
            ended = await use(
                runtime,
                "run_command",
                command="echo begun; sleep 600 & echo $! > pid; wait",
                timeout_s=0.5,
            )
            assert ended.is_error
            assert ended.text.startswith("begun\n")
            assert "0.5 seconds" in ended.text
            assert not lives(await pid_in(tmp_path / "pid"))

    async def test_sixteen_megabytes_are_shown_and_given_whole(self, tmp_path: Path) -> None:
        async with self.open_runtime(tmp_path) as runtime:
            shown: list[str] = []
            big = await use(
                runtime,
                "run_command",
                show=shown.append,
                command=f"yes 0123456789abcde | head -c {BIG_BYTES}",
            )
            assert not big.is_error
            assert len(big.text) == BIG_BYTES
            assert big.text == "0123456789abcde\n" * (BIG_BYTES // 16)
            assert big.limit_chars is not None
            await until(lambda: sum(map(len, shown)) == BIG_BYTES, "all of it is shown")
            (tmp_path / "big").write_text(big.text)
            assert (await use(runtime, "read_file", path="big")).text == big.text

    async def test_text_comes_through_as_it_is(self, tmp_path: Path) -> None:
        async with self.open_runtime(tmp_path) as runtime:
            await use(runtime, "write_file", path="dir/é nasty\n", content=_NASTY)
            assert (tmp_path / "dir" / "é nasty\n").read_bytes() == _NASTY.encode()
            assert (await use(runtime, "read_file", path="dir/é nasty\n")).text == _NASTY

    async def test_what_is_no_text_does_no_harm(self, tmp_path: Path) -> None:
        async with self.open_runtime(tmp_path) as runtime:
            written = await use(runtime, "run_command", command=r"printf '\377\303'")
            assert written.text == "\ufffd\ufffd"
            (tmp_path / "raw").write_bytes(b"\xff\x00")
            assert (await use(runtime, "read_file", path="raw")).is_error
            (tmp_path / "p.png").write_bytes(b"\x89PNG\xff")
            (image,) = (await use(runtime, "read_file", path="p.png")).parts
            assert image == File("image/png", data=b"\x89PNG\xff", name="p.png")

    async def test_some_lines_of_a_file_can_be_read(self, tmp_path: Path) -> None:
        (tmp_path / "f").write_text("1\n2\n3\n4")
        async with self.open_runtime(tmp_path) as runtime:
            some = await use(runtime, "read_file", path="f", first_line=2, line_count=2)
            assert some.text == "2\n3\n"
            assert (await use(runtime, "read_file", path="f", first_line=4)).text == "4"
            assert (await use(runtime, "read_file", path="f", first_line=9)).is_error

    async def test_a_file_is_replaced_whole_and_keeps_its_mode(self, tmp_path: Path) -> None:
        (tmp_path / "f").write_text("old")
        (tmp_path / "f").chmod(0o751)
        async with self.open_runtime(tmp_path) as runtime:
            await use(runtime, "write_file", path="f", content="new")
            assert (tmp_path / "f").stat().st_mode & 0o777 == 0o751
            assert (tmp_path / "f").read_text() == "new"
            assert os.listdir(tmp_path) == ["f"]

    async def test_an_edit_replaces_what_is_there_once(self, tmp_path: Path) -> None:
        (tmp_path / "f").write_text("one two two\r\n")
        async with self.open_runtime(tmp_path) as runtime:
            assert not (await use(runtime, "edit_file", path="f", old="one", new="1")).is_error
            twice = await use(runtime, "edit_file", path="f", old="two", new="2")
            assert twice.is_error
            assert "2 times" in twice.text
            assert (await use(runtime, "edit_file", path="f", old="three", new="3")).is_error
            assert (tmp_path / "f").read_bytes() == b"1 two two\r\n"
            await use(runtime, "edit_file", path="f", old="two", new="2", replace_all=True)
            assert (tmp_path / "f").read_bytes() == b"1 2 2\r\n"

    async def test_edits_at_once_do_not_undo_each_other(self, tmp_path: Path) -> None:
        words = [f"<{n}>" for n in range(12)]
        (tmp_path / "f").write_text("".join(words))
        async with self.open_runtime(tmp_path) as runtime:
            edits = [use(runtime, "edit_file", path="f", old=w, new=w.upper() + "!") for w in words]
            assert not any(result.is_error for result in await asyncio.gather(*edits))
        assert (tmp_path / "f").read_text() == "".join(word + "!" for word in words)

    async def test_a_folder_can_be_listed(self, tmp_path: Path) -> None:
        (tmp_path / "b" / "c").mkdir(parents=True)
        (tmp_path / "b" / "c" / "deep").touch()
        (tmp_path / "a").touch()
        async with self.open_runtime(tmp_path) as runtime:
            assert (await use(runtime, "list_files")).text == "a\nb/"
            assert (await use(runtime, "list_files", depth=9)).text == "a\nb/\nb/c/\nb/c/deep"
            assert (await use(runtime, "list_files", path="b/c")).text == "b/c/deep"
            assert (await use(runtime, "list_files", path="a")).is_error

    async def test_files_can_be_searched(self, tmp_path: Path) -> None:
        (tmp_path / "d").mkdir()
        (tmp_path / "d" / "x.py").write_text("one\ndef two(): pass\n")
        (tmp_path / "y.txt").write_text("two (2)\nTWO\n")
        async with self.open_runtime(tmp_path) as runtime:
            found = await use(runtime, "search_files", pattern=r"\btwo\b")
            assert found.text == "y.txt:1:two (2)\nd/x.py:2:def two(): pass\n"
            some = await use(runtime, "search_files", pattern="two", path="d", glob="*.py")
            assert some.text == "d/x.py:2:def two(): pass\n"
            plain = await use(
                runtime, "search_files", pattern="Two (", literal=True, ignore_case=True
            )
            assert plain.text == "y.txt:1:two (2)\n"
            assert not (await use(runtime, "search_files", pattern="nowhere")).is_error
            assert (await use(runtime, "search_files", pattern="(")).is_error

    async def test_what_goes_wrong_in_a_call_is_its_result(self, tmp_path: Path) -> None:
        async with self.open_runtime(tmp_path) as runtime:
            unknown = await use(runtime, "no_such_tool")
            assert unknown.is_error
            assert "run_command" in unknown.text
            assert (await use(runtime, "run_command")).is_error
            assert (await use(runtime, "run_command", command=7)).is_error
            assert (await use(runtime, "read_file", path="a", colour="red")).is_error
            call = ToolCall("c", "read_file", "no object")
            origin = CallOrigin("s", "t", "k")
            assert (await runtime.call(call, "no object", origin, ignore)).is_error
            assert not (await use(runtime, "run_command", command="true")).is_error

    async def test_calls_run_side_by_side(self, tmp_path: Path) -> None:
        async with self.open_runtime(tmp_path) as runtime:
            wait = "while ! test -e {}; do sleep 0.02; done; touch {}"
            calls = [
                use(runtime, "run_command", command=wait.format("b", "c")),
                use(runtime, "run_command", command=wait.format("a", "b")),
                use(runtime, "write_file", path="a", content=""),
            ]
            assert not any(result.is_error for result in await asyncio.gather(*calls))

    # Stopping

    async def test_a_call_that_is_cancelled_is_ended(self, tmp_path: Path) -> None:
        async with self.open_runtime(tmp_path) as runtime:
            command = "trap '' TERM; sleep 600 & echo $! > pid; wait; sleep 600"
            call = asyncio.create_task(use(runtime, "run_command", command=command))
            pid = await pid_in(tmp_path / "pid")
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            await until(lambda: not lives(pid), "the command is gone")
            assert (await use(runtime, "run_command", command="echo on")).text == "on\n"

    async def test_a_search_that_never_ends_is_ended(self, tmp_path: Path) -> None:
        (tmp_path / "f").write_text("a" * 40 + "b\n")
        async with self.open_runtime(tmp_path) as runtime:
            call = asyncio.create_task(use(runtime, "search_files", pattern="(a+)+$"))
            await asyncio.sleep(0.3)
            assert (await use(runtime, "run_command", command="echo on")).text == "on\n"
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call

    # Keys

    async def test_a_key_runs_once_and_its_result_is_handed_out_again(self, tmp_path: Path) -> None:
        async with self.open_runtime(tmp_path) as runtime:
            command = "echo x >> ran; wc -l < ran"
            first = await use(runtime, "run_command", key="k", command=command)
            again = await use(runtime, "run_command", key="k", call_id="c2", command=command)
            assert (first.text.strip(), is_seen(first)) == ("1", False)
            assert (again.text, again.call_id, is_seen(again)) == (first.text, "c2", True)
            other = await use(runtime, "run_command", key="k2", command=command)
            assert (other.text.strip(), is_seen(other)) == ("2", False)

    async def test_a_key_that_comes_while_its_call_runs_waits_for_it(self, tmp_path: Path) -> None:
        async with self.open_runtime(tmp_path) as runtime:
            command = "echo x >> ran; while ! test -e go; do sleep 0.02; done; wc -l < ran"
            first = asyncio.create_task(use(runtime, "run_command", key="k", command=command))
            await until(lambda: (tmp_path / "ran").exists(), "it runs")
            again = asyncio.create_task(use(runtime, "run_command", key="k", command=command))
            impatient = asyncio.create_task(use(runtime, "run_command", key="k", command=command))
            await asyncio.sleep(0.2)
            impatient.cancel()
            with pytest.raises(asyncio.CancelledError):
                await impatient
            (tmp_path / "go").touch()
            assert ((await first).text.strip(), is_seen(await first)) == ("1", False)
            assert ((await again).text.strip(), is_seen(await again)) == ("1", True)

    async def test_a_key_that_comes_with_another_call_is_refused(self, tmp_path: Path) -> None:
        async with self.open_runtime(tmp_path) as runtime:
            await use(runtime, "run_command", key="k", command="echo one")
            other = await use(runtime, "run_command", key="k", command="touch two")
            assert other.is_error
            assert not (tmp_path / "two").exists()

    async def test_a_call_that_was_ended_is_not_run_again(self, tmp_path: Path) -> None:
        async with self.open_runtime(tmp_path) as runtime:
            command = "echo $$ >> pid; sleep 600"
            call = asyncio.create_task(use(runtime, "run_command", key="k", command=command))
            pid = await pid_in(tmp_path / "pid")
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            await until(lambda: not lives(pid), "the command is gone")
            again = await use(runtime, "run_command", key="k", command=command)
            assert (again.is_error, is_seen(again)) == (True, True)
            assert (tmp_path / "pid").read_text() == f"{pid}\n"

    # Its life

    async def test_two_lives_have_two_ids(self, tmp_path: Path) -> None:
        async with self.open_runtime(tmp_path) as first:
            await first.tools()
        async with self.open_runtime(tmp_path) as second:
            assert first.runtime_id != second.runtime_id
            command = "echo x >> ran; wc -l < ran"
            assert (await use(second, "run_command", key="k", command=command)).text.strip() == "1"

    async def test_closing_loses_calls_in_flight_once(self, tmp_path: Path) -> None:
        async with self.open_runtime(tmp_path) as runtime:
            command = "echo $$ > pid; sleep 600"
            call = asyncio.create_task(use(runtime, "run_command", command=command))
            lost = asyncio.create_task(runtime.until_lost())
            pid = await pid_in(tmp_path / "pid")
            await runtime.close()
            with pytest.raises(RuntimeLostError) as raised:
                await call
            assert raised.value.runtime_id == runtime.runtime_id
            assert await lost
            assert await runtime.until_lost()
            with pytest.raises(RuntimeLostError):
                await runtime.tools()
            with pytest.raises(RuntimeLostError):
                await use(runtime, "run_command", command="touch late")
            await runtime.close()
            assert not (tmp_path / "late").exists()
            if self.ends_on_close:
                await until(lambda: not lives(pid), "the command is gone")
