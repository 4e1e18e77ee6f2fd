"""Which session of an agent still fits our transcript, and what it is told."""

from __future__ import annotations

from perdure import text
from perdure.entry import Message, Text
from perdure.loops.briefing import Memory, brief

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
