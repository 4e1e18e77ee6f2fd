"""A salvage: what is sound comes into a new session that is valid, and the damaged one stays."""

from __future__ import annotations

import os
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import apsw
import pytest

import perdure
from perdure.codec import StoredEntry, seal
from perdure.entry import Compaction, Message, Text, ToolCall, ToolResult
from perdure.errors import (
    FormatTooNewError,
    InvalidSessionIdError,
    NothingToSalvageError,
    SessionExistsError,
    SessionNotFoundError,
    UnrecoverableError,
)
from perdure.fact import Gap, LeafMoved
from perdure.salvage import Salvaged, SalvagingStore, salvage_session
from perdure.store import SessionStore
from perdure.stores.jsonl import JsonlStore
from perdure.stores.jsonl_name import name_of
from perdure.stores.memory import MemoryStore
from perdure.stores.sqlite import SqliteStore
from perdure.testing.store_cases import MADE_AT, messages, placed
from perdure.tree import Tree, check_paths
from perdure.view import model_view


def conversation() -> list[perdure.Entry]:
    """Calls and results, a branch, a move of the leaf and a compaction, in ten entries."""
    call = Message("assistant", (ToolCall("c1", "find"),), id="call", created_at=MADE_AT)
    result = Message("tool", (ToolResult("c1", (Text("x"),)),), id="result", created_at=MADE_AT)
    summary = Compaction("so far", "m1", id="summary", created_at=MADE_AT)
    return [
        *messages(3),
        seal(call, "m2"),
        seal(result, "call"),
        placed("other", "m0", "a branch"),
        seal(LeafMoved("other", "result", id="moved", created_at=MADE_AT)),
        placed("next", "result"),
        seal(summary, "next"),
        placed("last", "summary"),
    ]


IDS = [entry.id for entry in conversation()]


async def check(store: SalvagingStore, salvaged: Salvaged) -> list[StoredEntry]:
    """The new session's entries, once it is seen to be valid in every way."""
    session_id = salvaged.session.id
    verified = await store.verify_session(session_id)
    assert (verified.torn, verified.unproven) == (None, 0)
    entries = list(await store.load_entries(session_id))
    check_paths(entries, session_id=session_id)
    tree = Tree(entries)
    path = tree.path(tree.leaf_id)
    view = model_view(path)
    calls = [call.call_id for message in view for call in message.tool_calls]
    assert calls == [r.call_id for message in view for r in message.tool_results]
    async with await perdure.open(session_id, store=store) as agent:
        await agent.append("go on")
    gaps = [each.entry.view for each in entries if isinstance(each.entry.view, Gap)]
    assert [(g.place, g.detail, g.lost_bytes) for g in gaps] == [
        (g.place, g.detail, g.lost_bytes) for g in salvaged.gaps
    ]
    assert salvaged.kept == len(entries) - len(gaps)
    assert gaps
    return entries


def kept(entries: list[StoredEntry]) -> list[str]:
    return [each.id for each in entries if each.type != "gap"]


def unchanged(entries: list[StoredEntry]) -> set[str]:
    originals = {entry.raw for entry in conversation()}
    return {each.id for each in entries if each.raw in originals}


# JSON lines


async def file(folder: Path) -> Path:
    async with JsonlStore(folder) as store:
        await store.create_session("s", parent_id="p", entries=conversation()[:3])
        await store.append_entries("s", conversation()[3:5])
        for entry in conversation()[5:]:
            await store.append_entries("s", [entry])
    return folder / "s.jsonl"


async def from_lines(folder: Path, change: Callable[[list[bytes]], list[bytes]]) -> Salvaged:
    path = await file(folder)
    path.write_bytes(b"\n".join(change(path.read_bytes().split(b"\n"))))
    before = path.read_bytes()
    async with JsonlStore(folder) as store:
        salvaged = await salvage_session(store, "s", "new")
        assert path.read_bytes() == before
        assert sorted(os.listdir(folder)) == ["new.jsonl", "s.jsonl"]
        await check(store, salvaged)
    return salvaged


@pytest.mark.parametrize("at", range(10))
@pytest.mark.parametrize("how", ["changed", "garbage", "gone"])
async def test_each_line_costs_itself_and_no_other(tmp_path: Path, at: int, how: str) -> None:
    def change(lines: list[bytes]) -> list[bytes]:
        line = lines[at + 1]
        middle = line.index(b"id")
        bent = [line[:middle] + b"Id" + line[middle + 2 :]] if how == "changed" else [b"garbage"]
        return [*lines[: at + 1], *([] if how == "gone" else bent), *lines[at + 2 :]]

    if how == "gone" and at == 9:
        with pytest.raises(NothingToSalvageError, match="healthy"):  # only a head can tell
            await from_lines(tmp_path, change)
        return
    salvaged = await from_lines(tmp_path, change)
    async with JsonlStore(tmp_path) as store:
        entries = list(await store.load_entries("new"))
    assert [each.id for each in entries if each.id in IDS] == [
        entry_id for entry_id in IDS if entry_id != IDS[at]
    ]
    names = {"m0", "m1", "m2", "call", "result", "next", "summary"}  # others refer to them
    heirs = 10 - 1 - len(unchanged(entries))
    assert (heirs > 0) is (IDS[at] in names)
    for entry_id in set(IDS) - unchanged(entries) - {IDS[at]}:
        assert repr(entry_id) in "".join(gap.detail for gap in salvaged.gaps)
    assert salvaged.session.parent_id == "p"


async def test_an_orphan_grows_from_the_last_sound_entry_before_its_gap(tmp_path: Path) -> None:
    salvaged = await from_lines(tmp_path, lambda lines: [*lines[:2], b"x" * 40, *lines[3:]])
    (gap,) = salvaged.gaps
    assert gap.lost_bytes == 40
    assert gap.place == f"{tmp_path}/s.jsonl, line 3, byte {gap.place.rpartition(' ')[2]}"
    assert "entry 'm2' grew from 'm1', here from 'm0'" in gap.detail
    assert "compaction 'summary' kept from 'm1' on, here from 'm2'" in gap.detail
    async with JsonlStore(tmp_path) as store:
        by_id = {each.id: each for each in await store.load_entries("new")}
        order = [each.type for each in by_id.values()]
    assert order[:3] == ["message", "gap", "message"]
    assert by_id["m2"].parent_id == "m0"
    assert cast("Compaction", by_id["summary"].view).first_kept_id == "m2"


async def test_a_broken_header_is_known_by_the_name_of_its_file(tmp_path: Path) -> None:
    salvaged = await from_lines(tmp_path, lambda lines: [b"{", *lines[1:]])
    assert (salvaged.kept, len(salvaged.gaps)) == (10, 1)
    assert salvaged.session.parent_id is None


async def test_a_lost_header_line_is_one_gap(tmp_path: Path) -> None:
    salvaged = await from_lines(tmp_path, lambda lines: lines[1:])
    assert salvaged.kept == 10


async def test_a_file_that_lost_its_id_is_salvaged_by_its_name(tmp_path: Path) -> None:
    async with JsonlStore(tmp_path) as store:
        await store.create_session("user/42", entries=conversation())
        await store.create_session("well", entries=messages(1))
        path = tmp_path / f"{name_of('user/42')}.jsonl"
        path.write_bytes(path.read_bytes().replace(b'"session_init"', b'"session_inot"'))
        assert list(await store.session_ids()) == ["well"]
        (damage,) = await store.unlisted()
        assert damage.session_id == path.stem
        for number, name in enumerate((path.stem, "user/42")):
            salvaged = await salvage_session(store, name, f"new{number}")
            assert kept(await check(store, salvaged)) == IDS


async def test_a_torn_tail_is_a_gap_at_the_end(tmp_path: Path) -> None:
    salvaged = await from_lines(tmp_path, lambda lines: [*lines[:-2], lines[-2][:-9]])
    assert salvaged.kept == 9
    assert salvaged.gaps[-1].place.startswith(f"{tmp_path}/s.jsonl, line 11, byte ")


async def test_what_is_whole_of_a_torn_batch_is_kept(tmp_path: Path) -> None:
    salvaged = await from_lines(tmp_path, lambda lines: [*lines[:5], b""])
    assert salvaged.kept == 4
    assert "its last batch has 2 lines, and 1 are there" in salvaged.gaps[-1].detail


async def test_doubled_and_moved_lines_cost_nothing(tmp_path: Path) -> None:
    def change(lines: list[bytes]) -> list[bytes]:
        return [*lines[:4], lines[3], *lines[4:7], lines[8], lines[7], *lines[9:]]

    salvaged = await from_lines(tmp_path, change)
    assert salvaged.kept == 10
    assert [gap.lost_bytes for gap in salvaged.gaps] == [0]


@pytest.mark.parametrize("seed", range(30))
async def test_whatever_became_of_a_file_its_salvage_is_valid(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    path = await file(tmp_path)
    data = bytearray(path.read_bytes())
    for _ in range(chance.randint(1, 6)):
        start = chance.randrange(len(data))
        stop = start + chance.choice([1, 1, 30, 400])
        match chance.randrange(4):
            case 0:
                data[start:stop] = bytes(len(data[start:stop]))
            case 1:
                del data[start:stop]
            case 2:
                data[start:start] = data[start:stop]
            case _:
                data[start] ^= 1 << chance.randrange(8)
    path.write_bytes(data)
    async with JsonlStore(tmp_path) as store:
        try:
            salvaged = await salvage_session(store, "s", "new")
        except NothingToSalvageError:
            return
        await check(store, salvaged)
    assert path.read_bytes() == data


# SQLite


async def database(path: Path) -> None:
    async with SqliteStore(path) as store:
        await store.create_session("other", entries=messages(2))
        await store.create_session("s", parent_id="p", entries=conversation())


@asynccontextmanager
async def changed(path: Path, *sql: str) -> AsyncIterator[SqliteStore]:
    await database(path)
    connection = apsw.Connection(str(path))
    for each in sql:
        connection.execute(each)
    assert connection.total_changes() > 0
    connection.close()
    async with SqliteStore(path) as store:
        yield store


OF = "session = (SELECT number FROM sessions WHERE session_id = 's')"
AT = f"{OF} AND seq"
DAMAGES = {
    "a row that is missing": (f"DELETE FROM entries WHERE {AT} = 3", {"m2"}),
    "rows that are missing": (
        f"DELETE FROM entries WHERE {AT} IN (3, 4, 8)",
        {"m2", "call", "next"},
    ),
    "the last row missing": (f"DELETE FROM entries WHERE {AT} = 10", {"last"}),
    "a row that is no JSON": (f"UPDATE entries SET raw = x'7b' WHERE {AT} = 4", {"call"}),
    "a row of other bytes": (
        f"UPDATE entries SET raw = CAST(replace(raw, 'says', 'lies') AS BLOB) WHERE {AT} = 2",
        {"m1"},
    ),
    "a wrong sum": (f"UPDATE entries SET sum = zeroblob(16) WHERE {AT} = 2", set()),
    "a wrong seq": (f"UPDATE entries SET seq = 77 WHERE {AT} = 2", set()),
    "a wrong id": (f"UPDATE entries SET entry_id = 'zz' WHERE {AT} = 2", set()),
    "an id that is no text": (
        f"UPDATE entries SET entry_id = CAST(x'ff' AS TEXT) WHERE {AT} = 2",
        set(),
    ),
    "a lost branch": (f"DELETE FROM branches WHERE {OF}", set()),
    "a log said to be shorter": ("UPDATE sessions SET last_seq = 9 WHERE session_id = 's'", set()),
    "a log said to be longer": ("UPDATE sessions SET last_seq = 11 WHERE session_id = 's'", set()),
    "a broken header": ("UPDATE sessions SET header = x'00' WHERE session_id = 's'", set()),
    "the header of another": (
        "UPDATE sessions SET header = (SELECT header FROM sessions WHERE session_id = 'other') "
        "WHERE session_id = 's'",
        set(),
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
async def test_rows_that_are_sound_are_kept(tmp_path: Path, damage: str) -> None:
    sql, lost = DAMAGES[damage]
    async with changed(tmp_path / "s.db", sql) as store:
        with pytest.raises(UnrecoverableError):
            await store.verify_session("s")
        entries = await check(store, await salvage_session(store, "s", "new"))
        assert kept(entries) == [entry_id for entry_id in IDS if entry_id not in lost]
        with pytest.raises(UnrecoverableError):
            await store.verify_session("s")


async def test_a_page_that_cannot_be_read_costs_its_own_rows(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    texts = [f"{number} " + "y" * 700 for number in range(200)]
    entries = [placed(f"e{n}", f"e{n - 1}" if n else None, text) for n, text in enumerate(texts)]
    async with SqliteStore(path) as store:
        await store.create_session("s", entries=entries)
        await store.create_session("well", entries=entries)
    whole = path.read_bytes()
    kept_of: list[int] = []
    hopeless = 0
    for page in range(1, len(whole) // 8192):
        start = page * 8192
        path.write_bytes(whole[:start] + bytes([page % 251 + 1]) * 8192 + whole[start + 8192 :])
        async with SqliteStore(path) as store, MemoryStore() as into:
            try:
                assert (await store.verify_session("s")).head.seq == 200
            except UnrecoverableError:
                pass
            else:
                continue  # a page of nothing that concerns it
            try:
                salvaged = await salvage_session(store, "s", "new", into=into)
            except (UnrecoverableError, SessionNotFoundError, NothingToSalvageError):
                hopeless += 1  # the page that tells the sessions, or the root of all entries
                continue
            new = [each for each in await into.load_entries("new") if each.type != "gap"]
            found = {each.id for each in new}
            assert [each.id for each in new] == [e.id for e in entries if e.id in found]
            check_paths(await into.load_entries("new"), session_id="new")
            kept_of.append(salvaged.kept)
    assert sorted(kept_of)[0] >= 180
    assert (len(kept_of) >= 10, hopeless <= 5) == (True, True)


# Any store


async def test_a_hole_that_was_appended_is_mended(tmp_path: Path) -> None:
    for store in (MemoryStore(), JsonlStore(tmp_path / "l"), SqliteStore(tmp_path / "s.db")):
        async with store:
            entries = [
                placed("a", None),
                placed("b", "nowhere"),
                placed("c", "d"),
                placed("d", "c"),
            ]
            await store.create_session("s", entries=entries)
            salvaged = await salvage_session(store, "s", "new")
            assert kept(await check(store, salvaged)) == ["a", "b", "c", "d"]


async def test_what_is_healthy_taken_or_not_there_is_refused(tmp_path: Path) -> None:
    for store in (MemoryStore(), JsonlStore(tmp_path / "l"), SqliteStore(tmp_path / "s.db")):
        async with store:
            await store.create_session("s", entries=conversation())
            await store.create_session("empty")
            for session_id in ("s", "empty"):
                with pytest.raises(NothingToSalvageError, match="healthy"):
                    await salvage_session(store, session_id, "new")
            with pytest.raises(SessionExistsError):
                await salvage_session(store, "s", "empty")
            with pytest.raises(SessionNotFoundError):
                await salvage_session(store, "none", "new")
            with pytest.raises(InvalidSessionIdError):
                await salvage_session(store, "s", "")
            assert await exists(store, "new") is False


async def test_a_log_of_a_newer_format_is_refused(tmp_path: Path) -> None:
    async with JsonlStore(tmp_path) as store:
        await store.create_session("s", entries=messages(2))
        path = tmp_path / "s.jsonl"
        path.write_bytes(path.read_bytes().replace(b'"format":1', b'"format":2'))
        with pytest.raises(FormatTooNewError):
            await salvage_session(store, "s", "new")


async def test_a_session_of_which_nothing_is_sound_makes_none(tmp_path: Path) -> None:
    (tmp_path / "s.jsonl").write_bytes(bytes(5000))
    async with JsonlStore(tmp_path) as store:
        with pytest.raises(NothingToSalvageError, match="nothing in it is sound"):
            await salvage_session(store, "s", "new")
        assert await exists(store, "new") is False


async def exists(store: SessionStore, session_id: str) -> bool:
    try:
        await store.load_session(session_id)
    except SessionNotFoundError:
        return False
    return True
