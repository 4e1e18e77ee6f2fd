"""A process on a SQLite store, to be killed or to be one of many: `sqlite_child.py VERB FILE …`."""

import asyncio
import sys
from collections.abc import Awaitable, Callable

from perdure.errors import SessionExistsError
from perdure.stores.sqlite import SqliteStore
from perdure.testing.store_cases import messages


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


async def write(path: str, life: str) -> None:
    """Appends batches to four sessions for ever; says what was acknowledged."""
    store = SqliteStore(path)

    async def produce(session_id: str) -> None:
        if session_id not in await store.session_ids():
            await store.create_session(session_id)
        for n in range(10**9):
            prefix = f"{life}-{n}-"
            receipt = await store.append_entries(session_id, messages(n % 4 + 1, prefix))
            say(f"{session_id} {prefix} {receipt.first_seq} {receipt.last_seq}")

    say("ready")
    await asyncio.gather(*(produce(name) for name in "abcd"))


async def stampede(path: str, name: str) -> None:
    """Is one of many that start at once on a file that is not there."""
    async with SqliteStore(path) as store:
        try:
            await store.create_session("shared")
            say("won")
        except SessionExistsError:
            say("lost")
        await store.create_session(name, entries=messages(2))
        for n in range(5):
            await store.append_entries("shared", messages(2, f"{name}-{n}-"))


async def own(path: str, name: str) -> None:
    """Owns the store until it is killed."""
    async with SqliteStore(path) as store, store.acquire_ownership(name):
        say("ready")
        await asyncio.sleep(600)


VERBS: dict[str, Callable[[str, str], Awaitable[None]]] = {
    "write": write,
    "stampede": stampede,
    "own": own,
}


async def main() -> None:
    await VERBS[sys.argv[1]](sys.argv[2], sys.argv[3])


if __name__ == "__main__":
    asyncio.run(main())
