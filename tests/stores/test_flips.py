"""The running sum, proven: a bit of any byte, any line or row lost, doubled or moved, is found."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from perdure.codec import Entry, StoredEntry, read_entry
from perdure.errors import JournalCorruptError, PerdureError
from perdure.fact import LeafMoved
from perdure.stores.disk import Disk
from perdure.stores.jsonl import JsonlStore
from perdure.stores.jsonl_stream import verify_file
from perdure.stores.memory import MemoryStore
from perdure.stores.sqlite import SqliteStore, ledger
from perdure.stores.sqlite.check import verify_session, verify_store
from perdure.stores.sqlite.reader import Reader
from perdure.testing.store_cases import MADE_AT, messages, placed

BRANCH = [placed("é", "m0", "a branch"), LeafMoved(None, "m1", id="moved", created_at=MADE_AT)]
FOREIGN = read_entry(
    b'{ "id":"f", "type":"odd","created_at":"2026-01-01T00:00:00Z", "parent_id": null}'
)


async def fill(store: JsonlStore | SqliteStore | MemoryStore) -> None:
    await store.create_session("s", entries=messages(2))
    await store.append_entries("s", BRANCH)
    await store.append_entries("s", [FOREIGN])
    await store.append_entries("s", messages(3, "x"))


def flipped(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The data with one bit of one byte changed, for every byte; which bit differs."""
    for index in range(len(data)):
        yield index, flip(data, index, (index * 3 + index // 8) % 8)


def flip(data: bytes, index: int, bit: int) -> bytes:
    changed = bytearray(data)
    changed[index] ^= 1 << bit
    return bytes(changed)


# JSON lines


class OneFile(Disk):
    """A file that is only in memory, so that thousands of variants are quick to read."""

    data = b""

    def read(self, fd: int, size: int, offset: int) -> bytes:
        return self.data[offset : offset + size]

    def size(self, fd: int) -> int:
        return len(self.data)


class Lines:
    """Verifies bytes as if they were a session's file."""

    def __init__(self, path: Path) -> None:
        self.disk, self.path = OneFile(), str(path)

    def passes(self, data: bytes) -> bool:
        """Whether nothing at all is said of these bytes."""
        self.disk.data = data
        try:
            verified = verify_file(self.disk, self.path, "s", self.disk.size)
        except JournalCorruptError:
            return False
        return verified.torn is None and verified.unproven == 0


@pytest.fixture
async def lines(tmp_path: Path) -> tuple[Lines, bytes]:
    async with JsonlStore(tmp_path) as store:
        await fill(store)
    path = tmp_path / "s.jsonl"
    reader = Lines(path)
    assert reader.passes(path.read_bytes())
    return reader, path.read_bytes()


def test_a_flipped_bit_of_any_byte_of_a_file_is_found(lines: tuple[Lines, bytes]) -> None:
    reader, data = lines
    silent = [(index, each) for index, each in flipped(data) if reader.passes(each)]
    assert silent == []


def test_every_bit_of_what_the_file_adds_to_an_entry_counts(lines: tuple[Lines, bytes]) -> None:
    reader, data = lines
    start = data.rindex(b',"seq":')
    silent = [
        (index, bit)
        for index in range(start, len(data))
        for bit in range(8)
        if reader.passes(flip(data, index, bit))
    ]
    assert silent == []


def test_a_line_that_is_lost_doubled_or_moved_is_found(lines: tuple[Lines, bytes]) -> None:
    reader, data = lines
    rows = data.splitlines(keepends=True)
    changes = []
    for at, row in enumerate(rows):
        changes.append([*rows[:at], *rows[at + 1 :]])
        changes += [[*rows[:to], row, *rows[to:]] for to in range(len(rows) + 1)]
        for other in range(at):
            swapped = [*rows]
            swapped[at], swapped[other] = rows[other], row
            changes.append(swapped)
    assert [each for each in changes if reader.passes(b"".join(each))] == []


def test_a_cut_in_mid_line_or_mid_batch_is_told(lines: tuple[Lines, bytes]) -> None:
    reader, data = lines
    whole = {len(data), len(data) - 1}  # without its newline the last line is still whole
    batch_ends = [data.index(b"\n", data.index(each)) for each in (b'"m1"', b'"moved"', b'"f"')]
    header = data.index(b"\n")
    for end in (header, *batch_ends):
        whole |= {end, end + 1}
    silent = {end for end in range(len(data) + 1) if reader.passes(data[:end])}
    assert silent == whole


async def test_a_file_without_sums_says_that_it_proves_nothing(tmp_path: Path) -> None:
    async with JsonlStore(tmp_path) as store:
        await store.create_session("s")
        path = tmp_path / "s.jsonl"
        raws = [entry.raw + b"\n" for entry in messages(2)]
        path.write_bytes(path.read_bytes() + b"".join(raws))
        assert (await store.verify_session("s")).unproven == 2
        await store.append_entries("s", messages(1, "x"))
        assert (await store.verify_session("s")).unproven == 0
        path.write_bytes(path.read_bytes() + messages(1, "y")[0].raw + b"\n")
        with pytest.raises(JournalCorruptError, match="it has no sum"):
            await store.verify_session("s")


# SQLite


@pytest.fixture(params=[3, 2048], ids=["indexed", "in the tail"])
async def file(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Trial:
    monkeypatch.setattr(ledger, "TAIL_LENGTH", request.param)
    path = tmp_path / "s.db"
    async with SqliteStore(path) as store:
        await store.create_session("other", entries=messages(2))
        await fill(store)
    trial = Trial(path)
    assert trial.passes("UPDATE entries SET raw = raw")
    return trial


class Trial:
    """One connection, on which a change is tried and taken back."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.connection = apsw.Connection(str(path))
        self.run = self.connection.execute

    def rows(self, query: str) -> list[tuple[apsw.SQLiteValue, ...]]:
        return self.run(query).fetchall()

    def passes(self, change: str, values: tuple[apsw.SQLiteValue, ...] = ()) -> bool:
        """Whether nothing at all is said of the file after this change."""
        self.run("BEGIN")
        try:
            self.run(change, values)
            assert self.connection.changes() > 0
            reader = Reader(self.connection, self.path)
            found = tuple(reader.session_ids()) != ("other", "s")
            for session_id in ("other", "s"):
                verify_session(reader, session_id)
            return not found and verify_store(reader) == []
        except (PerdureError, UnicodeDecodeError, apsw.ConstraintError):
            return False  # the pool of readers makes damage of the driver's errors
        finally:
            self.run("ROLLBACK")


COLUMNS = {
    "entries": ("pos", "session", "seq", "entry_id", "parent", "sum", "raw"),
    "sessions": (
        *("number", "kind", "session_id", "incarnation", "header", "deleted"),
        *("last_seq", "last_sum", "last_pos", "last_tree_id"),
    ),
    "by_seq": ("session", "seq", "pos"),
    "by_id": ("session", "entry_id", "pos"),
    "branches": ("session", "parent", "seq", "entry_id"),
}
KEYS = {
    "entries": "pos",
    "sessions": "number",
    "by_seq": "session || ':' || seq",
    "by_id": "session || ':' || entry_id",
    "branches": "session || ':' || seq",
}


def variants(value: apsw.SQLiteValue) -> Iterator[tuple[str, apsw.SQLiteValue]]:
    """The value with one bit of a byte changed, for every byte, and how to bind it."""
    match value:
        case int():
            for bit in (*range(12), 17, 31, 40):
                yield "?", value ^ (1 << bit)
        case str():
            for _, each in flipped(value.encode()):
                yield "CAST(? AS TEXT)", each
        case bytes():
            for _, each in flipped(value):
                yield "?", each


@pytest.mark.parametrize(
    ("table", "column"), [(table, column) for table, names in COLUMNS.items() for column in names]
)
def test_a_flipped_bit_of_any_byte_of_a_row_is_found(file: Trial, table: str, column: str) -> None:
    key = KEYS[table]
    silent = []
    for at, value in file.rows(f"SELECT {key}, {column} FROM {table} ORDER BY {key}"):
        for spelled, changed in variants(value):
            update = f"UPDATE {table} SET {column} = {spelled} WHERE {key} = ?"
            if file.passes(update, (changed, at)):
                silent.append((at, changed))
    assert silent == []


@pytest.mark.parametrize("table", COLUMNS)
def test_a_row_that_is_lost_is_found(file: Trial, table: str) -> None:
    key = KEYS[table]
    keys = [at for (at,) in file.rows(f"SELECT {key} FROM {table}")]
    assert [at for at in keys if file.passes(f"DELETE FROM {table} WHERE {key} = ?", (at,))] == []


def test_a_row_that_is_doubled_or_moved_is_found(file: Trial) -> None:
    rows = file.rows("SELECT pos FROM entries")
    for (pos,) in rows:
        assert not file.passes(
            "INSERT INTO entries SELECT (SELECT max(pos) + 1 FROM entries), session, seq, entry_id,"
            " parent, sum, raw FROM entries WHERE pos = ?",
            (pos,),
        )
        for (other,) in rows:
            for columns in ("seq", "sum", "raw", "entry_id, parent, sum, raw", "session"):
                same = file.rows(
                    f"SELECT {columns} FROM entries WHERE pos = {pos} "
                    f"INTERSECT SELECT {columns} FROM entries WHERE pos = {other}"
                )
                swap = (
                    f"UPDATE entries SET ({columns}) = (SELECT {columns} FROM entries AS o "
                    "WHERE o.pos = ?1 + ?2 - entries.pos) WHERE pos IN (?1, ?2)"
                )
                assert same or not file.passes(swap, (pos, other))


# Memory


async def test_memory_is_verified_too() -> None:
    async with MemoryStore() as store:
        await fill(store)
        verified = await store.verify_session("s")
        log = store._logs["s"]
        assert (verified.head.seq, verified.head.sum) == (8, log.sums[-1])
        for at, stored in enumerate(log.entries):
            for _, raw in flipped(stored.raw):
                entry = stored.entry
                changed = Entry(entry.id, entry.type, entry.created_at, entry.parent_id, raw)
                log.entries[at] = StoredEntry(stored.seq, changed)
                with pytest.raises(JournalCorruptError):
                    await store.verify_session("s")
            for entries in (
                [*log.entries[:at], *log.entries[at + 1 :]],
                [*log.entries[: at + 1], *log.entries[at:]],
            ):
                kept, log.entries = log.entries, entries
                with pytest.raises(JournalCorruptError):
                    await store.verify_session("s")
                log.entries = kept
            log.entries[at] = stored
        await store.verify_session("s")


# The same in every store


async def test_the_head_is_the_same_in_every_store(tmp_path: Path) -> None:
    sums = []
    for store in (MemoryStore(), JsonlStore(tmp_path / "l"), SqliteStore(tmp_path / "s.db")):
        async with store:
            await fill(store)
            session = await store.load_session("s")
            verified = await store.verify_session("s")
            sums.append(verified.head.seq)
            chunks = [chunk async for chunk in store.stream_entries("s", after=3)]
            assert [stored.seq for chunk in chunks for stored in chunk] == [4, 5, 6, 7, 8]
            assert verified.head.sum != session.first_sum
    assert sums == [8, 8, 8]


async def test_reading_does_not_pay_for_the_sums(tmp_path: Path) -> None:
    """What verifying finds in mid-log, reading does not look for; but for the newest batch."""
    async with JsonlStore(tmp_path / "l") as store:
        await fill(store)
        path = tmp_path / "l" / "s.jsonl"
        path.write_bytes(path.read_bytes().replace(b"a branch", b"a brandy"))
        assert len(await store.load_entries("s")) == 8
        with pytest.raises(JournalCorruptError):
            await store.verify_session("s")
    async with SqliteStore(tmp_path / "s.db") as other:
        await fill(other)
    connection = apsw.Connection(str(tmp_path / "s.db"))
    connection.execute("UPDATE entries SET raw = CAST(replace(raw, 'nch', 'ndy') AS BLOB)")
    connection.close()
    async with SqliteStore(tmp_path / "s.db") as other:
        assert len(await other.load_entries("s")) == 8
        with pytest.raises(JournalCorruptError):
            await other.verify_session("s")
