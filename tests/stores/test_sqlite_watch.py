"""The log, or a part of the files, is taken away under an open store: nobody is told "stored" then.

What a process that is killed now would leave is what `left` copies: the store is not closed.
"""

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from perdure.entry import text
from perdure.errors import AppendUncertainError, StoreUnavailableError
from perdure.stores.sqlite import SqliteStore, opened, writer
from perdure.stores.sqlite.ledger import Ledger
from perdure.testing.store_cases import messages, raws

Damage = Callable[[Path], object]


@pytest.fixture(autouse=True)
def looks_before_each_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a test has not to wait until the last look is old."""
    monkeypatch.setattr(opened, "FRESH_S", -1.0)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "store").mkdir()
    return tmp_path / "store" / "s.db"


def log_of(place: Path) -> Path:
    return place.with_name(f"{place.name}-wal")


def sizes_of(place: Path) -> tuple[int, int]:
    return place.stat().st_size, log_of(place).stat().st_size


async def left(place: Path, session_id: str = "s") -> list[bytes]:
    """The entries that the next process finds."""
    copy = place.parent.with_name("copy")
    shutil.copytree(place.parent, copy)
    try:
        async with SqliteStore(copy / place.name) as store:
            await store.verify_session(session_id)
            return raws(await store.load_entries(session_id))
    finally:
        shutil.rmtree(copy)


@pytest.mark.parametrize("reads_first", [False, True])
async def test_a_removed_log_is_moved_into_the_file_and_nothing_is_lost(
    place: Path, reads_first: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with SqliteStore(place) as store:
        await store.create_session("s", entries=messages(3))
        await store.load_entries("s")
        for round_ in range(3):
            log_of(place).unlink()
            if reads_first:
                assert len(await store.load_entries("s")) == 3 + 2 * round_
            await store.append_entries("s", messages(2, str(round_)))
            assert await left(place) == raws(await store.load_entries("s"))
        assert len(await store.load_entries("s")) == 9
    assert caplog.text.count("nothing is lost") == 3


async def test_a_log_that_is_removed_during_a_commit_is_no_loss(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SqliteStore(place) as store:
        await store.create_session("s", entries=messages(3))
        commit = Ledger.commit

        def removed(ledger: Ledger) -> None:
            log_of(place).unlink()
            commit(ledger)

        monkeypatch.setattr(Ledger, "commit", removed)
        await store.append_entries("s", messages(2, "x"))
        monkeypatch.undo()
        assert len(await left(place)) == 5


async def test_a_log_that_is_removed_while_the_store_rests_is_noticed(
    place: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(writer, "LOOK_EVERY_S", 0.02)
    async with SqliteStore(place) as store:
        await store.create_session("s", entries=messages(3))
        log_of(place).unlink()
        for _ in range(200):
            if "nothing is lost" in caplog.text:
                break
            await asyncio.sleep(0.01)
        assert len(await left(place)) == 3


async def test_what_is_wrong_while_the_store_rests_is_said_once(
    place: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(writer, "LOOK_EVERY_S", 0.01)
    async with SqliteStore(place) as store:
        await store.create_session("s", entries=messages(3))
        os.truncate(log_of(place), 0)
        await asyncio.sleep(0.3)
    assert caplog.text.count("the store cannot be used") == 1


async def test_a_store_that_is_closed_after_its_log_was_removed_has_all_of_it(place: Path) -> None:
    async with SqliteStore(place) as store:
        await store.create_session("s", entries=messages(3))
        await store.load_entries("s")
        log_of(place).unlink()
    assert len(await left(place)) == 3


async def test_an_empty_log_in_the_place_of_the_one_that_is_open_is_no_loss(place: Path) -> None:
    async with SqliteStore(place) as store:
        await store.create_session("s", entries=messages(3))
        await store.load_entries("s")
        log_of(place).unlink()
        log_of(place).touch(0o600)
        await store.append_entries("s", messages(1, "x"))
        assert len(await store.load_entries("s")) == 4
        assert len(await left(place)) == 4


def cut_log(size: int) -> Damage:
    return lambda place: os.truncate(log_of(place), size)


def another_log(place: Path) -> None:
    shutil.copy(log_of(place), place.parent / "l")
    os.rename(place.parent / "l", log_of(place))


LOSSES: dict[str, Damage] = {
    "the log is emptied": cut_log(0),
    "the log is cut off": cut_log(10_000),
    "the log is another": another_log,
    "the file is emptied": lambda place: os.truncate(place, 0),
    "the file is cut off": lambda place: os.truncate(place, 8192),
}


@pytest.mark.parametrize("damage", LOSSES.values(), ids=LOSSES.keys())
async def test_nothing_is_acknowledged_on_files_that_lost_something(
    place: Path, damage: Damage
) -> None:
    async with SqliteStore(place) as store:
        await store.create_session("s", entries=messages(3))
        await store.create_session("t", entries=[text("x" * 100_000)])
        if damage is LOSSES["the file is cut off"]:
            elsewhere = apsw.Connection(str(place))
            elsewhere.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            elsewhere.close()
            await store.append_entries("s", messages(1, "w"))
        damage(place)
        for verb in (
            lambda: store.append_entries("s", messages(1, "x")),
            lambda: store.create_session("new"),
            lambda: store.try_write(),
        ):
            with pytest.raises(StoreUnavailableError, match="while it was open"):
                await verb()
        sizes = sizes_of(place)
    assert sizes_of(place) == sizes


async def test_an_emptied_file_is_not_read_as_an_empty_store(place: Path) -> None:
    async with SqliteStore(place) as store:
        await store.create_session("s", entries=messages(3))
        await store.load_entries("s")
        os.truncate(place, 0)
        for question in (store.session_ids(), store.load_entries("s")):
            with pytest.raises(StoreUnavailableError, match="was emptied"):
                await question


@pytest.mark.parametrize("damage", ["the log is emptied", "the log is another"])
async def test_a_store_that_has_just_looked_looks_again_before_it_acknowledges(
    place: Path, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opened, "FRESH_S", 60.0)
    async with SqliteStore(place) as store:
        await store.create_session("s", entries=messages(3))
        LOSSES[damage](place)
        with pytest.raises(AppendUncertainError):
            await store.append_entries("s", messages(1, "x"))
        with pytest.raises(StoreUnavailableError):
            await store.append_entries("s", messages(1, "y"))


@pytest.mark.parametrize("damage", ["file removed", "file replaced", "log emptied"])
async def test_a_commit_that_the_files_do_not_outlive_is_uncertain(
    place: Path, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SqliteStore(place) as store:
        await store.create_session("s", entries=messages(3))
        commit = Ledger.commit

        def lost(ledger: Ledger) -> None:
            if damage == "log emptied":
                os.truncate(log_of(place), 0)
            elif damage == "file removed":
                place.unlink()
            else:
                shutil.copy(place, f"{place}.copy")
                os.rename(f"{place}.copy", place)
            commit(ledger)

        monkeypatch.setattr(Ledger, "commit", lost)
        with pytest.raises(AppendUncertainError, match="during a commit: it may be stored"):
            await store.append_entries("s", messages(2, "x"))


async def test_a_log_that_is_put_back_is_gone_on_with(place: Path) -> None:
    away = place.with_name("away")
    async with SqliteStore(place) as store:
        await store.create_session("s", entries=messages(3))
        os.rename(log_of(place), away)
        another = log_of(place)
        another.write_bytes(b"another program's")
        with pytest.raises(StoreUnavailableError):
            await store.append_entries("s", messages(1, "x"))
        os.rename(away, another)
        assert (await store.append_entries("s", messages(1, "x"))).last_seq == 4
        assert len(await left(place)) == 4


async def test_another_process_may_shorten_both_files(place: Path) -> None:
    elsewhere = None
    async with SqliteStore(place) as store:
        await store.create_session("s", entries=messages(3))
        await store.create_session("t", entries=[text("x" * 3_000_000)])
        await store.load_entries("s")
        elsewhere = apsw.Connection(str(place))
        await store.delete_session("t")
        elsewhere.execute("PRAGMA wal_checkpoint(truncate)").fetchall()
        await store.append_entries("s", messages(1, "long"))
        sizes = [sizes_of(place)[0]]
        for sql in ("VACUUM", "PRAGMA wal_checkpoint(truncate)"):
            elsewhere.execute(sql).fetchall()
            await store.append_entries("s", messages(1, sql))
            assert len(await store.load_entries("s")) in {5, 6}
            sizes.append(sizes_of(place)[0])
        assert sizes[-1] < 1_000_000 < sizes[0]
        assert len(await left(place)) == 6
    elsewhere.close()


async def test_a_store_that_is_older_than_what_it_acknowledged_is_refused(place: Path) -> None:
    async with SqliteStore(place) as store:
        await store.create_session("s", entries=messages(3))
        elsewhere = apsw.Connection(str(place))
        with elsewhere:
            elsewhere.execute("DELETE FROM entries WHERE seq = 3")
            elsewhere.execute("UPDATE meta SET value = 0")
        elsewhere.close()
        store._writer.call(store._writer.file.drop).result()
        with pytest.raises(StoreUnavailableError, match="has lost what was stored"):
            await store.append_entries("s", messages(1, "x"))


async def test_an_emptied_file_whose_log_is_there_is_not_founded_anew(place: Path) -> None:
    async with SqliteStore(place) as store:
        await store.create_session("s", entries=messages(3))
        copy = place.with_name("copy.db")
        shutil.copy(log_of(place), log_of(copy))
    copy.touch()
    before = log_of(copy).read_bytes()
    async with SqliteStore(copy) as store:
        with pytest.raises(StoreUnavailableError, match="it was emptied"):
            await store.create_session("s")
    assert (copy.read_bytes(), log_of(copy).read_bytes()) == (b"", before)


@pytest.mark.parametrize("is_old", [False, True])
async def test_an_empty_file_without_a_log_becomes_a_store_and_an_old_one_is_told_of(
    place: Path, is_old: bool, caplog: pytest.LogCaptureFixture
) -> None:
    os.close(os.open(place, os.O_CREAT))  # as whoever died while making it leaves it
    if is_old:
        os.utime(place, (1e9, 1e9))
    async with SqliteStore(place) as store:
        await store.create_session("s", entries=messages(3))
    assert len(await left(place)) == 3
    assert ("it was emptied" in caplog.text) is is_old


async def test_a_commit_after_which_the_files_cannot_be_looked_at_is_uncertain(
    place: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    commit = Ledger.commit
    store = SqliteStore(place)
    async with asyncio.timeout(10):
        await store.create_session("s")
        log_fd = store._writer.file.watch._log_fd
        sound, unreadable = os.dup(log_fd), os.open(os.devnull, os.O_WRONLY)

        def commit_and_go_blind(self: Ledger) -> None:
            commit(self)
            os.dup2(unreadable, log_fd)

        with monkeypatch.context() as patch:
            patch.setattr(Ledger, "commit", commit_and_go_blind)
            with pytest.raises(AppendUncertainError, match="cannot be used"):
                await store.create_session("t")
        await asyncio.wrap_future(store._writer.call(store._writer.file.look_at_rest))
        assert "cannot be used: [Errno 9]" in caplog.text
        with pytest.raises(StoreUnavailableError, match="cannot be used"):
            await store.append_entries("t", messages(1))
        os.dup2(sound, log_fd)
        await store.append_entries("t", messages(1))
        await store.close()
        for each in (sound, unreadable):
            os.close(each)
    assert len(await left(place, "t")) == 1
