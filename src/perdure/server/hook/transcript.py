"""The conversations of sessions as files that the hooks of coding agents read.

`transcript_path` of an event names the file of its session: a line for each tree entry, in the
order of the journal. It is made when the first command of a session's hooks runs on this server,
in time proportional to the conversation, and is added to before each later one. The journal stays
what counts: a file that is gone, or is not what was written, is made anew. It goes with its
session, and at the server's next start.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import re
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path

from perdure.errors import PerdureError
from perdure.server.hook.transcript_line import line_of
from perdure.server.journal import JournalStore

log = logging.getLogger(__name__)

MAX_FILES = 1_000
"""So many files are kept; the one that was not asked for the longest is removed."""

WITHIN_S = 60.0
"""So long a hook waits for the file at most."""

_PAGE = 200


class Transcripts:
    """The files in `folder`, which is emptied at their first use. Calls may come at once.

    `workspace` is the folder that commands run in.
    """

    def __init__(self, store: JournalStore, folder: Path, workspace: Path) -> None:
        self._store = store
        self._folder = folder.absolute()
        self._workspace = workspace.absolute()
        self._files: OrderedDict[str, _File] = OrderedDict()
        self._opening = asyncio.Lock()
        self._is_open = False

    async def path_of(self, session_id: str) -> str:
        """Where the conversation is, as it stands now; empty, and a warning, where it cannot be."""
        try:
            async with asyncio.timeout(WITHIN_S):
                return await self._path_of(session_id)
        except (OSError, PerdureError) as error:  # TimeoutError is an OSError
            why = str(error) or f"it took longer than {WITHIN_S:g} seconds"
            about = {"session_id": session_id}
            log.warning("hooks of session %r have no transcript: %s", session_id, why, extra=about)
            return ""

    async def _path_of(self, session_id: str) -> str:
        async with self._opening:
            if not self._is_open:
                await asyncio.to_thread(_empty, self._folder)
                self._is_open = True
        file = self._files.get(session_id)
        if file is None:
            file = self._files[session_id] = _File(self._folder / _name(session_id))
            await self._make_room()
        self._files.move_to_end(session_id)
        async with file.lock:
            await self._catch_up(session_id, file)
        return str(file.path)

    async def _catch_up(self, session_id: str, file: _File) -> None:
        if await asyncio.to_thread(_size, file.path) != file.size:
            await asyncio.to_thread(_remove, file.path)
            file.seq = file.size = 0
        has_more = True
        while has_more:
            page = await self._store.page_entries(session_id, after=file.seq, limit=_PAGE)
            lines = [line_of(each, session_id, self._workspace) for each in page.entries]
            data = b"".join(lines)
            await asyncio.shield(asyncio.to_thread(_append, file.path, data))
            file.size += len(data)
            file.seq = page.entries[-1].seq if page.entries else file.seq
            has_more = page.has_more

    async def forget(self, session_id: str) -> None:
        """Removes the file of a session that was deleted."""
        if (file := self._files.pop(session_id, None)) is not None:
            async with file.lock:
                try:
                    await asyncio.to_thread(_remove, file.path)
                except OSError as error:
                    log.warning("the transcript %s cannot be removed: %s", file.path, error)

    async def _make_room(self) -> None:
        idle = [key for key, file in self._files.items() if not file.lock.locked()]
        for session_id in idle[: max(len(self._files) - MAX_FILES, 0)]:
            await self.forget(session_id)


class _File:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = asyncio.Lock()
        self.seq = 0
        self.size = 0


def _name(session_id: str) -> str:
    """A name that no other session has, and that begins like the id."""
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", session_id)[:60]
    return f"{plain}-{hashlib.sha256(session_id.encode()).hexdigest()[:16]}.jsonl"


def _empty(folder: Path) -> None:
    if folder.is_symlink():
        raise OSError(f"{folder} is a link, and conversations are not written through one")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    for path in folder.glob("*.jsonl"):
        _remove(path)


def _size(path: Path) -> int:
    with suppress(FileNotFoundError):
        return os.stat(path, follow_symlinks=False).st_size
    return 0


def _append(path: Path, data: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
        file.write(data)


def _remove(path: Path) -> None:
    with suppress(FileNotFoundError):
        path.unlink()
