"""A server's routines in a process that kills itself at its n-th write: N WHEN FILE START.

It goes on for two due times, from START (a time in UTC) on; N 0 lives to the end and prints what
became of each due time.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

from perdure import clock
from perdure.errors import RoutineNotFoundError
from perdure.server.routine.definition import Wanted
from perdure.stores.sqlite import SqliteStore
from perdure.testing import ManualClock
from tests.server.routine_house import SAY, RoutineHouse

WRITES = frozenset({"create_session", "append_entries"})


class KillingStore:
    """Kills its process with the n-th write, before it or once it is stored."""

    def __init__(self, store: SqliteStore, left: list[int], when: str) -> None:
        self._store = store
        self._left = left
        self._when = when

    def of_kind(self, kind: Any) -> KillingStore:
        return KillingStore(self._store.of_kind(kind), self._left, self._when)

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._store, name)
        if name not in WRITES:
            return verb

        async def write(*given: Any, **options: Any) -> Any:
            self._left[0] -= 1
            is_last = self._left[0] == 0
            if is_last and self._when == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            stored = await verb(*given, **options)
            if is_last:
                os.kill(os.getpid(), signal.SIGKILL)
            return stored

        return write


async def until_ended(house: RoutineHouse) -> None:
    """Waits until no run is open and nothing is attended to."""
    async with asyncio.timeout(20):
        while True:
            await house.rest()
            if not house.routines.look("r").running:
                return
            await asyncio.sleep(0.002)


async def main(n: int, when: str, path: Path, start: datetime) -> None:
    manual = ManualClock(start, seed=int(start.timestamp()))
    left = [0]
    with clock.use(manual):
        async with SqliteStore(path) as store:
            killing: Any = KillingStore(store, left, when)
            house = RoutineHouse(killing)
            await house.keeper.load()
            try:
                house.routines.look("r")
            except RoutineNotFoundError:
                await house.make(SAY, overlap="queue")
                assert house.routines.preview(Wanted(every_s=60)).due
            left[0] = n
            async with house.keeper.keeping():
                await until_ended(house)
                for _ in range(2):
                    await manual.advance(3600)
                    await until_ended(house)
                runs = [(run.run_id, run.status) for run in await house.runs()]
            await house.house.close()
            print(json.dumps(runs))  # noqa: T201


if __name__ == "__main__":
    count, at_which, file, begin = sys.argv[1:]
    asyncio.run(main(int(count), at_which, Path(file), datetime.fromisoformat(begin)))
