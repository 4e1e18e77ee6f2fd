"""The docs are true: their code runs, and whatever is public is in them."""

from __future__ import annotations

import inspect
import os
import re
import signal
import subprocess
import sys
import typing
from pathlib import Path

import pytest

import perdure
import perdure.loops
import perdure.testing
from perdure import errors
from perdure.cli.command import parser
from perdure.events import LifecycleEvent, RunEvent
from perdure.fact import KnownFact
from perdure.server.config import NAMES

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
BLOCKS = [
    pytest.param(block, id=f"{page.relative_to(ROOT)}-{number}")
    for page in PAGES
    for number, block in enumerate(
        re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE), 1
    )
]


def page(name: str) -> str:
    return (ROOT / name).read_text()


def undocumented(names: typing.Iterable[str], text: str) -> list[str]:
    """The names that stand nowhere in code quotes, alone or with what they take."""
    return [
        name
        for name in names
        if not re.search(rf"`[^`\n]*(?<![\w-]){re.escape(name)}(?![\w-])", text)
    ]


def environment() -> dict[str, str]:
    path = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
    return os.environ | {"PYTHONPATH": path, "PYTHONWARNINGS": "error"}


@pytest.mark.parametrize("block", BLOCKS)
def test_the_code_in_the_docs_runs(block: str, tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", block],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")


def readme_program() -> str:
    (program,) = re.findall(r"^```python\n(.*?)^```", page("README.md"), re.DOTALL | re.MULTILINE)
    return str(program)


@pytest.mark.parametrize("killed_after", ["stored: ", "one\n"])
def test_the_program_in_the_readme_survives_kill_9(killed_after: str, tmp_path: Path) -> None:
    command = [sys.executable, "-u", "-c", readme_program()]
    first = subprocess.Popen(
        command, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, text=True
    )
    with first:
        assert first.stdout is not None
        shown: list[str] = []
        for line in first.stdout:
            shown.append(line)
            if killed_after in line:
                break
        first.send_signal(signal.SIGKILL)
    receipts = re.findall(r"stored: (\w+)", "".join(shown))
    assert receipts
    ran = subprocess.run(
        command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=True
    )
    assert ran.stderr == ""
    kept = re.findall(r"kept: message (\w+)", ran.stdout)
    assert set(receipts) <= set(kept)
    assert "one\ntwo\n" in ran.stdout


def test_the_readme_program_is_about_twenty_lines() -> None:
    assert len([line for line in readme_program().split("\n") if line.strip()]) <= 20


def test_every_link_leads_somewhere() -> None:
    broken = [
        f"{each.relative_to(ROOT)}: {target}"
        for each in PAGES
        for target in re.findall(r"\]\(([^)#:]+)\)", each.read_text())
        if not (each.parent / target).exists()
    ]
    assert broken == []


def test_every_public_name_is_documented() -> None:
    text = page("docs/reference/library.md")
    assert undocumented(perdure.__all__, text) == []
    assert undocumented(perdure.loops.__all__, text) == []
    assert undocumented(perdure.testing.__all__, text) == []


def test_every_member_of_the_agent_is_documented() -> None:
    members = [name for name in vars(perdure.DurableAgent) if not name.startswith("_")]
    assert undocumented(members, page("docs/reference/library.md")) == []


def test_every_error_is_documented() -> None:
    classes = inspect.getmembers(errors, inspect.isclass)
    names = [name for name, cls in classes if issubclass(cls, Exception) and name[0] != "_"]
    assert undocumented(names, page("docs/reference/library.md")) == []


def test_every_event_and_its_fields_are_documented() -> None:
    text = page("docs/reference/library.md")
    for event in typing.get_args(RunEvent):
        tag = event.__struct_config__.tag
        (row,) = (line for line in text.split("\n") if line.startswith(f"| `{tag}` |"))
        assert re.findall(r"`(\w+)`", row)[1:] == list(event.__struct_fields__)
    lifecycle = [event.__struct_config__.tag for event in typing.get_args(LifecycleEvent)]
    assert undocumented(lifecycle, text) == []


def test_every_fact_is_documented() -> None:
    tags = [fact.__struct_config__.tag for fact in typing.get_args(KnownFact)]
    assert undocumented(tags, page("docs/format.md")) == []


def test_every_verb_and_option_of_the_command_line_is_documented() -> None:
    text = page("docs/reference/command-line.md")
    (verbs,) = (action.choices for action in parser()._actions if isinstance(action.choices, dict))
    for name, verb in verbs.items():
        assert f"\n## `perdure {name}" in text
        options = [option for action in verb._actions for option in action.option_strings]
        assert undocumented([o for o in options if o not in {"-h", "--help"}], text) == []


def test_every_setting_is_documented() -> None:
    text = page("docs/reference/command-line.md")
    assert undocumented([f"--{name}" for name in undocumented(NAMES, text)], text) == []


def test_every_operation_of_the_server_is_documented() -> None:
    from perdure.server.http.operation import OPERATIONS

    documented = set(re.findall(r"^\| `(.+?)` \|", page("docs/reference/http.md"), re.MULTILINE))
    served = {f"{operation.method} {operation.path}" for operation in OPERATIONS}
    assert served - documented == set()
    assert {each for each in documented if "/" in each} - served == set()


def test_the_changelog_says_the_on_disk_format_of_every_release() -> None:
    releases = re.split(r"^## ", page("CHANGELOG.md"), flags=re.MULTILINE)[1:]
    assert releases[0].startswith(perdure.__version__)
    for release in releases:
        assert re.search(r"^On-disk format: \d+$", release, re.MULTILINE)


def test_decisions_are_short_and_numbered_in_order() -> None:
    files = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    assert [file.name[:3] for file in files] == [f"{n:03}" for n in range(1, len(files) + 1)]
    long = [file.name for file in files if len(file.read_text().split("\n")) > 41]
    assert long == []
