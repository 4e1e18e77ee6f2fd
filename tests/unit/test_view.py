"""The two readings of a path: what a model gets and what a person reads."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.codec import Entry, StoredEntry, import_entry, seal
from perdure.compaction import plan_compaction
from perdure.entry import (
    Compaction,
    Custom,
    File,
    Message,
    Text,
    ToolCall,
    ToolResult,
    text,
)
from perdure.errors import ConfigurationError
from perdure.view import (
    INTERRUPTED,
    OpenCalls,
    excerpt,
    excerpt_result,
    model_view,
    open_calls,
    repairs,
    transcript_view,
)
from tests.unit.checks import answers, check_model_view
from tests.unit.strategies import paths


def chain(*drafts: object) -> list[Entry]:
    path: list[Entry] = []
    for draft in drafts:
        path.append(seal(draft, path[-1].id if path else None))
    return path


def calls(*ids: str) -> Message:
    return Message("assistant", tuple(ToolCall(call_id, "tool") for call_id in ids))


def result(call_id: str, said: str = "r", *, interrupted: bool = False) -> Message:
    return Message("tool", (ToolResult(call_id, (Text(said),), interrupted=interrupted),))


@given(paths())
def test_a_model_view_pairs_every_call_with_one_result(path: list[Entry]) -> None:
    check_model_view(model_view(path))


@given(paths())
def test_the_views_are_the_same_of_entries_in_every_form(path: list[Entry]) -> None:
    typed = [entry.view for entry in path]
    stored = [StoredEntry(seq, entry) for seq, entry in enumerate(path, 1)]
    assert model_view(typed) == model_view(stored) == model_view(path)
    shown = transcript_view(path)
    assert transcript_view(typed) == [entry.view for entry in shown]
    assert [each.entry for each in transcript_view(stored)] == shown


@given(paths())
def test_looking_changes_nothing_and_gives_the_same_twice(path: list[Entry]) -> None:
    before = [entry.raw for entry in path]
    assert model_view(path) == model_view(path)
    assert [entry.raw for entry in path] == before


@given(paths())
def test_a_real_result_wins_over_an_interrupted_one(path: list[Entry]) -> None:
    messages = [entry.view for entry in path]
    for at, message in enumerate(messages):
        assert isinstance(message, Message)
        last = {call.call_id for call in message.tool_calls} if message.role == "assistant" else ()
        for call_id in last:
            later = [later for later in messages[at:] if isinstance(later, Message)]
            again = [
                other
                for other in later[1:]
                if other.role == "assistant" and call_id in {c.call_id for c in other.tool_calls}
            ]
            real = [
                found
                for other in later
                for found in other.tool_results
                if found.call_id == call_id and not found.interrupted
            ]
            once = [call for call in message.tool_calls if call.call_id == call_id]
            if real and not again and len(once) == 1:
                view = model_view(path)
                mine = next(
                    i for i, each in enumerate(view) if each.id == message.id and each.tool_calls
                )
                shown = [each for each in view[mine + 1 :] if each.tool_results]
                index = [call.call_id for call in message.tool_calls].index(call_id)
                assert not shown[index].tool_results[0].interrupted


@given(paths())
def test_after_the_repairs_no_call_is_open(path: list[Entry]) -> None:
    found = open_calls(path)
    synthesised = [each for each in model_view(path) if each.id.startswith("interrupted:")]
    assert len(synthesised) == len(found)
    repaired = chain_on(path, repairs(found))
    assert open_calls(repaired) == []
    check_model_view(model_view(repaired))
    assert answers(model_view(repaired)) == answers(model_view(path))


def chain_on(path: list[Entry], drafts: Sequence[object]) -> list[Entry]:
    longer = list(path)
    for draft in drafts:
        longer.append(seal(draft, longer[-1].id if longer else None))
    return longer


@given(paths())
def test_open_calls_can_be_followed_as_the_path_grows(path: list[Entry]) -> None:
    growing = OpenCalls()
    for length, entry in enumerate(path, 1):
        growing.add(entry)
        assert list(growing) == open_calls(path[:length])


def test_results_stand_in_call_order_behind_their_message() -> None:
    path = chain("" or text("q"), calls("a", "b"), text("meanwhile"), result("b"), result("a"))
    assert [message.role for message in model_view(path)] == [
        "user",
        "assistant",
        "tool",
        "tool",
        "user",
    ]
    assert [call_id for call_id, _ in answers(model_view(path))] == ["a", "b"]


def test_answered_calls_of_a_partly_answered_batch_keep_their_answers() -> None:
    path = chain(calls("a", "b", "c"), result("b", "real"))
    assert answers(model_view(path)) == [("a", INTERRUPTED), ("b", "real"), ("c", INTERRUPTED)]
    assert [call.call_id for call in open_calls(path)] == ["a", "c"]


def test_a_late_real_result_wins_and_a_second_real_one_does_not() -> None:
    path = chain(calls("a"), result("a", "cut", interrupted=True), result("a", "real"))
    assert answers(model_view(path)) == [("a", "real")]
    assert answers(model_view(chain_on(path, [result("a", "again")]))) == [("a", "real")]
    assert answers(model_view(chain_on(path, [result("a", "x", interrupted=True)]))) == [
        ("a", "real")
    ]


def test_a_result_without_a_call_and_a_call_of_a_user_are_not_shown() -> None:
    path = chain(result("nobody"), Message("user", (ToolCall("u", "t"), Text("said"))), result("u"))
    (message,) = model_view(path)
    assert message.parts == (Text("said"),)


def test_calls_that_share_an_id_get_their_own_results() -> None:
    path = chain(calls("x", "x"), result("x", "1"), result("x", "2"), calls("x"), result("x", "3"))
    assert answers(model_view(path)) == [("x", "1"), ("x", "2"), ("x", "3")]
    assert open_calls(path) == []


def test_many_calls_of_one_id_cost_no_search_through_all_of_them() -> None:
    count = 5_000
    cut_off = [result("x", interrupted=True) for _ in range(2 * count)]
    real = [result("x", str(n)) for n in range(count)]
    path = chain(*(calls("x") for _ in range(count)), *cut_off, *real)
    assert answers(model_view(path)) == [("x", str(n)) for n in reversed(range(count))]


def test_an_orphan_whose_id_was_used_again_can_still_be_repaired() -> None:
    path = chain(calls("x"), calls("x"), result("x", "mine"))
    assert answers(model_view(path)) == [("x", INTERRUPTED), ("x", "mine")]
    repaired = chain_on(path, repairs(open_calls(path)))
    assert open_calls(repaired) == []
    assert answers(model_view(repaired)) == [("x", INTERRUPTED), ("x", "mine")]


def test_a_call_in_flight_is_not_repaired() -> None:
    found = open_calls(chain(calls("a", "b")))
    (message,) = repairs(found, {"a"})
    (made,) = message.tool_results
    assert (made.call_id, made.name, made.interrupted, made.is_error) == ("b", "tool", True, True)


def test_meta_is_shown_to_the_model_and_custom_entries_are_not() -> None:
    unknown = import_entry(b'{"type":"new","id":"n","parent_id":"p"}')
    path = chain(text("hidden", meta=True), Custom(kind="k", data=1), text("said"))
    path.append(unknown)
    assert [message.text for message in model_view(path)] == ["hidden", "said"]
    assert [entry.type for entry in transcript_view(path)] == ["custom", "message", "new"]


def test_a_compaction_shows_its_summary_and_what_it_kept() -> None:
    old, kept = text("old"), text("kept")
    path = chain(old, kept, Compaction(summary="S", first_kept_id=kept.id), text("new"))
    view = model_view(path)
    assert view[0].meta
    assert view[0].text.endswith("S")
    assert [message.text for message in view[1:]] == ["kept", "new"]
    assert len(transcript_view(path)) == 4
    assert [message.text for message in model_view(path[:2])] == ["old", "kept"]


def test_the_newest_compaction_counts_and_may_keep_nothing() -> None:
    first = text("a")
    path = chain(
        first,
        Compaction(summary="1", first_kept_id=first.id),
        text("b"),
        Compaction(summary="2", first_kept_id=None),
        text("c"),
    )
    assert [message.text.split()[-1] for message in model_view(path)] == ["2", "c"]


def test_a_kept_entry_before_an_older_compaction_hides_that_one() -> None:
    first = text("a")
    path = chain(
        first,
        Compaction(summary="1", first_kept_id=None),
        text("b"),
        Compaction(summary="2", first_kept_id=first.id),
    )
    assert [message.text.split()[-1] for message in model_view(path)] == ["2", "a", "b"]


@given(paths(max_size=20), st.integers(0, 4))
def test_a_cut_never_falls_inside_a_batch(path: list[Entry], keep_turns: int) -> None:
    plan = plan_compaction(path, keep_turns)
    if plan is None:
        return
    compacted = chain_on(path, [Compaction(summary="S", first_kept_id=plan.first_kept_id)])
    check_model_view(model_view(compacted))
    check_model_view(plan.messages)
    before, after = answers(model_view(path)), answers(model_view(compacted))
    assert answers(plan.messages) + after == before or len(set(ids_of_calls(path))) < len(
        ids_of_calls(path)
    )
    again = plan_compaction(compacted, keep_turns)
    if again is not None:
        check_model_view(again.messages)


def ids_of_calls(path: list[Entry]) -> list[str]:
    return [
        call.call_id
        for entry in path
        if isinstance(view := entry.view, Message) and view.role == "assistant"
        for call in view.tool_calls
    ]


def turn(n: int) -> list[object]:
    return [text(f"q{n}"), calls(f"c{n}"), result(f"c{n}"), Message("assistant", (Text(f"a{n}"),))]


def test_the_last_turns_are_kept_whole_and_an_earlier_summary_is_summarised() -> None:
    path = chain(*turn(1), *turn(2), *turn(3))
    plan = plan_compaction(path, 2)
    assert plan is not None
    assert plan.first_kept_id == path[4].id
    assert [message.text for message in plan.messages] == ["q1", "", "", "a1"]
    longer = chain_on(path, [Compaction(summary="S", first_kept_id=plan.first_kept_id), *turn(4)])
    again = plan_compaction(longer, 2)
    assert again is not None
    assert again.first_kept_id == path[8].id
    assert again.messages[0].text.endswith("S")
    assert [message.text for message in again.messages[1:]] == ["q2", "", "", "a2"]


def test_with_nothing_to_summarise_there_is_no_plan() -> None:
    path = chain(Message("system", (Text("be kind"),)), text("context", meta=True), *turn(1))
    assert plan_compaction([], 0) is None
    assert plan_compaction(path, 1) is None
    assert plan_compaction(path, 2) is None
    whole = plan_compaction(path, 0)
    assert whole is not None
    assert whole.first_kept_id is None
    compacted = chain_on(path, [Compaction(summary="S", first_kept_id=None)])
    assert plan_compaction(compacted, 0) is None
    with pytest.raises(ConfigurationError):
        plan_compaction(path, -1)


def test_a_batch_whose_result_comes_in_a_later_turn_is_not_cut() -> None:
    path = chain(*turn(1), text("q2"), calls("x"), text("q3"), result("x"), text("q4"))
    plan = plan_compaction(path, 2)
    assert plan is not None
    assert plan.first_kept_id == path[4].id


def test_a_cut_before_a_chain_of_batches_that_overlap_costs_one_pass() -> None:
    count = 5_000
    drafts: list[object] = [text("old"), text("q")]
    for n in range(count):
        drafts += [calls(f"c{n}"), text("q"), *([result(f"c{n - 1}")] if n else [])]
    path = chain(*drafts)
    plan = plan_compaction(path, 4)
    assert plan is not None
    assert plan.first_kept_id == path[1].id


EMOJI = [
    "👩‍👩‍👧‍👦",
    "🇩🇪",
    "👍🏽",
    "é",
    "e\u0301\u0323",
    "각",
    "\u1100\u1161\u11a8",
    "क्षि",
    "🏴\U000e0067\U000e0062\U000e007f",
    "\r\n",
    "x",
    "☃\ufe0f",
]


@given(st.lists(st.sampled_from(EMOJI), max_size=30), st.integers(-1, 60))
def test_an_excerpt_keeps_whole_characters_and_is_bounded(pieces: list[str], limit: int) -> None:
    content = "".join(pieces)
    shown = excerpt(content, limit)
    if len(content) <= max(limit, 0):
        assert shown == content
        return
    head, _, tail = shown.partition("\n[…")
    note, _, tail = tail.partition("…]\n")
    assert len(head) + len(tail) <= max(limit, 0)
    assert len(head) + len(tail) + int(note.split()[0]) == len(content) or not content
    assert head in {"".join(pieces[:n]) for n in range(len(pieces) + 1)}
    assert tail in {"".join(pieces[n:]) for n in range(len(pieces) + 1)}


@pytest.mark.parametrize("content", ["\u0301" * 50_000, "🇩" * 50_000, "\u200d" * 50_000])
def test_an_excerpt_of_one_endless_character_is_bounded_too(content: str) -> None:
    assert len(excerpt(content, 1_000)) <= 1_100


def test_a_result_is_cut_for_the_model_only_and_by_its_own_limit() -> None:
    picture = File("image/png", url="https://example.org/p")
    whole = ToolResult("a", (Text("x" * 50), picture, Text("y" * 50)), limit_chars=10)
    path = chain(calls("a"), Message("tool", (whole,)))
    (shown,) = model_view(path)[1].tool_results
    assert shown.text.startswith("xxxxx\n[… 90 characters left out")
    assert shown.parts[1] == picture
    stored = path[1].view
    assert isinstance(stored, Message)
    assert stored.tool_results == (whole,)
    assert excerpt_result(ToolResult("a", (Text("x"),), limit_chars=1)).text == "x"
    assert excerpt_result(ToolResult("a", (Text("x" * 9),))).text == "x" * 9
