"""A VFS under SQLite that fails when it is told to, and remembers what was done to the files."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import apsw

from tests.faults.power import Cut, Power, Write
from tests.faults.record import Asked, Known

KINDS = ("open", "read", "write", "short", "sync", "truncate", "delete")
"""What can fail underneath SQLite; `short` is a write that takes half."""

Happened = Callable[[Power, Known], None]


class TracedFile(apsw.VFSFile):
    """A file of SQLite's on the real disk; nothing is really synced."""

    def __init__(self, vfs: TracedVfs, name: Any, flags: list[int]) -> None:
        self.vfs = vfs
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        self.path = path or ""
        vfs.opened(self.path)
        super().__init__("unix", name, flags)

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802 - SQLite's name
        self.vfs.step("read")
        return super().xRead(amount, offset)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - SQLite's name
        self.vfs.step("write")
        try:
            self.vfs.step("short")
        except apsw.Error:
            half = data[: len(data) // 2]
            super().xWrite(half, offset)
            self.vfs.changed(self.path, Write(offset, bytes(half)))
            raise
        super().xWrite(data, offset)
        self.vfs.changed(self.path, Write(offset, bytes(data)))

    def xTruncate(self, size: int) -> None:  # noqa: N802 - SQLite's name
        self.vfs.step("truncate")
        super().xTruncate(size)
        self.vfs.changed(self.path, Cut(size))

    def xSync(self, flags: int) -> None:  # noqa: N802 - SQLite's name
        try:
            self.vfs.step("sync")
        except apsw.Error:
            self.vfs.failed_sync(self.path)
            raise
        self.vfs.synced(self.path)


class TracedVfs(apsw.VFS):
    """The system's VFS, over the files of one folder; use it as a context manager, one at a time.

    `on_step` is called before each step, whatever its kind.
    """

    def __init__(self, *, on_step: Callable[[str], None] | None = None) -> None:
        self.kind = ""
        self.fails_at = 0
        self.times = 1
        self.error: type[apsw.Error] = apsw.IOError
        self.steps = 0
        self.struck_at: int | None = None
        self.on_step = on_step
        self.trace: list[Happened] = []
        self._numbers: dict[str, int] = {}
        self._count = 0
        self._lock = threading.Lock()
        super().__init__("traced", "unix", makedefault=True)

    def __enter__(self) -> TracedVfs:
        return self

    def __exit__(self, *_: object) -> None:
        self.unregister()

    @property
    def has_struck(self) -> bool:
        return bool(self.kind) and self.steps >= self.fails_at

    def note(self, kind: str, asked: Asked, first_seq: int = 1) -> None:
        """Puts what a store was asked and answered into the trace; for a `Recorder`."""
        self.trace.append(lambda _, known: known.note(kind, asked, first_seq))

    def step(self, kind: str) -> None:
        with self._lock:
            if self.on_step is not None and kind != "short":
                self.on_step(kind)
            if kind != self.kind:
                return
            self.steps += 1
            if self.fails_at <= self.steps < self.fails_at + self.times:
                if self.struck_at is None:
                    self.struck_at = len(self.trace)
                raise self.error("a fault that the test asked for")

    def xOpen(self, name: Any, flags: list[int]) -> TracedFile:  # noqa: N802 - SQLite's name
        self.step("open")
        return TracedFile(self, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802 - SQLite's name
        self.step("delete")
        super().xDelete(filename, syncdir)
        self._numbers.pop(filename, None)
        name = os.path.basename(filename)
        self.trace.append(lambda power, _: power.unname(name))
        if syncdir:
            self.trace.append(lambda power, _: power.sync_names(""))

    def opened(self, path: str) -> None:
        """Before SQLite opens a file: the store made and synced the database's own name."""
        if path in self._numbers or not path:
            return
        self._count += 1
        number = self._numbers[path] = self._count
        name = os.path.basename(path)
        self.trace.append(lambda power, _: power.name(name, number))
        if os.path.exists(path):
            with open(path, "rb") as file:
                data = file.read()
            self.trace.append(lambda power, _: power.change(number, Write(0, data)))
            self.synced(path)

    def changed(self, path: str, change: Write | Cut) -> None:
        number = self._numbers[path]
        self.trace.append(lambda power, _: power.change(number, change))

    def synced(self, path: str) -> None:
        """SQLite's VFS syncs the folder with the first sync of a file that it made."""
        number = self._numbers[path]
        self.trace.append(lambda power, _: power.sync(number))
        self.trace.append(lambda power, _: power.sync_names(""))

    def failed_sync(self, path: str) -> None:
        number = self._numbers[path]
        self.trace.append(lambda power, _: power.fail_sync(number))
