"""A disk under the JSON-lines store that fails when it is told to, and remembers what was done."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from perdure.stores.disk import Disk
from tests.faults.power import Cut, Power, Write
from tests.faults.record import Asked, Known

KINDS = (
    *("open", "stat", "stat_name", "read", "write", "short", "write_at"),
    *("truncate", "sync_data", "sync_names", "link", "unlink", "make_one_folder"),
    *("make_private", "lock", "unlock"),
)
"""Every system call that can fail; `short` is a write that takes half, then the next one fails."""

Happened = Callable[[Power, Known], None]


@dataclass(slots=True)
class Fault:
    """The calls of a kind that fail: from the `at`-th, `times` of them."""

    kind: str = ""
    at: int = 0
    times: int = 1
    error: int = errno.EIO
    calls: int = 0

    @property
    def has_struck(self) -> bool:
        return bool(self.kind) and self.calls >= self.at


@dataclass(slots=True)
class FaultyDisk(Disk):
    """The folder `root` on the real disk; nothing is really synced."""

    root: str
    fault: Fault = field(default_factory=Fault)
    trace: list[Happened] = field(default_factory=list)
    struck_at: int | None = None
    on_call: Callable[[str], None] | None = None
    _numbers: dict[str, int] = field(default_factory=dict)
    _open: dict[int, tuple[str, int | None]] = field(default_factory=dict)
    _count: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, kind: str, asked: Asked, first_seq: int = 1) -> None:
        """Puts what a store was asked and answered into the trace; for a `Recorder`."""
        self.trace.append(lambda _, known: known.note(kind, asked, first_seq))

    def tear(self, name: str, data: bytes) -> None:
        """Appends bytes to a file as a process does that dies before its sync."""
        path = os.path.join(self.root, name)
        with open(path, "ab") as file:
            offset = file.tell()
            file.write(data)
        number = self._numbers[path]
        self.trace.append(lambda power, _: power.change(number, Write(offset, data)))

    def damage(self, name: str, old: bytes, new: bytes) -> None:
        """Changes bytes of a file on the disk, for good."""
        path = os.path.join(self.root, name)
        with open(path, "r+b") as file:
            offset = file.read().index(old)
            file.seek(offset)
            file.write(new)
        number = self._numbers[path]
        self.trace.append(lambda power, _: power.change(number, Write(offset, new)))
        self.trace.append(lambda power, _: power.sync(number))

    def _call(self, kind: str) -> None:
        with self._lock:
            if self.on_call is not None:
                self.on_call(kind)
            fault = self.fault
            if kind != fault.kind and not (fault.kind == "short" and kind == "write"):
                return
            fault.calls += 1
            if fault.at <= fault.calls < fault.at + fault.times:
                if self.struck_at is None:
                    self.struck_at = len(self.trace)
                raise OSError(fault.error, os.strerror(fault.error), "a fault of the test's")

    def _relative(self, path: str) -> str:
        return os.path.relpath(path, self.root)

    # What happens to names

    def open(self, path: str, flags: int, mode: int = 0) -> int:
        self._call("open")
        fd = Disk.open(self, path, flags, mode)
        if flags & os.O_CREAT:
            self._count += 1
            number = self._numbers[path] = self._count
            name = self._relative(path)
            self.trace.append(lambda power, _: power.name(name, number))
        self._open[fd] = path, self._numbers.get(path)
        return fd

    def close(self, fd: int) -> None:
        self._open.pop(fd, None)
        Disk.close(self, fd)

    def link(self, path: str, new: str) -> None:
        self._call("link")
        Disk.link(self, path, new)
        number = self._numbers[new] = self._numbers[path]
        name = self._relative(new)
        self.trace.append(lambda power, _: power.name(name, number))

    def unlink(self, path: str) -> None:
        self._call("unlink")
        Disk.unlink(self, path)
        del self._numbers[path]
        name = self._relative(path)
        self.trace.append(lambda power, _: power.unname(name))

    def make_one_folder(self, path: str) -> None:
        self._call("make_one_folder")
        Disk.make_one_folder(self, path)
        name = self._relative(path)
        self.trace.append(lambda power, _: power.name(name, None))

    def sync_names(self, fd: int) -> None:
        self._call("sync_names")
        name = self._relative(self._open[fd][0])
        folder = "" if name == "." else name
        self.trace.append(lambda power, _: power.sync_names(folder))

    # What happens to bytes

    def write(self, fd: int, data: bytes | memoryview) -> int:
        half = len(data) // 2
        try:
            self._call("write")
        except OSError:
            is_first = self.fault.calls == self.fault.at
            if self.fault.kind != "short" or not is_first or half == 0:
                raise
            data = data[:half]
        offset = os.fstat(fd).st_size
        written = Disk.write(self, fd, data)
        self._changed(fd, Write(offset, bytes(data[:written])))
        return written

    def write_at(self, fd: int, data: bytes | memoryview, offset: int) -> int:
        self._call("write_at")
        written = Disk.write_at(self, fd, data, offset)
        self._changed(fd, Write(offset, bytes(data[:written])))
        return written

    def truncate(self, fd: int, size: int) -> None:
        self._call("truncate")
        Disk.truncate(self, fd, size)
        self._changed(fd, Cut(size))

    def _changed(self, fd: int, change: Write | Cut) -> None:
        number = self._number(fd)
        self.trace.append(lambda power, _: power.change(number, change))

    def _number(self, fd: int) -> int:
        number = self._open[fd][1]
        assert number is not None
        return number

    def sync_data(self, fd: int) -> None:
        number = self._number(fd)
        try:
            self._call("sync_data")
        except OSError:
            self.trace.append(lambda power, _: power.fail_sync(number))
            raise
        self.trace.append(lambda power, _: power.sync(number))

    # What changes nothing

    def stat(self, fd: int) -> os.stat_result:
        self._call("stat")
        return Disk.stat(self, fd)

    def stat_name(self, path: str) -> os.stat_result | None:
        self._call("stat_name")
        return Disk.stat_name(self, path)

    def is_folder(self, path: str) -> bool:
        return Disk.is_folder(self, path)

    def read(self, fd: int, size: int, offset: int) -> bytes:
        self._call("read")
        return Disk.read(self, fd, size, offset)

    def make_private(self, fd: int) -> None:
        self._call("make_private")
        Disk.make_private(self, fd)

    def lock(self, fd: int) -> bool:
        self._call("lock")
        return Disk.lock(self, fd)

    def unlock(self, fd: int) -> None:
        self._call("unlock")
        Disk.unlock(self, fd)
