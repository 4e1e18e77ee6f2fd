"""The tree of a log: growing, walking, the resume leaf, and damage found in bounded time."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.codec import AnyEntry, Entry, StoredEntry, seal
from perdure.entry import Message, text
from perdure.errors import EntryNotFoundError, JournalCorruptError
from perdure.fact import LeafMoved, SessionStarted
from perdure.tree import Tree, path_to, tree


def message(entry_id: str, parent_id: str | None) -> Entry:
    return seal(Message("user", (), id=entry_id, parent_id=parent_id))


def log(*entries: Entry) -> list[StoredEntry]:
    return [StoredEntry(seq, entry) for seq, entry in enumerate(entries, 1)]


def moved(leaf_id: str | None) -> Entry:
    return seal(LeafMoved(from_id=None, leaf_id=leaf_id))


def ids(path: list[Entry]) -> list[str]:
    return [entry.id for entry in path]


def test_the_resume_leaf_is_the_last_tree_entry() -> None:
    entries = log(message("a", None), message("b", "a"), seal(SessionStarted(source="startup")))
    assert tree(entries).leaf_id == "b"
    assert tree([*entries, StoredEntry(4, message("c", "a"))]).leaf_id == "c"
    assert tree(()).leaf_id is None


def test_a_moved_leaf_says_otherwise_until_the_next_tree_entry() -> None:
    entries = log(message("a", None), message("b", "a"), moved("a"))
    assert tree(entries).leaf_id == "a"
    assert tree(log(message("a", None), moved(None))).leaf_id is None
    assert tree([*entries, StoredEntry(4, message("c", "a"))]).leaf_id == "c"


def test_entries_can_be_given_in_every_form() -> None:
    typed: list[AnyEntry] = [
        Message("user", [], id="a", parent_id=None),
        Message("user", [], id="b", parent_id="a"),
        LeafMoved(id="m", from_id="b", leaf_id="a"),
    ]
    sealed = [seal(each) for each in typed]
    forms: list[list[AnyEntry]] = [typed, [*sealed], [*log(*sealed)]]
    for entries in forms:
        index = tree(entries)
        assert (index.leaf_id, index.children("a")) == ("a", ("b",))
        assert path_to(entries, "b") == sealed[:2]


def test_children_stand_in_order_of_seq() -> None:
    index = tree(log(message("z", None), message("y", "z"), message("x", "z"), message("r", None)))
    assert index.children("z") == ("y", "x")
    assert index.children(None) == ("z", "r")
    assert index.children("nobody") == ()
    assert len(index) == 4
    assert "y" in index
    assert index["y"].parent_id == "z"


def test_a_path_runs_from_the_root_to_the_leaf() -> None:
    entries = log(message("a", None), message("b", "a"), message("c", "a"), message("d", "c"))
    assert ids(path_to(entries, "d")) == ["a", "c", "d"]
    assert path_to(entries, None) == []


def test_an_entry_that_is_not_in_the_tree_is_not_found() -> None:
    fact = seal(SessionStarted(source="startup"))
    index = tree(log(fact))
    for entry_id in ("nobody", fact.id):
        with pytest.raises(EntryNotFoundError):
            index.path(entry_id)
        with pytest.raises(EntryNotFoundError):
            index[entry_id]


@pytest.mark.parametrize(
    "entries",
    [
        [message("a", None), message("a", None)],
        [seal(SessionStarted(source="s", id="a")), message("a", None)],
        [message("a", None), seal(SessionStarted(source="s", id="a"))],
        [seal(SessionStarted(source="s", id="a")), seal(SessionStarted(source="t", id="a"))],
        [message("a", None), moved("nobody")],
    ],
)
def test_an_id_that_is_there_twice_and_a_leaf_that_is_nowhere_are_damage(
    entries: list[Entry],
) -> None:
    with pytest.raises(JournalCorruptError) as caught:
        Tree(log(*entries), session_id="s")
    assert (caught.value.session_id, caught.value.seq) == ("s", 2)


@pytest.mark.parametrize(
    "entries",
    [
        [message("a", "a")],
        [message("b", "a"), message("a", "b")],
        [message("b", "hole"), message("a", "b")],
    ],
)
def test_a_circle_and_a_hole_are_damage(entries: list[Entry]) -> None:
    index = Tree(log(*entries), session_id="s")
    with pytest.raises(JournalCorruptError) as caught:
        index.path("a")
    assert caught.value.session_id == "s"
    assert caught.value.place


def test_a_hole_on_another_branch_harms_only_that_branch() -> None:
    index = tree(log(message("x", "hole"), message("a", None)))
    assert ids(index.path(index.leaf_id)) == ["a"]


@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(-1, 12)), max_size=14), st.integers(0, 12)
)
def test_in_any_log_a_path_is_a_chain_or_damage(links: list[tuple[int, int]], leaf: int) -> None:
    """Branches, circles, holes and doubled ids, at random."""
    entries = log(
        *(message(str(child), None if parent < 0 else str(parent)) for child, parent in links)
    )
    try:
        path = path_to(entries, str(leaf))
    except JournalCorruptError:
        return
    except EntryNotFoundError:
        assert all(child != leaf for child, _ in links)
        return
    assert path[0].parent_id is None
    assert path[-1].id == str(leaf)
    for parent, child in itertools.pairwise(path):
        assert child.parent_id == parent.id


def test_a_hundred_thousand_entries_are_walked_iteratively() -> None:
    at = text("x").created_at
    chain = [
        StoredEntry(
            n + 1, Entry(str(n), "message", at, str(n - 1) if n else None, b'{"type":"message"}')
        )
        for n in range(100_000)
    ]
    assert len(path_to(chain, "99999")) == 100_000
    chain[0] = StoredEntry(1, Entry("0", "message", at, "99999", b"{}"))
    with pytest.raises(JournalCorruptError, match="circle"):
        path_to(chain, "99999")
