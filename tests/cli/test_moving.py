"""`export`, `import`, `verify FILE` and `salvage`, as an operator types them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

import perdure
from perdure.cli import main
from perdure.stores.jsonl_name import name_of
from tests.cli.conftest import Kept
from tests.cli.terminal import environment, run


def test_a_session_moves_to_another_store(kept: Kept, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "user/42", "out", "--store", kept.url]) == 0
    head = capsys.readouterr().out.strip()
    seq, _, digits = head.partition(" ")
    assert (int(seq), len(digits)) == (len(kept.raws), 32)
    assert main(["import", "out", "--as", "t", "--head", head, "--store", "jsonl:///there"]) == 0
    assert capsys.readouterr().out == "imported: t\n"
    assert main(["show", "t", "--json", "--store", "jsonl:///there"]) == 0
    assert capsys.readouterr().out.split("\n")[:-1] == kept.raws
    assert main(["import", "out", "--as", "t", "--store", "jsonl:///there"]) == 1
    assert "exists already" in capsys.readouterr().err


def test_whoever_kept_the_head_can_tell(kept: Kept, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "user/42", "out", "--store", kept.url]) == 0
    head = capsys.readouterr().out.strip()
    assert main(["verify", "out", "--head", head]) == 0
    assert head in capsys.readouterr().out
    assert main(["verify", "user/42", "--head", head, "--store", kept.url]) == 0
    lines = (kept.folder / "out").read_bytes().splitlines(keepends=True)
    (kept.folder / "out").write_bytes(b"".join(lines[:-1]))  # a cut that no sum can tell
    capsys.readouterr()
    assert main(["verify", "out"]) == 0
    assert main(["verify", "out", "--head", head]) == 1
    assert f"it ends at seq {len(kept.raws) - 1}" in capsys.readouterr().out
    other = f"{len(kept.raws)} {'0' * 32}"
    assert main(["verify", "user/42", "--head", other, "--store", kept.url]) == 1
    assert main(["verify", "--head", head, "--store", kept.url]) == 2
    assert main(["verify", "user/42", "--head", "12", "--store", kept.url]) == 2
    assert "is not a head" in capsys.readouterr().err


def test_a_pipe_carries_a_session(kept: Kept) -> None:
    command = [sys.executable, "-m", "perdure"]
    out = subprocess.run(
        [*command, "export", "user/42", "-", "--store", kept.url],
        cwd=kept.folder,
        env=environment(),
        capture_output=True,
        check=True,
    )
    head = out.stderr.decode().strip()
    subprocess.run(
        [*command, "import", "-", "--head", head, "--store", "sqlite:///t.db"],
        cwd=kept.folder,
        env=environment(),
        input=out.stdout,
        check=True,
    )
    shown = run("show", "user/42", "--json", "--store", "sqlite:///t.db", cwd=kept.folder)
    assert shown.stdout.split("\n")[:-1] == kept.raws


def test_a_file_is_not_replaced_by_accident(kept: Kept, capsys: pytest.CaptureFixture[str]) -> None:
    (kept.folder / "out").write_text("precious")
    assert main(["export", "user/42", "out", "--store", kept.url]) == 1
    assert "--force" in capsys.readouterr().err
    assert (kept.folder / "out").read_text() == "precious"
    assert main(["export", "user/42", "out", "--force", "--store", kept.url]) == 0
    assert main(["verify", "out"]) == 0


@pytest.fixture
def damaged(kept: Kept) -> Kept:
    """The store, with a letter of the second message changed."""
    if kept.url.startswith("jsonl"):
        path = kept.folder / "sessions" / f"{name_of('user/42')}.jsonl"
        path.write_bytes(path.read_bytes().replace(b"Let me", b"Let us"))
    else:
        code = (
            "import apsw; apsw.Connection('sessions.db').execute(\"UPDATE entries SET raw = "
            "CAST(replace(raw, 'Let me', 'Let us') AS BLOB)\")"
        )
        subprocess.run([sys.executable, "-c", code], cwd=kept.folder, check=True)
    return kept


def test_a_salvage_says_what_is_missing(damaged: Kept, capsys: pytest.CaptureFixture[str]) -> None:
    store = ["--store", damaged.url]
    assert main(["export", "user/42", "out", *store]) == 1
    assert "perdure salvage" in capsys.readouterr().err
    assert not (damaged.folder / "out").exists()
    assert main(["salvage", "user/42", "new", *store]) == 0
    *gaps, total = capsys.readouterr().out.splitlines()
    assert total == f"salvaged: new has {len(damaged.raws) - 1} entries and 1 gap"
    assert gaps[0].startswith("gap: ")
    assert " bytes)" in gaps[0]
    assert main(["verify", "new", *store]) == 0
    assert main(["verify", *store]) == 1
    assert main(["salvage", "user/42", "new", *store]) == 1
    assert main(["salvage", "new", "newer", *store]) == 1
    assert "it is healthy" in capsys.readouterr().err
    assert main(["salvage", "user/42", "there", "--into", "sqlite:///other.db", *store]) == 0
    assert main(["verify", "there", "--store", "sqlite:///other.db"]) == 0


def test_one_broken_header_costs_no_listing(tmp_path: Path) -> None:
    async def fill() -> None:
        async with perdure.open_store(f"jsonl:///{tmp_path}/s") as store:
            for session_id in ("a", "b/c", "d/e"):
                await store.create_session(session_id, entries=[perdure.text("hello")])

    asyncio.run(fill())
    name = f"{name_of('b/c')}.jsonl"
    (tmp_path / "s" / name).write_bytes(b"\x00" * 100)
    listed = run("ls", "--store", "jsonl:///s", cwd=tmp_path)
    assert listed.returncode == 0
    for shown in ("a ", "d/e ", name.removesuffix(".jsonl")):
        assert f"\n{shown}" in listed.stdout
    verified = run("verify", "--store", "jsonl:///s", cwd=tmp_path)
    assert verified.returncode == 1
    assert name in verified.stdout
    assert verified.stdout.endswith("2 sessions checked, 1 damaged\n")


def test_verify_tells_a_torn_tail(tmp_path: Path) -> None:
    async def fill() -> None:
        async with perdure.open_store(f"jsonl:///{tmp_path}/s") as store:
            await store.create_session("a", entries=[perdure.text("hello")])

    asyncio.run(fill())
    path = tmp_path / "s" / "a.jsonl"
    path.write_bytes(path.read_bytes() + b'{"type":"mess')
    verified = run("verify", "--store", "jsonl:///s", cwd=tmp_path)
    assert verified.returncode == 1
    assert verified.stdout.startswith("torn: session 'a', ")
    assert verified.stdout.endswith("1 session checked, 1 with a torn tail\n")
    shown = run("export", "a", "-", "--store", "jsonl:///s", cwd=tmp_path)
    assert (shown.returncode, shown.stdout.count("\n")) == (0, 2)
    assert "no whole entries" in shown.stderr
