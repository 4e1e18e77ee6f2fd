"""What the property tests of the core draw from."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from perdure.codec import Entry, seal
from perdure.entry import Message, OpaquePart, Reasoning, Text, ToolCall, ToolResult

texts = st.text(
    st.one_of(
        st.characters(codec="utf-8"),
        st.sampled_from('\x00\x1f\x7f\x85\u2028\u2029\r\n"\\{}[],:\ufeff\ufffe\U0010ffff'),
        st.characters(categories=["Cs"]),
    ),
    max_size=20,
)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
opaque_parts = st.builds(
    lambda size: OpaquePart("hologram", b'{"type":"hologram","size":%d, "n": 1.50}' % size),
    st.integers(0, 9),
)
parts = st.one_of(
    st.builds(Text, texts, provider=json_values),
    st.builds(Reasoning, texts, provider=json_values),
    st.builds(ToolCall, texts, texts, json_values, json_values),
    st.builds(ToolResult, texts, st.lists(st.builds(Text, texts), max_size=2).map(tuple)),
    opaque_parts,
)
messages = st.builds(
    Message,
    st.sampled_from(["system", "user", "assistant", "tool"]),
    st.lists(parts, max_size=4).map(tuple),
    meta=st.booleans(),
    end=st.sampled_from([None, "stopped", "failed"]),
    provider=json_values,
)


@st.composite
def paths(draw: st.DrawFn, max_size: int = 14) -> list[Entry]:
    """A path of messages whose calls and results come in any order, doubled, late or never."""
    ids = st.sampled_from("abc")
    call = st.builds(ToolCall, ids, st.just("tool"), st.just({}))
    result = st.builds(
        ToolResult,
        ids,
        st.builds(Text, st.sampled_from("12")).map(lambda part: (part,)),
        interrupted=st.booleans(),
    )
    said = st.builds(Text, st.sampled_from("xyz"))
    kinds = st.one_of(
        st.builds(Message, st.just("user"), said.map(lambda part: (part,)), meta=st.booleans()),
        st.builds(
            Message, st.just("assistant"), st.lists(st.one_of(said, call), max_size=4).map(tuple)
        ),
        st.builds(Message, st.just("tool"), result.map(lambda part: (part,))),
        st.builds(
            Message,
            st.sampled_from(["user", "tool", "assistant"]),
            st.lists(st.one_of(said, call, result), max_size=4).map(tuple),
        ),
    )
    path: list[Entry] = []
    for message in draw(st.lists(kinds, max_size=max_size)):
        path.append(seal(message, path[-1].id if path else None))
    return path
