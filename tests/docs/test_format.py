"""docs/format.md is normative: its tables say exactly what entry.py and fact.py read and write."""

from __future__ import annotations

import hashlib
import json
import re
import types
import typing
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

import perdure
from perdure.codec import RESERVED, first_sum, next_sum
from perdure.entry import File, Json, KnownPart, Part, Reasoning, ResultPart, Text
from perdure.fact import Fact, KnownFact
from perdure.line import write_line
from perdure.store import FORMAT, new_session, read_session

FORMAT_MD = Path(__file__).parents[2] / "docs" / "format.md"

TREE_ENTRIES = (perdure.Message, perdure.Compaction, perdure.Custom)
NAMES: dict[object, str] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    bytes: "base64 string",
    datetime: "time",
    Json: "any JSON",
    type(None): "null",
    msgspec.UnsetType: "",
}

Row = tuple[str, str, str, str]


def rows_of_the_docs() -> set[Row]:
    """The first four columns of every table whose first column is headed `entry` or `part`."""
    rows: set[Row] = set()
    wanted = False
    for line in FORMAT_MD.read_text().split("\n"):
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if not line.startswith("|"):
            wanted = False
        elif cells[0] in {"entry", "part"}:
            wanted = True
        elif wanted and not line.startswith("|--"):
            rows.add((cells[0], cells[1], cells[2], cells[3]))
    return rows


def rows_of_the_code() -> Iterator[Row]:
    """The same, from the classes."""
    structs = [*TREE_ENTRIES, *typing.get_args(KnownFact), *typing.get_args(KnownPart)]
    for struct in structs:
        tag = struct.__struct_config__.tag
        for field in msgspec.structs.fields(struct):
            if field.name in {"id", "created_at", "parent_id"}:
                continue  # the header, which has a table of its own
            required = field.default is msgspec.NODEFAULT
            absent = "required" if required else spelled_default(field.default)
            yield f"`{tag}`", f"`{field.encode_name}`", spelled(field.type), absent


def spelled_default(default: object) -> str:
    return f"`{json.dumps(default)}`"


def spelled(annotation: Any) -> str:
    if annotation in NAMES:
        return NAMES[annotation]
    arguments = typing.get_args(annotation)
    origin = typing.get_origin(annotation)
    if origin is typing.Literal:
        return ", ".join(f"`{value}`" for value in arguments)
    if origin is tuple and arguments[0] is str:
        return "list of strings"
    if arguments and arguments[0] in (Part, KnownPart):
        return "list of parts"
    if arguments and arguments[0] == ResultPart:
        return "list of `text` and `file` parts"
    if origin in (typing.Union, types.UnionType):
        return " or ".join(filter(None, (spelled(argument) for argument in arguments)))
    raise AssertionError(f"no word for {annotation}")


def test_the_tables_are_what_the_code_reads_and_writes() -> None:
    documented, coded = rows_of_the_docs(), set(rows_of_the_code())
    missing, wrong = sorted(coded - documented), sorted(documented - coded)
    assert not missing, "docs/format.md misses rows:\n" + "\n".join(map(" | ".join, missing))
    assert not wrong, "docs/format.md has rows that are not so:\n" + "\n".join(
        map(" | ".join, wrong)
    )


def test_every_fact_is_in_the_union_that_is_read() -> None:
    assert set(Fact.__subclasses__()) == set(typing.get_args(KnownFact))


def test_the_header_is_as_documented() -> None:
    header = json.loads(new_session("user-42", "parent").header)
    assert list(header) == ["type", "id", "parent_id", "created_at", "incarnation", "format"]
    assert header["type"] == "session_init"
    assert header["format"] == FORMAT == 1
    assert re.search(r"^On-disk format: 1$", FORMAT_MD.read_text(), re.MULTILINE)


def test_the_reserved_names_are_documented() -> None:
    text = FORMAT_MD.read_text()
    assert [name for name in RESERVED if f"`{name}`" not in text] == []


def example(number: int) -> bytes:
    blocks = re.findall(r"```json\n(.*?)```", FORMAT_MD.read_text(), re.DOTALL)
    return str(blocks[number]).encode()


def test_the_example_journal_is_one() -> None:
    header, *lines = example(0).rstrip(b"\n").split(b"\n")
    running = read_session(header).first_sum
    assert running == first_sum(header) == hashlib.sha256(header).digest()[:16]
    for line in lines:
        stored = perdure_line(line)
        running = next_sum(running, stored.entry.raw)
        assert stored.sum == running
        assert stored.seq is not None
        rewritten = write_line(stored.entry, stored.seq, running, stored.batch or (1, 1))
        assert rewritten == line + b"\n"


def perdure_line(line: bytes) -> Any:
    from perdure.line import read_line

    return read_line(line)


async def test_the_example_journal_opens(tmp_path: Path) -> None:
    (tmp_path / "user-42.jsonl").write_bytes(example(0))
    async with perdure.open_store(f"jsonl:///{tmp_path}") as store:
        agent = await perdure.open("user-42", store=store)
        assert [message.role for message in agent.messages()] == ["user", "assistant", "tool"]


@pytest.mark.parametrize("part", [Text("a"), Reasoning("b"), File("text/plain", data=b"c")])
def test_a_part_is_tagged_by_its_type(part: msgspec.Struct) -> None:
    assert json.loads(msgspec.json.encode(part))["type"] == part.__struct_config__.tag
