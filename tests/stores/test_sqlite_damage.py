"""Damage in the file: found, named, never a shorter conversation, and of one session only."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import apsw
import pytest

from perdure.entry import text
from perdure.errors import JournalCorruptError, StoreUnavailableError
from perdure.stores.sqlite import SqliteStore, ledger
from perdure.testing.store_cases import messages, raws

HURT = "SELECT number FROM sessions WHERE session_id = 'hurt'"


@pytest.fixture(params=[4, 2048], ids=["indexed", "in the tail"])
async def place(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A store of two sessions, `hurt` and `well`, of ten entries each."""
    monkeypatch.setattr(ledger, "TAIL_LENGTH", request.param)
    async with SqliteStore(tmp_path / "s.db") as store:
        for name in ("hurt", "well"):
            await store.create_session(name, entries=messages(3))
            await store.append_entries(name, messages(7, "x"))
            await store.verify_session(name)
    return tmp_path / "s.db"


def do(place: Path, sql: str) -> None:
    connection = apsw.Connection(str(place))
    connection.execute(sql)
    assert connection.total_changes() > 0
    connection.close()


DAMAGES = {
    "a bit of an entry's text": (
        f"UPDATE entries SET raw = CAST(replace(CAST(raw AS TEXT), 'x says 1', 'x says 2') AS BLOB)"
        f" WHERE session = ({HURT}) AND seq = 5",
        5,
    ),
    "an entry that is no JSON": (
        f"UPDATE entries SET raw = x'7b22' WHERE session = ({HURT}) AND seq = 4",
        4,
    ),
    "a missing entry": (f"DELETE FROM entries WHERE session = ({HURT}) AND seq = 6", None),
    "a missing last entry": (f"DELETE FROM entries WHERE session = ({HURT}) AND seq = 10", None),
    "an entry of another session": (
        f"UPDATE entries SET session = 77 WHERE session = ({HURT}) AND seq = 2",
        None,
    ),
    "a wrong seq": (f"UPDATE entries SET seq = 99 WHERE session = ({HURT}) AND seq = 10", None),
    "a wrong sum": (f"UPDATE entries SET sum = x'00' WHERE session = ({HURT}) AND seq = 3", 3),
    "a wrong parent": (
        f"UPDATE entries SET parent = 0 WHERE session = ({HURT}) AND seq = 3",
        3,
    ),
    "a wrong id": (
        f"UPDATE entries SET entry_id = 'zz' WHERE session = ({HURT}) AND seq = 9",
        9,
    ),
    "an id that is not text": (
        f"UPDATE entries SET entry_id = CAST(x'6db178' AS TEXT) "
        f"WHERE session = ({HURT}) AND seq = 9",
        None,
    ),
    "a lost branch": (f"DELETE FROM branches WHERE session = ({HURT})", None),
    "a log said to be longer": (
        "UPDATE sessions SET last_seq = 11 WHERE session_id = 'hurt'",
        None,
    ),
    "a log said to be shorter": (
        "UPDATE sessions SET last_seq = 9 WHERE session_id = 'hurt'",
        None,
    ),
    "a wrong end": (
        "UPDATE sessions SET last_tree_id = 'm0' WHERE session_id = 'hurt'",
        None,
    ),
    "a broken header": ("UPDATE sessions SET header = x'00' WHERE session_id = 'hurt'", None),
    "another session's header": (
        "UPDATE sessions SET header = (SELECT header FROM sessions WHERE session_id = 'well') "
        "WHERE session_id = 'hurt'",
        None,
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
async def test_verifying_names_the_session_and_the_place(place: Path, damage: str) -> None:
    sql, seq = DAMAGES[damage]
    do(place, sql)
    async with SqliteStore(place) as store:
        with pytest.raises(JournalCorruptError) as found:
            await store.verify_session("hurt")
        assert found.value.session_id == "hurt"
        assert "s.db" in found.value.place
        if seq is not None:
            assert found.value.seq == seq
        await store.verify_session("well")


@pytest.mark.parametrize("table", ["by_seq", "by_id"])
@pytest.mark.parametrize("change", ["DELETE FROM {}", "UPDATE {} SET pos = 1"])
async def test_verifying_finds_an_index_that_does_not_agree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str, change: str
) -> None:
    monkeypatch.setattr(ledger, "TAIL_LENGTH", 4)
    async with SqliteStore(tmp_path / "s.db") as store:
        await store.create_session("s", entries=messages(9))
    key = "seq = 4" if table == "by_seq" else "entry_id = 'm3'"
    do(tmp_path / "s.db", f"{change.format(table)} WHERE {key}")
    async with SqliteStore(tmp_path / "s.db") as store:
        with pytest.raises(JournalCorruptError):
            await store.verify_session("s")


@pytest.mark.parametrize(
    "damage",
    [
        "an entry that is no JSON",
        "a missing entry",
        "a missing last entry",
        "an entry of another session",
        "a wrong seq",
        "an id that is not text",
        "a log said to be longer",
    ],
)
async def test_a_damaged_log_is_never_a_shorter_conversation(place: Path, damage: str) -> None:
    do(place, DAMAGES[damage][0])
    async with SqliteStore(place) as store:
        with pytest.raises(JournalCorruptError):
            await store.load_entries("hurt")
        with pytest.raises(JournalCorruptError):
            await store.page_entries("hurt", limit=100)
        assert raws(await store.load_entries("well")) == raws([*messages(3), *messages(7, "x")])


NOT_TEXT = "UPDATE sessions SET last_tree_id = CAST(x'b1' AS TEXT) WHERE session_id = 'hurt'"


async def test_what_is_not_text_any_more_is_damage_of_its_session_only(place: Path) -> None:
    do(place, NOT_TEXT)
    do(place, DAMAGES["an id that is not text"][0])
    async with SqliteStore(place) as store:
        hurt, well = await asyncio.gather(
            store.append_entries("hurt", [text("a")]),
            store.append_entries("well", [text("b")]),
            return_exceptions=True,
        )
        assert isinstance(hurt, JournalCorruptError)
        assert not isinstance(well, BaseException)


async def test_damage_of_one_session_harms_no_other_in_the_group(place: Path) -> None:
    do(place, DAMAGES["a broken header"][0])
    async with SqliteStore(place) as store:
        hurt, well, new = await asyncio.gather(
            store.append_entries("hurt", [text("a")]),
            store.append_entries("well", [text("b")]),
            store.create_session("new"),
            return_exceptions=True,
        )
        assert isinstance(hurt, JournalCorruptError)
        assert not isinstance(well, BaseException)
        assert not isinstance(new, BaseException)
        for verb in (store.load_session("hurt"), store.look("hurt"), store.load_entries("hurt")):
            with pytest.raises(JournalCorruptError):
                await verb
        await store.delete_session("hurt")
        await store.create_session("hurt", entries=messages(1))
        await store.verify_session("hurt")


async def test_an_index_that_lost_an_id_is_damage_of_its_session_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "TAIL_LENGTH", 4)
    async with SqliteStore(tmp_path / "s.db") as store:
        await store.create_session("s", entries=messages(9))
        await store.create_session("well")
    do(tmp_path / "s.db", "DELETE FROM by_id WHERE entry_id = 'm3'")
    async with SqliteStore(tmp_path / "s.db") as store:
        outcomes = await asyncio.gather(
            store.append_entries("s", messages(4)[3:]),
            store.append_entries("well", messages(9)),
            return_exceptions=True,
        )
        assert len(await store.load_entries("well")) == 9
        assert not isinstance(outcomes[1], BaseException)


async def test_pages_of_garbage_give_perdures_errors_and_no_drivers(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "s.db") as store:
        for name in "abcdef":
            await store.create_session(name, entries=[text("x" * 3000) for _ in range(20)])
    whole = (tmp_path / "s.db").read_bytes()
    pages = len(whole) // 8192
    refused = 0
    for page in range(pages):
        start = page * 8192
        broken = tmp_path / f"{page}.db"
        broken.write_bytes(whole[:start] + bytes([page % 251 + 1]) * 8192 + whole[start + 8192 :])
        async with SqliteStore(broken) as store:
            refused += await refusals(store)
        os.unlink(broken)
    assert refused >= pages


async def refusals(store: SqliteStore) -> int:
    """How many verbs refuse; each either answers or raises an error of Perdure's."""
    count = 0
    verbs: list[Callable[[], Awaitable[object]]] = [
        *(lambda name=name: store.verify_session(name) for name in "abcdef"),
        *(lambda name=name: store.load_entries(name) for name in "abcdef"),
        lambda: store.append_entries("a", [text("y")]),
        lambda: store.create_session("new"),
        lambda: store.list_sessions(),
        lambda: store.children("a", [None]),
        lambda: store.session_ids(),
        lambda: store.delete_session("b"),
    ]
    for verb in verbs:
        try:
            await verb()
        except (JournalCorruptError, StoreUnavailableError):
            count += 1
    return count


async def test_a_page_of_the_listing_shows_the_damaged_session_too(place: Path) -> None:
    do(place, "UPDATE sessions SET header = x'00' WHERE session_id = 'hurt'")
    async with SqliteStore(place) as store:
        page = await store.list_sessions()
        assert [(look.session.id, look.last_seq) for look in page.sessions] == [
            ("well", 10),
            ("hurt", 10),
        ]
        assert [look.damage is None for look in page.sessions] == [True, False]
        first = await store.list_sessions(limit=1)
        (hurt,) = (await store.list_sessions(limit=1, after=first.next)).sessions
        assert "its header" in str(hurt.damage)
        assert await store.session_ids() == ("hurt", "well")


async def test_an_id_that_is_no_text_any_more_harms_no_listing(place: Path) -> None:
    do(place, "UPDATE sessions SET session_id = CAST(x'ff68' AS TEXT) WHERE session_id = 'hurt'")
    async with SqliteStore(place) as store:
        assert await store.session_ids() == ("well",)
        assert [look.damage is None for look in (await store.list_sessions()).sessions] == [
            True,
            False,
        ]
        (damage,) = await store.verify_store()
        assert "not UTF-8" in str(damage)


BROKEN = {"raw": "x'7b22'", "entry_id": "CAST(x'7bff' AS TEXT)"}


@pytest.mark.parametrize("column", BROKEN)
async def test_what_was_mended_is_read_while_somebody_keeps_the_error(
    place: Path, column: str
) -> None:
    where = f"WHERE session = ({HURT}) AND seq = 4"
    async with SqliteStore(place) as store:
        sound = await store.load_entries("hurt")
        do(
            place,
            f"CREATE TABLE kept (value); INSERT INTO kept SELECT {column} FROM entries {where}",
        )
        do(place, f"UPDATE entries SET {column} = {BROKEN[column]} {where}")
        kept: list[BaseException] = []
        for _ in range(8):  # more than there are readers
            with pytest.raises(JournalCorruptError) as told:
                await store.load_entries("hurt")
            kept.append(told.value)
        do(place, f"UPDATE entries SET {column} = (SELECT value FROM kept) {where}")
        for _ in range(8):
            assert await store.load_entries("hurt") == sound
    assert len(kept) == 8
