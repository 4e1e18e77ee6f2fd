"""What an update of the Agent Client Protocol tells, at its edges."""

from __future__ import annotations

from perdure.loops.acp_update import read_call, read_update


def diff_of(old: str, new: str) -> list[str]:
    content = [{"type": "diff", "path": "file", "oldText": old, "newText": new}]
    told = read_call({"toolCallId": "c", "content": content})
    assert told is not None
    assert told.output is not None
    return told.output[0].text.split("\n")  # type: ignore[union-attr] # a diff is text


def test_a_diff_shows_what_changed_and_a_little_around_it() -> None:
    old = "\n".join(f"line {n}" for n in range(20_000))
    lines = diff_of(old, old.replace("line 500\n", "another\n"))
    assert lines[3:] == [
        *(f" line {n}" for n in (497, 498, 499)),
        "-line 500",
        "+another",
        *(f" line {n}" for n in (501, 502, 503)),
    ]


def test_a_diff_that_would_take_too_long_shows_both_sides() -> None:
    """Every second line changed: difflib needs minutes for so many."""
    count = 20_000
    old = [f"line {n}" for n in range(count)]
    new = [f"changed {n}" if n % 2 else line for n, line in enumerate(old)]
    head, tail = ["first"], ["last"]
    lines = diff_of("\n".join(head + old + tail), "\n".join(head + new + tail))
    # the line of number 0 is the same, and belongs to what both begin with
    assert lines[:3] == ["--- file", "+++ file", f"@@ -3,{count - 1} +3,{count - 1} @@"]
    assert lines[3:] == [*(f"-{line}" for line in old[1:]), *(f"+{line}" for line in new[1:])]


def test_an_update_that_breaks_the_protocol_costs_itself() -> None:
    odd: list[object] = [None, [], {}, 5, ["x"], {"type": []}]
    for field in ("status", "content", "rawInput", "_meta", "kind", "title", "toolCallId", "name"):
        for value in odd:
            for kind in ("tool_call", "tool_call_update", "agent_message_chunk"):
                read_update({"sessionUpdate": kind, "toolCallId": "c", field: value})


def test_output_that_is_nested_too_deeply_says_so() -> None:
    deep: list[object] = []
    for _ in range(300):
        deep = [deep]
    told = read_call({"toolCallId": "c", "rawOutput": deep})
    assert told is not None
    assert told.output is not None
    assert "nested more than" in told.output[0].text  # type: ignore[union-attr] # it is text
