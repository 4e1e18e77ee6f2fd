"""What a disk may show after its power was lost: a model that is fed with what was done to it.

Bytes are certain once their file is synced, names once their folder is. Until then a disk may have
all of it, none, a prefix of any length, some pages and not others (zeros, or what was there before,
in their place), or the later write and not the earlier one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

STALE = b'what this block held before, "it": '
"""What may stand in a page that was never written: here, text that is well-formed inside JSON."""


@dataclass(frozen=True, slots=True)
class Write:
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Cut:
    size: int


Change = Write | Cut


@dataclass(frozen=True, slots=True)
class Detail:
    """How finely what was not synced is enumerated."""

    prefix_step: int = 1
    pages: int = 4
    stale: bool = True
    garbles_old_bytes: bool = False
    """Whether a page that was being overwritten may show neither what was there nor what came."""


@dataclass(frozen=True, slots=True)
class Image:
    """Files as a disk may show them; `is_stale`: a page of them holds other bytes, not zeros."""

    label: str
    files: dict[str, bytes]
    folders: frozenset[str]
    is_stale: bool = False

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for images that show the same."""
        return tuple(sorted(self.files.items())), self.folders


@dataclass(slots=True)
class _File:
    certain: bytes = b""
    pending: list[Change] = field(default_factory=list)


class Power:
    """The disk under a folder. Paths are relative to it; a file is a number, whatever its names."""

    def __init__(self, *, failed_sync_loses: bool = True) -> None:
        self.failed_sync_loses = failed_sync_loses
        self.files: dict[int, _File] = {}
        self.names: dict[str, int | None] = {}
        self.pending_names: list[tuple[str, int | None, bool]] = []

    def name(self, path: str, number: int | None) -> None:
        """A file (or, with None, a folder) got this name."""
        if number is not None:
            self.files.setdefault(number, _File())
        self.pending_names.append((path, number, True))

    def unname(self, path: str) -> None:
        """The name was taken away."""
        self.pending_names.append((path, None, False))

    def change(self, number: int, change: Change) -> None:
        """Bytes of the file were changed."""
        self.files[number].pending.append(change)

    def sync(self, number: int) -> None:
        """The file was synced."""
        file = self.files[number]
        for change in file.pending:
            file.certain = _changed(file.certain, change)
        file.pending.clear()

    def fail_sync(self, number: int) -> None:
        """A sync failed: the system may take the pages for written now, and try no more."""
        if self.failed_sync_loses:
            file = self.files[number]
            file.pending = [change for change in file.pending if isinstance(change, Cut)]

    def sync_names(self, folder: str) -> None:
        """The folder was synced."""
        kept = []
        for path, number, is_there in self.pending_names:
            if path.rpartition("/")[0] != folder:
                kept.append((path, number, is_there))
            elif is_there:
                self.names[path] = number
            else:
                self.names.pop(path, None)
        self.pending_names = kept

    def images(self, detail: Detail) -> Iterator[Image]:
        """Every image that the detail asks for, each once."""
        seen = set()
        every_name = list(self._names())
        for index, (label, is_stale, contents) in enumerate(self._contents(detail)):
            # Which names are there matters to none of the bytes: all of both is enough.
            for names_label, names in every_name if index < 2 else every_name[-1:]:
                folders = frozenset(path for path, number in names.items() if number is None)
                files = {
                    path: contents[number]
                    for path, number in names.items()
                    if number is not None and _is_reached(path, folders)
                }
                image = Image(f"{names_label}, {label}", files, folders, is_stale)
                if image.key not in seen:
                    seen.add(image.key)
                    yield image

    def _names(self) -> Iterator[tuple[str, dict[str, int | None]]]:
        """Every subset of the changes of names that are not certain; all of them last."""
        pending = self.pending_names
        for kept in _subsets(len(pending)):
            names = dict(self.names)
            for is_kept, (path, number, is_there) in zip(kept, pending, strict=True):
                if is_kept and is_there:
                    names[path] = number
                elif is_kept:
                    names.pop(path, None)
            yield f"names {''.join('.x'[k] for k in kept) or 'certain'}", names

    def _contents(self, detail: Detail) -> Iterator[tuple[str, bool, dict[int, bytes]]]:
        none = {number: file.certain for number, file in self.files.items()}
        every = {number: _all(file.certain, file.pending) for number, file in self.files.items()}
        yield "no bytes", False, none
        yield "all bytes", False, every
        for number, file in self.files.items():
            for label, is_stale, content in _variants(file, detail):
                for others in (none, every):
                    yield f"file {number}: {label}", is_stale, {**others, number: content}


def _subsets(count: int) -> Iterator[tuple[bool, ...]]:
    """Every subset of so many; of many, every prefix and every one with one missing."""
    if count <= 6:
        yield from itertools.product((False, True), repeat=count)
        return
    yield from (tuple(n < kept for n in range(count)) for kept in range(count))
    yield from (tuple(n != missing for n in range(count)) for missing in range(count))
    yield (True,) * count


def _is_reached(path: str, folders: frozenset[str]) -> bool:
    folder = path.rpartition("/")[0]
    return not folder or (folder in folders and _is_reached(folder, folders))


def _changed(content: bytes, change: Change) -> bytes:
    match change:
        case Cut(size):
            return content[:size].ljust(size, b"\x00")
        case Write(offset, data):
            head = content[:offset].ljust(offset, b"\x00")
            return head + data + content[offset + len(data) :]


def _all(content: bytes, changes: list[Change]) -> bytes:
    for change in changes:
        content = _changed(content, change)
    return content


def _variants(file: _File, detail: Detail) -> Iterator[tuple[str, bool, bytes]]:
    pending = file.pending
    for n, change in enumerate(pending):
        before = _all(file.certain, pending[:n])
        yield f"the first {n} changes", False, before
        if n + 1 < len(pending):
            without = _all(before, pending[n + 1 :])
            yield f"all changes but {n}", False, without
        if not isinstance(change, Write):
            continue
        for kept in range(detail.prefix_step, len(change.data), detail.prefix_step):
            part = _changed(before, Write(change.offset, change.data[:kept]))
            yield f"change {n} up to byte {kept}", False, part
        old = b"" if detail.garbles_old_bytes else before[change.offset :]
        for label, is_stale, data in _pages(change.data, old, detail):
            yield f"change {n} {label}", is_stale, _changed(before, Write(change.offset, data))


def _pages(data: bytes, old: bytes, detail: Detail) -> Iterator[tuple[str, bool, bytes]]:
    size = max(1, -(-len(data) // detail.pages))
    pages = [data[start : start + size] for start in range(0, len(data), size)]
    olds = [old[start : start + size] for start in range(0, len(data), size)]
    fillings = [("zeros", bytes(size))]
    if detail.stale:
        fillings.append(("other bytes", (STALE * (size // len(STALE) + 1))[:size]))
    for label, filling in fillings:
        for kept in itertools.product((False, True), repeat=len(pages)):
            if not all(kept):
                shown = [
                    page if is_kept else (there + filling[len(there) :])[: len(page)]
                    for page, there, is_kept in zip(pages, olds, kept, strict=True)
                ]
                text = f"pages {''.join('.x'[k] for k in kept)}, else {label}"
                yield text, label != "zeros", b"".join(shown)
