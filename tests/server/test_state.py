"""The fold: the same from every prefix, serialisable, bounded, and strict where it matters."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.codec import Entry, StoredEntry, import_entry, seal
from perdure.entry import Compaction, Custom, File, Message, Text, text
from perdure.errors import StateUnreplayableError
from perdure.fact import (
    Claimed,
    Fact,
    LeafMoved,
    LoopChosen,
    MessageDiscarded,
    MessageQueued,
    Policy,
    SessionOwned,
    SessionStarted,
    TurnEnded,
    TurnStarted,
)
from perdure.server.session.state import (
    BEGINNING_CHARS,
    INLINE_BYTES,
    State,
    apply,
    decode_state,
    encode_state,
    fold,
    place,
)

IDS = st.sampled_from(["a", "b", "c", "d"])
UNKNOWN = b'{"id":"%s","type":"from_tomorrow","created_at":"2026-01-01T00:00:00Z","x":[1]}'


def queued(message_id: str, policy: Policy = "queue") -> MessageQueued:
    return MessageQueued(message_id=message_id, parts=(Text(message_id),), policy=policy)


DRAFTS: st.SearchStrategy[Any] = st.one_of(
    st.builds(lambda: text("hello")),
    st.builds(lambda: Compaction(summary="s", first_kept_id=None)),
    st.builds(lambda: Custom(kind="k", data={"a": 1})),
    st.builds(lambda epoch: Claimed(epoch=epoch, node="n"), st.integers(1, 9)),
    st.builds(lambda turn, m: TurnStarted(turn_id=turn, message_id=m), IDS, IDS),
    st.builds(
        lambda turn, reason: TurnEnded(turn_id=turn, reason=reason, cause=reason),
        IDS,
        st.sampled_from(["completed", "stopped", "interrupted", "failed", "refused"]),
    ),
    st.builds(queued, IDS, st.sampled_from(["queue", "interrupt"])),
    st.builds(lambda m: MessageDiscarded(message_id=m, why="so"), IDS),
    st.builds(lambda leaf: LeafMoved(from_id=None, leaf_id=leaf), st.none() | IDS),
    st.builds(lambda: SessionStarted(source="startup")),
    st.builds(lambda name: LoopChosen(name=name), IDS),
    st.builds(lambda name: SessionOwned(principal=name), IDS),
)


@st.composite
def journals(draw: st.DrawFn) -> list[StoredEntry]:
    """A journal that folds: drafts that the state at their place refuses are left out."""
    journal: list[StoredEntry] = []
    state = State()
    for draft in draw(st.lists(DRAFTS, max_size=40)):
        (stored,) = place(state, [seal(draft)])
        try:
            state = apply(state, stored)
        except StateUnreplayableError:
            continue
        journal.append(stored)
    return journal


@given(journals(), st.data())
def test_every_prefix_and_rest_give_the_state_of_the_whole(
    journal: list[StoredEntry], data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(journal)))
    prefix = decode_state(encode_state(fold(State(), journal[:cut])))
    assert prefix is not None
    assert fold(prefix, journal[cut:]) == fold(State(), journal)


@given(journals())
def test_replay_from_bytes_gives_the_state_of_the_live_entries(
    journal: list[StoredEntry],
) -> None:
    reread = [StoredEntry(each.seq, import_entry(each.raw)) for each in journal]
    assert fold(State(), reread) == fold(State(), journal)


@given(journals())
def test_the_first_end_of_a_turn_wins(journal: list[StoredEntry]) -> None:
    running: str | None = None
    ended: tuple[str, str] | None = None
    for stored in journal:
        match stored.view:
            case TurnStarted(turn_id=turn_id):
                assert running is None
                running = turn_id
            case TurnEnded(turn_id=turn_id, reason=reason) if turn_id == running:
                running, ended = None, (turn_id, reason)
            case _:
                pass
    state = fold(State(), journal)
    assert (state.turn.turn_id if state.turn else None) == running
    last = (state.last_turn.turn_id, state.last_turn.reason) if state.last_turn else None
    assert last == ended


@given(journals())
def test_the_queue_is_what_was_queued_and_neither_ran_nor_was_discarded(
    journal: list[StoredEntry],
) -> None:
    waits: dict[str, str] = {}
    for stored in journal:
        match stored.view:
            case MessageQueued(message_id=message_id, policy=policy):
                waits[message_id] = policy
            case MessageDiscarded(message_id=message_id) | TurnStarted(message_id=message_id):
                waits.pop(message_id, None)
            case _:
                pass
    urgent = [each for each, policy in waits.items() if policy == "interrupt"]
    patient = [each for each, policy in waits.items() if policy == "queue"]
    assert [each.message_id for each in fold(State(), journal).queue] == urgent + patient


@settings(max_examples=20)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=20))
def test_the_size_does_not_grow_with_the_session(sizes: list[int]) -> None:
    state = State()
    largest = 0
    for n in sizes:
        entries: list[Message | Fact] = [TurnStarted(turn_id="t", message_id="m")]
        entries += [text("x" * 1000) for _ in range(n)]
        entries.append(TurnEnded(turn_id="t", reason="completed"))
        state = fold(state, place(state, [seal(each) for each in entries]))
        largest = max(largest, len(encode_state(state)))
    assert largest < 600


def test_unknown_types_move_the_seq_and_an_unknown_tree_entry_the_leaf() -> None:
    fact = import_entry(UNKNOWN % b"f")
    grown = import_entry((UNKNOWN % b"t")[:-1] + b',"parent_id":null}')
    state = fold(State(), place(State(), [fact, grown]))
    assert (state.last_seq, state.leaf_id) == (2, "t")


def _broken(*entries: Any) -> str:
    with pytest.raises(StateUnreplayableError) as caught:
        fold(State(), place(State(), [e if isinstance(e, Entry) else seal(e) for e in entries]))
    return str(caught.value)


def test_a_log_that_breaks_the_rules_does_not_fold() -> None:
    turn = TurnStarted(turn_id="t", message_id="m")
    assert "inside" in _broken(turn, TurnStarted(turn_id="u", message_id="m"))
    assert "epoch 1" in _broken(Claimed(epoch=1, node="a"), Claimed(epoch=1, node="b"))
    assert "queued already" in _broken(queued("a"), queued("a"))
    unreadable = UNKNOWN.replace(b"from_tomorrow", b"turn_started") % b"x"
    assert "cannot read" in _broken(import_entry(unreadable))


def test_a_hole_in_the_journal_does_not_fold() -> None:
    for seq in (0, 2):
        with pytest.raises(StateUnreplayableError):
            apply(State(), StoredEntry(seq, seal(text("x"))))


def test_a_summary_that_cannot_be_read_counts_as_absent() -> None:
    state = fold(State(), place(State(), [seal(text("x"))]))
    assert decode_state(encode_state(state)) == state
    later = msgspec.json.encode(msgspec.to_builtins(state) | {"schema": 999})
    for summary in (None, b"", b"{", b"[1]", b"\xff", b'{"last_seq":"x"}', later):
        assert decode_state(summary) is None


def test_a_big_queued_part_is_elided_in_the_state() -> None:
    big = MessageQueued(message_id="m", parts=(Text("x" * (INLINE_BYTES + 1)), Text("small")))
    state = fold(State(), place(State(), [seal(big)]))
    elided, small = state.queue[0].parts
    assert (elided["type"], elided["elided"]) == ("text", True)
    assert elided["bytes"] > INLINE_BYTES
    assert elided["text"] == "x" * BEGINNING_CHARS
    assert small == {"type": "text", "text": "small"}


def test_a_big_queued_file_is_elided_but_for_what_it_is() -> None:
    file = File("image/png", data=bytes(INLINE_BYTES + 1), name="a.png" + "x" * BEGINNING_CHARS)
    state = fold(State(), place(State(), [seal(MessageQueued(message_id="m", parts=(file,)))]))
    (elided,) = state.queue[0].parts
    assert elided.pop("bytes") > INLINE_BYTES
    assert elided == {
        "type": "file",
        "media_type": "image/png",
        "name": ("a.png" + "x" * BEGINNING_CHARS)[:BEGINNING_CHARS],
        "elided": True,
    }


def test_of_a_queued_message_a_bounded_part_is_in_the_state() -> None:
    many = MessageQueued(message_id="m", parts=[Text("x" * 100)] * 100)
    state = fold(State(), place(State(), [seal(many)]))
    shown = [part for part in state.queue[0].parts if "elided" not in part]
    assert 0 < len(shown) < 20
    assert len(state.queue[0].parts) == 100
