"""The bytes of every released format are read for ever; nothing here makes or changes them."""

from __future__ import annotations

import shutil
import typing
from pathlib import Path

import apsw
import msgspec
import pytest

from perdure.codec import StoredEntry, read_entry
from perdure.entry import Compaction, Custom, Message, Opaque, OpaquePart
from perdure.errors import FormatTooNewError, SessionDeletedError, SessionNotFoundError
from perdure.fact import KnownFact
from perdure.interchange import import_session, verify_file
from perdure.store import read_head
from perdure.stores.jsonl import JsonlStore
from perdure.stores.memory import MemoryStore
from perdure.stores.sqlite import SqliteStore
from perdure.testing.nasty import TEXTS
from perdure.testing.store_cases import messages, raws
from perdure.tree import Tree, check_paths
from perdure.view import model_view, transcript_view

VERSIONS = sorted(Path(__file__).parent.glob("[0-9]*"))
HASHED_ID = "Golden/é 1"
TABLES = ("meta", "sessions", "entries", "by_seq", "by_id", "branches")


@pytest.fixture(params=VERSIONS, ids=lambda version: version.name)
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of one version's files."""
    copy = shutil.copytree(request.param, tmp_path / "golden")
    return Path(copy)


@pytest.fixture(params=["lines", "sessions.db"])
def store(request: pytest.FixtureRequest, golden: Path) -> JsonlStore | SqliteStore:
    """The store in the copy."""
    path = golden / request.param
    return JsonlStore(path) if path.is_dir() else SqliteStore(path)


def expected(golden: Path) -> list[bytes]:
    return (golden / "entries.raw").read_bytes().split(b"\n")[:-1]


def check_views(golden: Path, entries: typing.Sequence[StoredEntry]) -> None:
    """What was derived from these entries then is derived from them now."""
    views = msgspec.json.decode((golden / "views.json").read_bytes())
    tree = Tree(entries)
    path = tree.path(tree.leaf_id)
    assert tree.leaf_id == views["leaf_id"]
    assert [entry.id for entry in path] == views["path"]
    assert [entry.id for entry in transcript_view(path)] == views["transcript"]
    model = msgspec.json.encode(model_view(path), enc_hook=lambda part: part.type)
    assert msgspec.json.decode(model) == views["model"]


async def test_every_entry_is_read_with_its_bytes(
    golden: Path, store: JsonlStore | SqliteStore
) -> None:
    async with store:
        entries = await store.load_entries("golden")
        assert raws(entries) == expected(golden)
        assert [stored.seq for stored in entries] == list(range(1, len(entries) + 1))
        check_views(golden, entries)
        for session_id in ("golden", "fork", "too-new", HASHED_ID):
            verified = await store.verify_session(session_id)
            assert (verified.torn, verified.unproven) == (None, 0)
            check_paths(await store.load_entries(session_id), session_id=session_id)
        assert list(await store.verify_store()) == []
        fork = await store.load_session("fork")
        assert (fork.parent_id, fork.format) == ("golden", 1)
        assert set(raws(await store.load_entries("fork"))) < set(raws(entries))


async def test_every_session_can_be_gone_on_with(store: JsonlStore | SqliteStore) -> None:
    async with store:
        for session_id in await store.session_ids():
            if session_id == "too-new":
                continue
            before = raws(await store.load_entries(session_id))
            await store.append_entries(session_id, messages(2, "new"))
            after = raws(await store.load_entries(session_id))
            assert after == [*before, *raws(messages(2, "new"))]
            await store.verify_session(session_id)


async def test_what_a_newer_version_wrote_is_read_and_not_written(
    golden: Path, store: JsonlStore | SqliteStore
) -> None:
    async with store:
        session = await store.load_session("too-new")
        assert (session.format, b'"shards":[1,2]' in session.header) == (3, True)
        entries = await store.load_entries("too-new")
        assert raws(entries) == expected(golden)[: len(entries)]
        assert len(entries) >= 3
        with pytest.raises(FormatTooNewError):
            await store.append_entries("too-new", messages(1))
    file = golden / "lines" / "too-new.jsonl"
    assert (await verify_file(file)).session.format == 3
    async with MemoryStore() as memory:
        with pytest.raises(FormatTooNewError):
            await import_session(memory, file)


def test_what_is_not_known_is_kept_and_shown_as_it_is(golden: Path) -> None:
    with_views = {stored.id: stored for stored in read(golden)}
    for entry_id in ("unknown-tree", "unknown-fact", "unknown-role", "unknown-reason"):
        assert isinstance(with_views[entry_id].entry.view, Opaque)
    part = with_views["unknown-part"].entry.view
    assert isinstance(part, Message)
    assert isinstance(part.parts[1], OpaquePart)
    assert part.parts[1].raw == b'{"type":"hologram","size":[1,2]}'
    assert with_views["unknown-kind"].parent_id == "unknown-role"


def test_torture_text_is_what_it_was(golden: Path) -> None:
    texts = [view.text for stored in read(golden) if isinstance(view := stored.entry.view, Message)]
    for _, text in TEXTS:
        assert text in texts or not text


def read(golden: Path) -> list[StoredEntry]:
    return [StoredEntry(seq, read_entry(raw)) for seq, raw in enumerate(expected(golden), 1)]


def test_every_type_is_in_some_version() -> None:
    views = [stored.entry.view for version in VERSIONS for stored in read(version)]
    known = {*typing.get_args(KnownFact), Message, Compaction, Custom}
    assert known - {type(view) for view in views} == set()


async def test_an_export_is_checked_against_its_head_and_imported(
    golden: Path, tmp_path: Path
) -> None:
    head = read_head((golden / "export.head").read_text())
    path = golden / "export.jsonl"
    assert (await verify_file(path, head=head)).verified.head == head
    for other in (MemoryStore(), JsonlStore(tmp_path / "o"), SqliteStore(tmp_path / "o.db")):
        async with other:
            await import_session(other, path, head=head)
            assert raws(await other.load_entries("golden")) == expected(golden)


async def test_torn_foreign_and_hashed_files(golden: Path) -> None:
    async with JsonlStore(golden / "lines") as store:
        assert (await store.verify_session("torn")).torn is not None
        assert len(await store.load_entries("torn")) == 3
        verified = await store.verify_session("foreign")
        assert verified.unproven == 3
        foreign = await store.load_entries("foreign")
        assert raws(foreign) == [r.replace(b'","', b'" ,\t"', 1) for r in expected(golden)[:3]]
        assert HASHED_ID in await store.session_ids()
        assert list(await store.load_entries("empty")) == []


async def test_reading_changes_no_byte(golden: Path) -> None:
    files = [path for path in (golden / "lines").iterdir() if path.is_file()]
    before = [path.read_bytes() for path in files]
    async with JsonlStore(golden / "lines") as store:
        for session_id in await store.session_ids():
            await store.load_entries(session_id)
            await store.verify_session(session_id)
    assert [path.read_bytes() for path in files] == before


async def test_a_tombstone_stays_one(golden: Path) -> None:
    path = golden / "sessions.db"
    connection = apsw.Connection(str(path))
    query = "SELECT session_id, incarnation FROM sessions WHERE deleted = 1"
    rows: list[typing.Any] = connection.execute(query).fetchall()
    ((session_id, incarnation),) = rows
    connection.close()
    async with SqliteStore(path) as store:
        with pytest.raises(SessionDeletedError):
            await store.append_entries(session_id, messages(1), incarnation=incarnation)
        session = await store.load_session(session_id)
        assert session.incarnation != incarnation
        assert len(await store.load_entries(session_id)) == 1
        await store.delete_session(session_id)
        with pytest.raises(SessionNotFoundError):
            await store.load_entries(session_id)
        assert (await store.look("golden")).summary == b"opaque"


async def test_a_file_of_a_newer_format_is_read_and_not_written(golden: Path) -> None:
    path = golden / "sessions.db"
    data = bytearray(path.read_bytes())
    data[60:64] = (2).to_bytes(4, "big")  # PRAGMA user_version
    path.write_bytes(data)
    async with SqliteStore(path) as store:
        assert raws(await store.load_entries("golden")) == expected(golden)
        with pytest.raises(FormatTooNewError):
            await store.append_entries("golden", messages(1))


def test_the_index_covers_some_entries_and_not_all(golden: Path) -> None:
    connection = apsw.Connection(str(golden / "sessions.db"))
    counts: dict[str, typing.Any] = {
        table: connection.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0]
        for table in TABLES
    }
    connection.close()
    assert 0 < counts["by_seq"] == counts["by_id"] < counts["entries"]
    assert counts["branches"] > 0
