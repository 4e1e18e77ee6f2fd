"""What is special to the SQLite store, beyond the contract that every JournalStore passes."""

import asyncio
import gc
import os
import stat
import threading
from pathlib import Path

import apsw
import pytest

from perdure.entry import Message, Text, text
from perdure.errors import (
    AppendConflictError,
    AppendRejectedError,
    CursorVoidError,
    FormatTooNewError,
    SessionDeletedError,
    SessionExistsError,
    SessionNotFoundError,
    StoreUnavailableError,
)
from perdure.store import Receipt
from perdure.stores.sqlite import SqliteStore, connection
from perdure.stores.sqlite.schema import TAIL_LENGTH
from perdure.testing.store_cases import messages, raws, seqs


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def threads() -> set[str]:
    return {t.name for t in threading.enumerate() if t.name.startswith("perdure-sqlite")}


# The file


async def test_constructing_a_store_touches_nothing(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "new" / "s.db"):
        pass
    assert os.listdir(tmp_path) == []
    assert threads() == set()


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
async def test_files_are_0600_and_folders_0700_whatever_the_umask(
    tmp_path: Path, umask: int
) -> None:
    folder = tmp_path / "one" / "two"
    before = os.umask(umask)
    try:
        async with SqliteStore(folder / "s.db") as store, store.acquire_ownership("node"):
            await store.create_session("s", entries=[text("secret")])
            await store.load_entries("s")
            files = {path.name: mode(path) for path in folder.iterdir()}
    finally:
        os.umask(before)
    assert files == dict.fromkeys(["s.db", "s.db-wal", "s.db-shm", "s.db.owner"], 0o600)
    assert mode(folder) == mode(folder.parent) == 0o700


async def test_a_link_at_the_files_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere.db").touch()
    for target in ("elsewhere.db", "nowhere.db"):
        (tmp_path / "s.db").symlink_to(tmp_path / target)
        async with SqliteStore(tmp_path / "s.db") as store:
            with pytest.raises(StoreUnavailableError, match="symbolic link"):
                await store.create_session("s")
        (tmp_path / "s.db").unlink()
    assert (tmp_path / "elsewhere.db").read_bytes() == b""
    assert not (tmp_path / "nowhere.db").exists()


async def test_a_link_above_the_file_is_the_machines_own_business(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    async with SqliteStore(tmp_path / "link" / "s.db") as store:
        await store.create_session("s")
    assert (tmp_path / "real" / "s.db").is_file()


async def test_a_file_that_is_not_a_store_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b"not a database, and long enough to be read as one\n" * 200)
    other = apsw.Connection(str(tmp_path / "other"))
    other.execute("CREATE TABLE theirs (x); INSERT INTO theirs VALUES (1)")
    other.close()
    for name in ("text", "other"):
        content = (tmp_path / name).read_bytes()
        async with SqliteStore(tmp_path / name) as store:
            for verb in (store.create_session("s"), store.load_entries("s")):
                with pytest.raises(StoreUnavailableError, match=name):
                    await verb
        assert (tmp_path / name).read_bytes() == content
    async with SqliteStore(tmp_path) as store:
        with pytest.raises(StoreUnavailableError):
            await store.create_session("s")


async def test_a_store_that_could_not_be_opened_can_be_later(tmp_path: Path) -> None:
    (tmp_path / "s.db").write_bytes(b"in the way " * 500)
    async with SqliteStore(tmp_path / "s.db") as store:
        with pytest.raises(StoreUnavailableError):
            await store.create_session("s")
        (tmp_path / "s.db").unlink()
        await store.create_session("s")
        assert await store.session_ids() == ("s",)


def test_an_older_sqlite_is_refused_with_what_to_install() -> None:
    for version in ("3.51.2", "3.7.17", "2.8.0"):
        with pytest.raises(StoreUnavailableError, match=r'pip install "apsw>=3.51.3.0"'):
            connection.check_sqlite(version)
    connection.check_sqlite("3.51.3")
    connection.check_sqlite("4.0.0")


async def test_a_file_of_a_newer_format_can_be_read_but_not_written(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "s.db") as store:
        await store.create_session("s", entries=messages(3))
    newer = apsw.Connection(str(tmp_path / "s.db"))
    newer.execute("PRAGMA user_version = 99").fetchall()
    newer.close()
    async with SqliteStore(tmp_path / "s.db") as store:
        assert raws(await store.load_entries("s")) == raws(messages(3))
        for verb in (
            store.append_entries("s", [text("x")]),
            store.create_session("t"),
            store.delete_session("s"),
        ):
            with pytest.raises(FormatTooNewError) as refusal:
                await verb
            assert (refusal.value.found, refusal.value.known) == (99, 1)
        assert raws(await store.load_entries("s")) == raws(messages(3))


async def test_a_file_that_is_upgraded_while_it_is_open_is_written_no_more(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "s.db") as store:
        await store.create_session("s", entries=messages(1))
        newer = apsw.Connection(str(tmp_path / "s.db"))
        newer.execute("PRAGMA user_version = 2").fetchall()
        newer.close()
        with pytest.raises(FormatTooNewError):
            await store.append_entries("s", [text("x")])
        assert len(await store.load_entries("s")) == 1


async def test_commits_are_synced_in_full_unless_asked_otherwise(tmp_path: Path) -> None:
    for given, expected in (("full", 2), ("normal", 1), ("off", 0)):
        opened = connection.open_writer(tmp_path / "s.db", given)  # type: ignore[arg-type]
        assert connection.pragma(opened, "synchronous") == expected
        assert connection.pragma(opened, "journal_mode") == "wal"
        assert connection.pragma(opened, "page_size") == 8192
        opened.close()
    with pytest.raises(ValueError, match="synchronous"):
        SqliteStore(tmp_path / "s.db", synchronous="never")  # type: ignore[arg-type]


# The tail and the index


async def test_retries_are_recognised_on_both_sides_of_the_index_border(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "s.db") as store:
        await store.create_session("s")
        old = await store.append_entries("s", messages(3, "old"))
        await store.append_entries("s", messages(TAIL_LENGTH, "fill"))
        new = await store.append_entries("s", messages(3, "new"))
        assert await store.append_entries("s", messages(3, "old"), expected_seq=0) == old
        assert await store.append_entries("s", messages(3, "new"), expected_seq=0) == new
        for batch in (
            [*messages(1, "old"), *messages(1, "new")],
            [*messages(3, "old"), *messages(1, "fresh")],
            [Message("user", (Text("other bytes"),), id="old1")],
            [Message("user", (Text("other bytes"),), id="new1")],
        ):
            with pytest.raises(AppendRejectedError):
                await store.append_entries("s", batch)
        await store.verify_session("s")
        assert len(await store.load_entries("s")) == TAIL_LENGTH + 6


async def test_an_entry_of_16_mb_is_stored_whole(tmp_path: Path) -> None:
    big = text("é\x00\n" * (4 * 1024 * 1024))
    async with SqliteStore(tmp_path / "s.db") as store:
        await store.create_session("s", entries=messages(1))
        receipt = await store.append_entries("s", [big])
        page = await store.page_entries("s", limit=1)
        assert page.entries == receipt.entries
        await store.verify_session("s")
    async with SqliteStore(tmp_path / "s.db") as store:
        assert (await store.load_entry("s", big.id)).raw == receipt.entries[0].raw


# Several processes' worth of stores on one file


async def test_two_stores_grow_siblings_and_lose_nothing(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "s.db") as one, SqliteStore(tmp_path / "s.db") as two:
        await one.create_session("s", entries=messages(1))
        stores = (one, two)
        receipts = await asyncio.gather(
            *(stores[n % 2].append_entries("s", messages(2, f"t{n}_")) for n in range(40))
        )
        for n in range(40):
            receipts.append(await stores[n % 2].append_entries("s", messages(2, f"u{n}_")))
        stored = await one.load_entries("s")
        assert list(await two.load_entries("s")) == list(stored)
        assert seqs(stored) == list(range(1, 162))
        for receipt in receipts:
            assert tuple(stored[receipt.first_seq - 1 : receipt.last_seq]) == receipt.entries
        assert await two.append_entries("s", messages(2, "t0_")) == receipts[0]
        assert await one.append_entries("s", messages(2, "t1_")) == receipts[1]
        await two.verify_session("s")


async def test_of_two_stores_at_one_seq_exactly_one_wins(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "s.db") as one, SqliteStore(tmp_path / "s.db") as two:
        await one.create_session("s")
        for seq in range(30):
            outcomes = await asyncio.gather(
                one.append_entries("s", messages(1, f"one{seq}_"), expected_seq=seq),
                two.append_entries("s", messages(1, f"two{seq}_"), expected_seq=seq),
                return_exceptions=True,
            )
            won = [outcome for outcome in outcomes if isinstance(outcome, Receipt)]
            (lost,) = [o for o in outcomes if isinstance(o, AppendConflictError)]
            assert [receipt.last_seq for receipt in won] == [seq + 1]
            assert (lost.expected_seq, lost.actual_seq) == (seq, seq + 1)


async def test_what_a_store_remembers_yields_to_what_another_did(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "s.db") as one, SqliteStore(tmp_path / "s.db") as two:
        old = await one.create_session("s", entries=messages(2))
        await two.append_entries("s", messages(TAIL_LENGTH, "fill"))
        receipt = await one.append_entries("s", messages(1, "one"))
        assert receipt.last_seq == TAIL_LENGTH + 3
        with pytest.raises(AppendRejectedError):
            await one.append_entries("s", [*messages(1, "fill"), *messages(1, "x")])
        await two.delete_session("s")
        with pytest.raises(SessionNotFoundError):
            await one.append_entries("s", messages(1, "one"))
        new = await two.create_session("s")
        with pytest.raises(SessionDeletedError):
            await one.append_entries("s", [text("x")], incarnation=old.incarnation)
        with pytest.raises(SessionExistsError):
            await one.create_session("s")
        receipt = await one.append_entries("s", messages(2), incarnation=new.incarnation)
        assert receipt.first_seq == 1
        await two.verify_session("s")


@pytest.mark.parametrize("length", [5, TAIL_LENGTH])
async def test_a_position_is_never_given_twice(tmp_path: Path, length: int) -> None:
    async with SqliteStore(tmp_path / "s.db") as one, SqliteStore(tmp_path / "s.db") as two:
        await one.create_session("a", entries=messages(1))
        await one.create_session("b", entries=messages(length))
        page = await one.list_sessions(limit=1)
        await one.delete_session("b")
        await two.create_session("c", entries=messages(2))
        await one.create_session("d")
        await two.append_entries("d", messages(2))
        ids = [look.session.id for look in (await one.list_sessions()).sessions]
        assert ids == ["d", "c", "a"]
        rest = await two.list_sessions(after=page.next)
        assert [look.session.id for look in rest.sessions] == ["a"]
        for session_id in ids:
            await one.verify_session(session_id)


async def test_a_cursor_of_another_store_is_void(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "1.db") as one, SqliteStore(tmp_path / "2.db") as two:
        for store in (one, two):
            for name in "abc":
                await store.create_session(name)
        page = await one.list_sessions(limit=1)
        with pytest.raises(CursorVoidError):
            await two.list_sessions(after=page.next)


async def test_a_writer_elsewhere_is_waited_for_and_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "BUSY_TIMEOUT_S", 0.3)
    async with SqliteStore(tmp_path / "s.db") as store:
        await store.create_session("s", entries=messages(2))
        other = apsw.Connection(str(tmp_path / "s.db"))
        other.execute("BEGIN IMMEDIATE; UPDATE meta SET value = value")
        with pytest.raises(StoreUnavailableError, match=r"s\.db"):
            await store.append_entries("s", messages(1, "late"))
        pending = asyncio.ensure_future(store.append_entries("s", messages(1, "late")))
        await asyncio.sleep(0.05)
        assert len((await store.page_entries("s")).entries) == 2
        assert not pending.done()
        other.execute("ROLLBACK")
        other.close()
        assert (await pending).last_seq == 3


# Ownership


async def test_one_owns_the_file_and_the_next_is_told_who(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "s.db") as one, SqliteStore(tmp_path / "s.db") as two:
        async with one.acquire_ownership("pid 7 on port 8000"):
            with pytest.raises(StoreUnavailableError, match="pid 7 on port 8000"):
                async with two.acquire_ownership("the second"):
                    pass
            with pytest.raises(StoreUnavailableError):
                async with one.acquire_ownership("itself"):
                    pass
        async with two.acquire_ownership("the second"):
            assert (tmp_path / "s.db.owner").read_text() == "the second"
        await two.create_session("s")


async def test_closing_gives_ownership_up(tmp_path: Path) -> None:
    one = SqliteStore(tmp_path / "s.db")
    async with one.acquire_ownership("one"):
        await one.close()
        async with (
            SqliteStore(tmp_path / "s.db") as two,
            two.acquire_ownership("two"),
        ):
            assert (tmp_path / "s.db.owner").read_text() == "two"


# Threads and event loops


def test_a_store_serves_one_event_loop_after_another(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.db")
    asyncio.run(store.create_session("s"))
    for n in range(3):
        asyncio.run(store.append_entries("s", messages(1, f"t{n}_")))
    assert len(asyncio.run(store.load_entries("s"))) == 3
    asyncio.run(store.close())
    asyncio.run(store.close())
    assert threads() == set()


def test_a_store_serves_event_loops_in_several_threads(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.db")
    asyncio.run(store.create_session("s"))
    failures: list[BaseException] = []

    async def produce(name: str) -> None:
        for n in range(20):
            await store.append_entries("s", messages(1, f"{name}{n}_"))
            await store.page_entries("s", limit=3)

    def work(name: str) -> None:
        try:
            asyncio.run(produce(name))
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=work, args=(name,)) for name in "abc"]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert failures == []
    asyncio.run(store.verify_session("s"))
    assert len(asyncio.run(store.load_entries("s"))) == 60
    asyncio.run(store.close())


async def test_a_store_that_nobody_closed_leaves_no_thread(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.db")
    await store.create_session("s")
    await store.load_entries("s")
    assert threads() != set()
    del store
    gc.collect()
    for _ in range(200):
        if not threads():
            break
        await asyncio.sleep(0.01)
    assert threads() == set()


async def test_cancelling_an_await_does_not_take_the_append_back(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "s.db") as store:
        await store.create_session("s")
        task = asyncio.ensure_future(store.append_entries("s", messages(2)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        receipt = await store.append_entries("s", messages(2))
        assert (receipt.first_seq, receipt.last_seq) == (1, 2)
        assert len(await store.load_entries("s")) == 2


async def test_a_refused_append_harms_none_of_its_group(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "s.db") as store:
        await store.create_session("s", entries=messages(1))
        outcomes = await asyncio.gather(
            store.append_entries("s", messages(2, "a")),
            store.append_entries("s", messages(2, "b"), expected_seq=1),
            store.append_entries("nobody", messages(1), incarnation="\ud800"),
            store.append_entries("nobody", [], incarnation=object()),  # type: ignore[arg-type]
            store.append_entries("s", [*messages(1), *messages(1, "c")]),
            store.create_session("s"),
            store.append_entries("s", messages(2, "a")),
            store.append_entries("s", messages(2, "d"), expected_seq=3),
            store.create_session("t", entries=messages(1)),
            store.append_entries("t", messages(1, "e"), expected_seq=1),
            return_exceptions=True,
        )
        kinds = [type(outcome).__name__ for outcome in outcomes]
        assert kinds == [
            "Receipt",
            "AppendConflictError",
            "SessionNotFoundError",
            "AppendUncertainError",
            "AppendRejectedError",
            "SessionExistsError",
            "Receipt",
            "Receipt",
            "Session",
            "Receipt",
        ]
        assert outcomes[0] == outcomes[6]
        ids = [stored.id for stored in await store.load_entries("s")]
        assert ids == ["m0", "a0", "a1", "d0", "d1"]
        await store.verify_session("t")
