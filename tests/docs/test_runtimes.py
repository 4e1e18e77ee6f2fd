"""The pages on runtimes: their tables are read, their commands parse, their tools are the tools."""

from __future__ import annotations

import configparser
import re
import shlex
import tomllib
from pathlib import Path

import pytest

from perdure.cli.command import parser
from perdure.runtimes.contract import SEEN_BEFORE
from perdure.runtimes.local import open_local
from perdure.runtimes.table import McpServer, RuntimeTable
from perdure.server.config import load_settings
from perdure.server.runtime.runtimes import make_runtimes

DOCS = Path(__file__).parents[2] / "docs"
HOWTOS = ("run-a-remote-runtime", "attach-an-mcp-server")
REFERENCE = (DOCS / "reference/runtimes.md").read_text()


def blocks(page: str, kind: str) -> list[str]:
    text = (DOCS / f"howto/{page}.md").read_text()
    return re.findall(rf"^```{kind}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", HOWTOS)
def test_the_configuration_of_the_pages_is_one(page: str, tmp_path: Path) -> None:
    (found,) = blocks(page, "toml")
    (tmp_path / "perdure.toml").write_text(found)
    runtimes = make_runtimes(load_settings({}, environment={}, folder=tmp_path))
    assert runtimes.default in runtimes.names
    assert set(tomllib.loads(found)) & {"runtimes", "mcp"}


def test_the_commands_of_the_page_are_commands() -> None:
    lines = "".join(blocks("run-a-remote-runtime", "sh")).splitlines()
    unit = configparser.ConfigParser(interpolation=None)
    unit.read_string("".join(blocks("run-a-remote-runtime", "ini")))
    program, _, arguments = unit["Service"]["ExecStart"].partition(" ")
    assert program.endswith("/perdure")
    lines.append(f"perdure {arguments}")
    ours = [line[line.index("perdure ") :] for line in lines if "perdure " in line]
    verbs = [parser().parse_args(shlex.split(line)[1:]).run.__module__ for line in ours]
    assert verbs == ["perdure.cli.token", "perdure.cli.runtime", "perdure.cli.runtime"]


def test_every_key_of_a_table_is_documented() -> None:
    for struct, heading in ((RuntimeTable, "[runtimes.NAME]"), (McpServer, "[mcp.NAME]")):
        table = REFERENCE.partition(f"| `{heading}` | |")[2].partition("\n\n")[0]
        rows = [row.split("|")[1] for row in table.splitlines() if row.startswith("| `")]
        named = re.findall(r"`(\w+)`", "".join(rows))
        assert sorted(named) == sorted(struct.__struct_fields__)


async def test_every_tool_and_its_arguments_are_documented(tmp_path: Path) -> None:
    runtime = await open_local(tmp_path)
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", REFERENCE, re.MULTILINE))
    for spec in await runtime.tools():
        named = set(re.findall(r"`(\w+)`", rows[spec.name]))
        left_out = set(spec.schema["properties"]) - named - {"ignore_case"}
        assert left_out == set(), spec.name
    await runtime.close()
    assert f"`{SEEN_BEFORE}`" in REFERENCE
