"""A store that fails where a test says so, in front of a real one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
