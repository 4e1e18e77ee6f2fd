"""Stores that fail, in front of a real one: where a test says so, or by chance."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

from perdure.errors import AppendUncertainError, StoreUnavailableError
from perdure.server.journal import JournalStore


class Faulty:
    """Asks `fault(kind, verb, given)` before each verb, and raises what that returns."""

    def __init__(self, store: JournalStore, kind: str = "session") -> None:
        self._store = store
        self._kind = kind
        self._others: dict[str, Faulty] = {}
        self.fault: Callable[[str, str, tuple[Any, ...]], Exception | None] = lambda *_: None

    def of_kind(self, kind: Any) -> Faulty:
        if kind not in self._others:
            self._others[kind] = Faulty(self._store.of_kind(kind), kind)
            self._others[kind].fault = lambda *asked: self.fault(*asked)
        return self._others[kind]

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._store, name)
        if name == "subscribe":
            return verb

        async def run(*given: Any, **options: Any) -> Any:
            if (error := self.fault(self._kind, name, given)) is not None:
                raise error
            return await verb(*given, **options)

        return run


WRITES = frozenset({"append_entries", "create_session"})


class Flaky:
    """Fails by chance, at this `rate`, reads less; a write in doubt may have been stored."""

    def __init__(
        self, store: JournalStore, chance: random.Random, root: Flaky | None = None
    ) -> None:
        self._store = store
        self._chance = chance
        self._root = root or self
        self._others: dict[str, Flaky] = {}
        self.rate = 0.0

    def of_kind(self, kind: Any) -> Flaky:
        if kind not in self._others:
            self._others[kind] = Flaky(self._store.of_kind(kind), self._chance, self._root)
        return self._others[kind]

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._store, name)
        if not asyncio.iscoroutinefunction(verb):
            return verb

        async def run(*given: Any, **options: Any) -> Any:
            if self._chance.random() < 0.3:
                await asyncio.sleep(0)
            rate = self._root.rate if name in WRITES else self._root.rate / 4
            if self._chance.random() >= rate:
                return await verb(*given, **options)
            how = self._chance.choice(["stored", "not stored", "refused"])
            if name not in WRITES or how == "refused":
                raise StoreUnavailableError("not now")
            if how == "stored":
                await verb(*given, **options)
            raise AppendUncertainError("the connection was lost")

        return run
