"""The reference of loops names every kind and key; its tables are valid."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from perdure.entry import Message
from perdure.loops.configured import KINDS, parse_loops
from perdure.server.surroundings import ServerSurroundings
from perdure.stores.memory import MemoryStore
from tests.docs.test_docs import ROOT, undocumented
from tests.server.house import ID, House, Loops

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


async def test_the_loop_of_the_howto_goes_on_when_a_person_has_answered() -> None:
    block, *_ = re.findall(r"^```python\n(.*?)^```", PAGES[2].read_text(), re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {}
    exec(block.replace("asyncio.run(main())", ""), names)
    asks = ServerSurroundings(approve=["count"])
    house = House(MemoryStore(), Loops(lambda: names["counting"]), surroundings=asks)
    await house.create()
    for number, words in enumerate(("one two three", "four five"), 1):
        await house.send(words)
        look = await house.until(lambda look: bool(look.approvals))
        assert [each.name for each in look.approvals] == ["count"]
        await house.registry.answer(ID, "count-1", approve=True)
        assert (await house.rest()).status == "idle"
        said = [each.view for each in await house.log() if isinstance(each.view, Message)]
        assert said[-1].text == f"{4 - number} words."
    await house.close()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_tables_in_the_docs_are_valid(page: Path) -> None:
    blocks = re.findall(r"^```toml\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    assert blocks
    for block in blocks:
        assert parse_loops(tomllib.loads(block)["loops"], page.name)
