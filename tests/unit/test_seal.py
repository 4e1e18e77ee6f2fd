"""A message of plain text is sealed without decoding it, and it makes no difference."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from perdure import codec
from perdure.codec import seal
from perdure.entry import Message, Text, ToolCall
from perdure.errors import AppendRejectedError


class _Word(str):
    pass


@given(
    role=st.sampled_from(["user", "assistant", "nobody", _Word("user"), [], None]),
    parts=st.sampled_from(
        [
            (),
            (Text("hi"),),
            (Text("hi"), Text("you")),
            [Text("hi")],
            (Text("\ud800"),),
            (Text("hi", provider={"a": 1}),),
            (Text(3),),  # type: ignore[arg-type]
            (Text(_Word("hi")),),
            (ToolCall("c", "t"),),
            (None,),
            "hi",
        ]
    ),
    meta=st.sampled_from([False, True, 1, None]),
    end=st.sampled_from([None, "failed", "over", _Word("failed"), 3]),
    provider=st.sampled_from([None, {"x": [1]}, object()]),
    entry_id=st.sampled_from(["e1", "", "x" * 128, "x" * 129, "é" * 200, "\udfff", _Word("w"), 7]),
    created_at=st.sampled_from(
        [
            datetime(2026, 1, 2, tzinfo=UTC),
            datetime(2026, 1, 2, tzinfo=timezone(timedelta(hours=2))),
            datetime(2026, 1, 2),
            "2026-01-02T03:04:05Z",
        ]
    ),
    parent_id=st.sampled_from([None, "p", _Word("p"), 5]),
)
@example("user", (Text("hi"),), False, None, None, "e1", datetime(2026, 1, 2, tzinfo=UTC), "p")
def test_a_plain_message_is_sealed_as_every_other_is(
    role: Any,
    parts: Any,
    meta: Any,
    end: Any,
    provider: Any,
    entry_id: Any,
    created_at: Any,
    parent_id: Any,
) -> None:
    message = Message(
        role, parts, meta=meta, end=end, provider=provider, id=entry_id, created_at=created_at
    )

    def sealed() -> object:
        try:
            entry = seal(message, parent_id)
        except AppendRejectedError as error:
            return str(error)
        return entry.raw, entry.id, entry.type, entry.created_at, entry.parent_id, entry.view

    quickly = sealed()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codec, "_seal_plain", lambda message, parent_id: None)
        assert sealed() == quickly
