"""A result goes over MCP and comes back as it was."""

from __future__ import annotations

import mcp_types as types
import pytest

from perdure.entry import File, ResultPart, Text, ToolResult
from perdure.runtimes.content import (
    from_mcp_result,
    from_meta,
    parts_of,
    to_mcp_result,
    to_meta,
)
from perdure.runtimes.contract import CallOrigin

RESULTS = [
    ToolResult("c", (), name="t"),
    ToolResult("c", (Text("a\u2028\x00"), Text("")), name="t", limit_chars=5),
    ToolResult("c", (Text("no"),), name="t", is_error=True, provider={"exit": 1, "x": [None]}),
    ToolResult("c", (File("image/png", data=b"\x89\x00", name="p.png"),), name="t"),
    ToolResult("c", (File("image/png", data=b""),), name="t"),
    ToolResult("c", (File("application/pdf", data=b"%", name="é b.pdf"),), name="t"),
    ToolResult("c", (File("audio/wav", data=b"RIFF"),), name="t"),
    ToolResult("c", (File("text/html", url="https://a.example/b?c=d", name="page"),), name="t"),
]


@pytest.mark.parametrize("result", RESULTS, ids=repr)
def test_a_result_comes_back_as_it_was(result: ToolResult) -> None:
    sent = to_mcp_result(result).model_dump_json(by_alias=True)
    received = types.CallToolResult.model_validate_json(sent, by_name=False)
    assert from_mcp_result(received, "c", "t") == result


def test_what_is_known_of_a_call_comes_back() -> None:
    origin = CallOrigin("s/é", "t", "k")
    assert from_meta(to_meta("c", origin)) == ("c", origin)
    assert from_meta(None) == ("", CallOrigin("", "", ""))
    assert from_meta({"perdure/session_id": 7}) == ("", CallOrigin("", "", ""))


@pytest.mark.parametrize(
    ("result", "parts"),
    [
        (
            types.CallToolResult(content=[], structured_content={"b": [1, "é"]}),
            (Text('{"b":[1,"é"]}'),),
        ),
        (
            types.CallToolResult(
                content=[types.TextContent(text="x")], structured_content={"b": 1}
            ),
            (Text("x"),),
        ),
        (
            types.CallToolResult(content=[types.AudioContent(data="AAE=", mime_type="audio/ogg")]),
            (File("audio/ogg", data=b"\x00\x01"),),
        ),
        (
            types.CallToolResult(
                content=[
                    types.EmbeddedResource(
                        resource=types.TextResourceContents(uri="file:///a", text="in it")
                    )
                ]
            ),
            (Text("in it"),),
        ),
        (
            types.CallToolResult(content=[types.ImageContent(data="%", mime_type="image/png")]),
            None,
        ),
    ],
)
def test_what_other_servers_send_is_understood(
    result: types.CallToolResult, parts: tuple[ResultPart, ...] | None
) -> None:
    found = parts_of(result)
    if parts is None:
        (part,) = found
        assert isinstance(part, Text)
        assert "cannot be decoded" in part.text
    else:
        assert found == parts
