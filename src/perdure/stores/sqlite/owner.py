"""Who serves the file: a lock on a side file, `<file>.owner`, that says who holds it.

The lock is the operating system's, so it ends with its process; what the side file says is only
believed while somebody holds it. The side file stays.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from perdure.errors import StoreUnavailableError
from perdure.stores.disk import Disk

_MAX_TEXT_BYTES = 1024


class OwnerLock:
    """The lock of one store, taken or not; one thread at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(path.name + ".owner")
        self._descriptor: int | None = None

    def take(self, node: str) -> None:
        """Takes the lock and writes down who has it.

        Raises:
            StoreUnavailableError: somebody has it, named in the text.

        """
        if self._descriptor is not None:
            raise StoreUnavailableError("this store object owns its file already")
        try:
            Disk().make_folder(str(self._path.parent))
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(self._path, flags, 0o600)
        except OSError as error:
            raise StoreUnavailableError(f"{str(self._path)!r} cannot be used: {error}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.fchmod(descriptor, 0o600)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, node.encode(errors="replace")[:_MAX_TEXT_BYTES], 0)
        except BlockingIOError as error:
            owner = os.pread(descriptor, _MAX_TEXT_BYTES, 0).decode(errors="replace")
            os.close(descriptor)
            raise StoreUnavailableError(
                f"{str(self._path.with_suffix(''))!r} is served by {owner or 'somebody'} already; "
                "stop that server, or give this one another store"
            ) from error
        except OSError as error:
            os.close(descriptor)
            raise StoreUnavailableError(f"{str(self._path)!r} cannot be used: {error}") from error
        self._descriptor = descriptor

    def release(self) -> None:
        """Gives the lock up; nothing happens where it is not held."""
        if self._descriptor is not None:
            os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = None
