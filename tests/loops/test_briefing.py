"""Which session of an agent still fits our transcript, and what it is told."""

from __future__ import annotations

import re

from perdure import text
from perdure.entry import Message, Text, ToolCall, ToolResult
from perdure.loops.briefing import MOST_CHARS, Memory, brief, fresh

FIRST, SECOND, NOTE = text("first"), text("second"), text("sent again", meta=True)
ANSWER = Message("assistant", (Text("an answer"),))


def told(messages: list[Message], outputs: int | None) -> tuple[str | None, list[str]]:
    briefing = brief(messages, Memory("theirs", FIRST.id, FIRST.id, outputs))
    return briefing.session, [part.text for part in briefing.parts if isinstance(part, Text)]


def test_a_session_that_fits_is_told_what_is_new() -> None:
    assert told([FIRST, ANSWER, SECOND], 1) == ("theirs", ["second"])


def test_a_turn_that_was_cut_off_is_told_with_its_record() -> None:
    session, (record, prompt) = told([FIRST, ANSWER, SECOND], None)
    assert (session, prompt) == ("theirs", "second")
    assert "cut off" in record
    assert "an answer" in record


def test_a_turn_that_is_sent_again_begins_a_fresh_session() -> None:
    assert told([FIRST], None) == (None, ["first"])
    assert told([FIRST, NOTE], None) == (None, ["first", "sent again"])
    assert told([FIRST, NOTE], 1) == (None, ["first", "sent again"])


def test_a_path_that_ends_within_what_it_did_does_not_fit() -> None:
    session, (record, prompt) = told([FIRST, ANSWER, SECOND], 2)
    assert (session, prompt) == (None, "second")
    assert "an answer" in record


def test_another_beginning_does_not_fit() -> None:
    assert told([SECOND, FIRST, ANSWER, SECOND], 1)[0] is None


def test_what_is_left_out_of_a_long_record_splits_no_character() -> None:
    """Families of joined emoji: seven code points each."""
    family = "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466"
    call = ToolCall("c", "look", {})
    result = ToolResult("c", (Text(family * 1000),), name="look")
    told = [text("go"), Message("assistant", (call,)), Message("tool", (result,))]
    long = [Message("assistant", (Text(family * (MOST_CHARS // 7)),))]
    for messages in ([*told, *long, text("x")], [*told, text("x")]):
        record = fresh(messages).parts[0]
        assert isinstance(record, Text)
        for piece in re.findall(f"[{family}]+", record.text):
            assert piece == family * (len(piece) // 7)
