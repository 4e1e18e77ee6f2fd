"""A process that is forked off one with an open store is refused at once, and harms nothing."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from perdure.entry import text
from perdure.errors import StoreUnavailableError
from perdure.stores.sqlite import SqliteStore

TOO_LONG_S = 5

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a fork is not sound"),
    pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning"),
]


async def refusals(store: SqliteStore) -> list[str]:
    found = []
    for verb in (
        lambda: store.append_entries("s", [text("of the child")]),
        lambda: store.create_session("t"),
        lambda: store.load_entries("s"),
        store.try_write,
    ):
        try:
            async with asyncio.timeout(TOO_LONG_S):
                await verb()
        except StoreUnavailableError as error:
            found.append(str(error))
        except TimeoutError:
            found.append("hangs")
    async with asyncio.timeout(TOO_LONG_S):
        await store.close()
    async with SqliteStore(store.path) as own:
        await own.append_entries("s", [text("of the child's own store")])
    return found


def in_child(store: SqliteStore) -> str:
    """What a child that is forked off now finds; it ends without the parent's own ends."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            said = "\n".join(asyncio.run(refusals(store)))
        except BaseException as error:
            said = repr(error)
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    with open(reading) as report:
        said = report.read()
    os.waitpid(child, 0)
    return said


def test_a_forked_process_is_refused_and_the_one_that_opened_goes_on(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.db")

    async def begin() -> None:
        await store.create_session("s")
        await store.load_entries("s")

    async def go_on() -> list[int]:
        await store.append_entries("s", [text("of the parent")])
        await store.verify_session("s")
        found = await store.load_entries("s")
        await store.close()
        return [each.seq for each in found]

    asyncio.run(begin())
    said = in_child(store).splitlines()
    assert len(said) == 4
    for line in said:
        assert "nothing was attempted. Open it anew here" in line
    assert asyncio.run(go_on()) == [1, 2]


def test_a_store_that_nobody_used_before_the_fork_works_in_the_child(tmp_path: Path) -> None:
    async def make(store: SqliteStore) -> None:
        async with store:
            await store.create_session("s")

    asyncio.run(make(SqliteStore(tmp_path / "s.db")))
    assert in_child(SqliteStore(tmp_path / "s.db")) == ""
