"""The reference of loops names every kind and key; its tables are valid."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from perdure.loops.configured import KINDS, parse_loops
from tests.docs.test_docs import ROOT, undocumented

PAGES = [
    ROOT / "docs" / "reference" / "loops.md",
    ROOT / "docs" / "howto" / "keep-your-agent.md",
    ROOT / "docs" / "howto" / "write-a-loop.md",
    ROOT / "docs" / "howto" / "run-a-command-line-agent.md",
]


def test_every_kind_and_key_is_documented() -> None:
    text = PAGES[0].read_text()
    for kind in KINDS:
        tag = str(kind.__struct_config__.tag)
        (row,) = (line for line in text.split("\n") if line.startswith(f"| `{tag}` | `"))
        own = set(kind.__struct_fields__) - {"approve"}
        assert undocumented(own, row) == []
    assert undocumented(["approve"], text) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_tables_in_the_docs_are_valid(page: Path) -> None:
    blocks = re.findall(r"^```toml\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    assert blocks
    for block in blocks:
        assert parse_loops(tomllib.loads(block)["loops"], page.name)
