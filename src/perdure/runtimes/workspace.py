"""A folder that nothing leaves: every path is walked from its descriptor, one name at a time.

No name is ever looked up by the kernel through a link: each link is read and walked like the rest
of the path, so neither `..`, nor a link, nor a folder that is swapped for a link in mid-walk leads
out. An absolute path, or an absolute link, counts as beginning at the workspace if it is spelled so
and is refused else. Hard links cannot be told from files and are followed, and commands are not
confined: they are programs of the user who runs the runtime.
"""

from __future__ import annotations

import asyncio
import os
import stat
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from perdure.clock import new_id
from perdure.codec import clean_text
from perdure.runtimes.tool import ToolFailure

T = TypeVar("T")

THREADS = 8
MAX_LINKS = 40
MAX_DEPTH = 200
_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


@dataclass(frozen=True, slots=True)
class Place:
    """Where a path leads: a name in an open folder. `status` None: nothing is there.

    `name` is "." for the folder itself; `path` is how the place is called inside the workspace.
    """

    folder: int
    name: str
    path: str
    status: os.stat_result | None

    @property
    def is_folder(self) -> bool:
        """Whether there is a folder."""
        return self.status is not None and stat.S_ISDIR(self.status.st_mode)

    @property
    def is_file(self) -> bool:
        """Whether there is a regular file."""
        return self.status is not None and stat.S_ISREG(self.status.st_mode)


class Workspace:
    """A folder, held open; `close` lets go of it. Its methods block: call them with `run`.

    Raises:
        OSError: there is no such folder.

    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._given = os.path.abspath(os.fspath(folder))
        self.path = Path(os.path.realpath(folder))
        self._root = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="workspace")
        self._counting = threading.Lock()
        self._users = 1  # whoever opened it; the last one closes the descriptor

    async def run(self, blocking: Callable[..., T], *arguments: object) -> T:
        """Calls a function in one of the workspace's own threads.

        They are not those of the process: a file system that hangs holds up nobody else. Cancelling
        waits for nothing; what began goes on to its end.
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, blocking, *arguments)

    def close(self) -> None:
        """Lets go of the folder, once nobody uses it any more; nothing begins from here on."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._let_go()

    def _take(self) -> None:
        with self._counting:
            if not self._users:
                raise ToolFailure("the runtime was closed")
            self._users += 1

    def _let_go(self) -> None:
        with self._counting:
            self._users -= 1
            if not self._users:
                os.close(self._root)

    @contextmanager
    def at(self, path: str, *, make_parents: bool = False) -> Iterator[Place]:
        """The place that a path leads to, open inside the block.

        Raises:
            ToolFailure: it leads out of the workspace, or nowhere; the text says which.

        """
        self._take()
        with ExitStack() as opened:
            opened.callback(self._let_go)
            try:
                yield self._walk(path, opened, make_parents=make_parents)
            except OSError as error:
                why = error.strerror or str(error)
                raise ToolFailure(f"{clean_text(path)}: {why}") from error

    def _walk(self, path: str, opened: ExitStack, *, make_parents: bool) -> Place:
        ahead = deque(self._names(path, path))
        if len(ahead) > MAX_DEPTH:  # before anything is made
            raise ToolFailure(f"{clean_text(path)}: more than {MAX_DEPTH} names")
        folders, names = [self._root], list[str]()
        links = 0
        while ahead:
            name = ahead.popleft()
            if name == "..":
                if len(folders) == 1:
                    raise _outside(path)
                folders.pop()
                names.pop()
                continue
            status = _status(name, folders[-1])
            if status is not None and stat.S_ISLNK(status.st_mode):
                links += 1
                if links > MAX_LINKS:
                    raise ToolFailure(f"{clean_text(path)}: too many links")
                target = os.readlink(name, dir_fd=folders[-1])
                ahead.extendleft(reversed(self._names(target, path)))
                if target.startswith("/"):
                    folders, names = [self._root], []
                continue
            if not ahead:
                return Place(folders[-1], name, "/".join([*names, name]), status)
            if status is None and make_parents:
                _make_folder(name, folders[-1])
            if len(folders) > MAX_DEPTH:
                raise ToolFailure(f"{clean_text(path)}: more than {MAX_DEPTH} folders deep")
            descriptor = os.open(name, _FOLDER, dir_fd=folders[-1])
            opened.callback(os.close, descriptor)
            folders.append(descriptor)
            names.append(name)
        return Place(folders[-1], ".", "/".join(names) or ".", os.fstat(folders[-1]))

    def _names(self, path: str, asked: str) -> list[str]:
        """The names of a path from where it begins; of an absolute one, from the workspace."""
        if "\0" in path:
            raise ToolFailure("a path cannot hold a NUL")
        try:
            os.fsencode(path)
        except UnicodeEncodeError:
            raise ToolFailure(f"{clean_text(asked)}: no name of a file is spelled so") from None
        if path.startswith("/"):
            for root in (self._given, str(self.path)):
                if path == root or path.startswith(root.rstrip("/") + "/"):
                    path = path[len(root) :]
                    break
            else:
                raise _outside(asked)
        return [name for name in path.split("/") if name not in {"", "."}]

    def open_file(self, place: Place) -> int:
        """A descriptor to read a regular file with.

        Raises:
            ToolFailure: it is none, or is not there.

        """
        _check_regular(place, place.status)
        descriptor = os.open(place.name, os.O_RDONLY | _FILE, dir_fd=place.folder)
        try:
            _check_regular(place, os.fstat(descriptor))
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def replace(self, place: Place, data: bytes) -> None:
        """Puts a whole file in the place, or leaves what is there; a file keeps its mode.

        Raises:
            ToolFailure: there is something else than a file.
            OSError: it cannot be written; nothing was changed.

        """
        if place.status is not None:
            _check_regular(place, place.status)
        draft = f".{new_id()}.perdure"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FILE
        descriptor = os.open(draft, flags, 0o666, dir_fd=place.folder)
        try:
            with os.fdopen(descriptor, "wb") as file:
                if place.status is not None:
                    os.fchmod(descriptor, stat.S_IMODE(place.status.st_mode))
                file.write(data)
            os.rename(draft, place.name, src_dir_fd=place.folder, dst_dir_fd=place.folder)
        except BaseException:
            os.unlink(draft, dir_fd=place.folder)
            raise


def open_folder(name: str, folder: int) -> int:
    """A descriptor to list a folder with; a link is not followed."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(name, flags, dir_fd=folder)


def _status(name: str, folder: int) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _make_folder(name: str, folder: int) -> None:
    try:
        os.mkdir(name, dir_fd=folder)
    except FileExistsError:
        return


def _check_regular(place: Place, status: os.stat_result | None) -> None:
    if status is None:
        raise ToolFailure(f"{clean_text(place.path)}: there is no such file")
    if not stat.S_ISREG(status.st_mode):
        kind = "a folder" if stat.S_ISDIR(status.st_mode) else "no regular file"
        raise ToolFailure(f"{clean_text(place.path)} is {kind}")


def _outside(path: str) -> ToolFailure:
    return ToolFailure(
        f"{clean_text(path)} leads out of the workspace; only what is inside can be used"
    )
